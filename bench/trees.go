package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// makeTree writes a directory of files of mixed sizes that hold so many bytes
// together, none of which is like another: nothing can be saved by looking at
// them.
func makeTree(dir string, files int, bytes int64) error {
	// Most are small, and most bytes are in a few.
	spread := []int64{1, 4, 16, 64, 256, 1024, 4096, 16384}
	var whole int64
	for i := range files {
		whole += spread[i%len(spread)]
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(bytes))
	noise := rand.NewChaCha8(seed)
	left := bytes
	for i := range files {
		size := int64(float64(bytes) / float64(whole) * float64(spread[i%len(spread)]))
		if i == files-1 {
			size = left // what rounding left over, too
		}
		left -= size
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i/50))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return fmt.Errorf("make a tree of %s: %w", sizeName(bytes), err)
		}
		content := make([]byte, size)
		_, _ = noise.Read(content) // it never fails
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d", i)), content, 0o644); err != nil {
			return fmt.Errorf("make a tree of %s: %w", sizeName(bytes), err)
		}
	}
	return nil
}

// roomFor is as many of the wanted bytes as may be put on the disk of dir, which
// will hold them three times: as a template, as what the gateway makes of it,
// and as much again to spare.
func roomFor(dir string, want int64) (int64, string) {
	free, ok := freeBytes(dir)
	if !ok || free >= 3*want {
		return want, ""
	}
	less := free / 3 / 1e6 * 1e6
	return less, fmt.Sprintf("%s has %s free and a workspace of %s needs three times as much: it is measured with %s",
		dir, sizeName(free), sizeName(want), sizeName(less))
}

func sizeName(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.3g MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.3g KB", float64(n)/1e3)
	}
}
