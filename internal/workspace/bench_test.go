package workspace

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkFork is a fork of a tree, as a session does it: the cost should be
// the same whatever is in it and however long its line is.
func BenchmarkFork(b *testing.B) {
	for _, size := range []int64{1 << 10, 1 << 30} {
		for _, depth := range []int{1, 100} {
			b.Run(fmt.Sprintf("bytes=%d/depth=%d", size, depth), func(b *testing.B) {
				benchmarkFork(b, size, depth)
			})
		}
	}
}

func benchmarkFork(b *testing.B, size int64, depth int) {
	dir, ctx := b.TempDir(), b.Context()
	s := newStore(b, dir, Options{})
	n := 0
	fork := func(from string) string {
		n++
		to := filepath.Join(dir, fmt.Sprint(n))
		frozen, err := s.Freeze(ctx, from, to+"-frozen")
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Seed(ctx, to, Seed{From: &frozen}); err != nil {
			b.Fatal(err)
		}
		if err := s.Discard(ctx, frozen); err != nil {
			b.Fatal(err)
		}
		return to
	}
	at := filepath.Join(dir, "0")
	f := open(b, s, at, Seed{})
	if err := f.Write("big", io.LimitReader(&repeated{text: strings.Repeat("x", 64)}, size), size); err != nil {
		b.Fatal(err)
	}
	for i := range depth - 1 {
		at = fork(at)
		mustWrite(b, open(b, s, at, Seed{}), fmt.Sprint("f", i), "x")
	}
	// What the system still has to write to the disk is not the fork's.
	frozen, err := s.Freeze(ctx, at, at+"-synced")
	if err == nil {
		err = s.layers.Sync(frozen.Layer)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for b.Loop() {
		w, err := s.Open(fork(at))
		if err != nil {
			b.Fatal(err)
		}
		if err := write(w.FS(), "own", "x"); err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, kind := range []string{KindTree, KindFolder} {
		b.Run(kind, func(b *testing.B) {
			f := newFS(b, kind)
			content := strings.Repeat("x", 1000)
			i := 0
			for b.Loop() {
				mustWrite(b, f, fmt.Sprint("f", i%1000), content)
				i++
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, kind := range []string{KindTree, KindFolder} {
		b.Run(kind, func(b *testing.B) {
			f := newFS(b, kind)
			if err := f.MkdirAll("a/b/c"); err != nil {
				b.Fatal(err)
			}
			mustWrite(b, f, "a/b/c/f", strings.Repeat("x", 1000))
			for b.Loop() {
				if _, err := read(f, "a/b/c/f"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
