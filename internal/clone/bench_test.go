//go:build linux

package clone

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// shapes are the trees of the benchmarks.
var shapes = []struct {
	name  string
	files int
	size  int
	dirs  int
}{
	{"1000x1KiB", 1000, 1 << 10, 1},
	{"1000x4KiB in 50 dirs", 1000, 4 << 10, 50},
	{"100x1MiB", 100, 1 << 20, 1},
	{"1x100MiB", 1, 100 << 20, 1},
}

func makeShape(b *testing.B, files, size, dirs int) string {
	b.Helper()
	src := filepath.Join(b.TempDir(), "src")
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i * 7)
	}
	for n := range files {
		dir := filepath.Join(src, fmt.Sprint(n%dirs))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file", n)), content, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return src
}

// BenchmarkTree copies a tree, in turns with cp -a: the ratio counts, for the
// machine is never quiet.
func BenchmarkTree(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			src := makeShape(b, s.files, s.size, s.dirs)
			dst := filepath.Join(b.TempDir(), "dst")
			b.SetBytes(int64(s.files) * int64(s.size))
			var ours, cp []float64
			for b.Loop() {
				ours = append(ours, timed(b, dst, func() error { return Tree(b.Context(), dst, src, Options{}) }))
				cp = append(cp, timed(b, dst, func() error { return exec.Command("cp", "-a", src, dst).Run() }))
			}
			b.ReportMetric(median(ours), "ms/tree")
			b.ReportMetric(median(cp), "ms/cp")
			b.ReportMetric(median(ours)/median(cp), "ratio")
		})
	}
}

func timed(b *testing.B, dst string, run func() error) float64 {
	b.Helper()
	start := time.Now()
	if err := run(); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	b.StopTimer()
	defer b.StartTimer()
	if err := os.RemoveAll(dst); err != nil {
		b.Fatal(err)
	}
	return took.Seconds() * 1000
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
