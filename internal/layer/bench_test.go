package layer

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

func BenchmarkCreate(b *testing.B) {
	w := newWorld(b)
	w.create("a", Ref{})
	must(b, put(w.open("a"), "x", "1"))
	ref := w.seal("a")
	for i := 0; b.Loop(); i++ {
		w.create(strconv.Itoa(i), ref)
	}
}

// BenchmarkFork is what a fork costs: a changed state is sealed and a child made
// and opened on it. The numbers must not depend on depth or size.
func BenchmarkFork(b *testing.B) {
	for _, depth := range []int{1, 100} {
		for _, size := range []int{1 << 10, 256 << 20} {
			b.Run(fmt.Sprintf("depth=%d/size=%d", depth, size), func(b *testing.B) {
				w := newWorld(b)
				w.create("a", Ref{})
				h := w.openGrowing("a")
				_, err := h.Commit(func(dict) ([]byte, io.Reader, int64, error) {
					return []byte("+big"), io.LimitReader(zeros{}, int64(size)), int64(size), nil
				})
				must(b, err)
				for i := range depth {
					must(b, w.Release(w.seal("a")))
					must(b, put(h, strconv.Itoa(i), "x"))
				}
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					must(b, put(h, "x", strconv.Itoa(i)))
					b.StartTimer()
					ref := w.seal("a")
					child := "c" + strconv.Itoa(i)
					w.create(child, ref)
					must(b, w.Release(ref))
					w.open(child)
				}
			})
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	w := newWorld(b)
	w.create("a", Ref{})
	h := w.open("a")
	for b.Loop() {
		b.StopTimer()
		must(b, put(h, "x", "1"))
		b.StartTimer()
		must(b, w.Release(w.seal("a")))
	}
}

// BenchmarkSnapshots is what a change costs that is sealed and released, with the
// merging that this brings about.
func BenchmarkSnapshots(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			w := newWorld(b)
			w.create("a", Ref{})
			h := w.open("a")
			for i := 0; b.Loop(); i++ {
				must(b, put(h, strconv.Itoa(i%keys), "1"))
				must(b, w.Release(w.seal("a")))
			}
		})
	}
}

func BenchmarkSize(b *testing.B) {
	for _, depth := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			w := newWorld(b)
			w.create("a", Ref{})
			h := w.openGrowing("a")
			for range depth {
				must(b, put(h, "x", "1"))
				must(b, w.Release(w.seal("a")))
			}
			ref := w.seal("a")
			for b.Loop() {
				if _, _, err := w.Size(ref); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	w := newWorld(b)
	w.rewriteFrom = 1 << 62
	w.create("a", Ref{})
	h := w.open("a")
	content := strings.Repeat("x", 100)
	b.ReportAllocs()
	for b.Loop() {
		must(b, put(h, "x", content))
	}
}

func BenchmarkFirstCommit(b *testing.B) {
	w := newWorld(b)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		name := strconv.Itoa(i)
		w.create(name, Ref{})
		h := w.open(name)
		b.StartTimer()
		must(b, put(h, "x", "1"))
	}
}

func BenchmarkReadAt(b *testing.B) {
	w := newWorld(b)
	w.create("a", Ref{})
	h := w.open("a")
	must(b, put(h, "x", strings.Repeat("x", 4096)))
	e, _ := h.Value().Get("x")
	b.RunParallel(func(pb *testing.PB) {
		p := make([]byte, 4096)
		for pb.Next() {
			if _, err := e.ReadAt(p, 0); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkOpenCold(b *testing.B) {
	for _, depth := range []int{1, 100} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			w := newWorld(b)
			w.create("a", Ref{})
			h := w.openGrowing("a")
			for i := range depth {
				must(b, put(h, strconv.Itoa(i), "x"))
				must(b, w.Release(w.seal("a")))
			}
			for b.Loop() {
				b.StopTimer()
				w.restart([]string{"a"})
				b.StartTimer()
				w.open("a")
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// BenchmarkFirstRead is the first read of a little after a restart, which verifies
// what it reads. It must not depend on the size of the body.
func BenchmarkFirstRead(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w := newWorld(b)
			w.create("a", Ref{})
			_, err := w.open("a").Commit(func(dict) ([]byte, io.Reader, int64, error) {
				return []byte("+big"), io.LimitReader(zeros{}, int64(size)), int64(size), nil
			})
			must(b, err)
			p := make([]byte, 4<<10)
			for b.Loop() {
				b.StopTimer()
				w.restart([]string{"a"})
				e, _ := w.open("a").Value().Get("big")
				b.StartTimer()
				_, err := e.ReadAt(p, int64(size)-4<<10)
				must(b, err)
			}
		})
	}
}

// BenchmarkReadVerified is a read of what was verified before.
func BenchmarkReadVerified(b *testing.B) {
	w := newWorld(b)
	w.create("a", Ref{})
	must(b, put(w.open("a"), "x", strings.Repeat("x", 4096)))
	w.restart([]string{"a"})
	e, _ := w.open("a").Value().Get("x")
	p := make([]byte, 4096)
	for b.Loop() {
		if _, err := e.ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
