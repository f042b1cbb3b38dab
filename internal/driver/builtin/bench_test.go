package builtin

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkStart starts and stops a server on a state, without a client.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	spec := w.seed("a", nil)
	w.add("a", "one")
	b.ReportAllocs()
	for b.Loop() {
		inst, err := w.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if err := inst.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFork freezes a state and seeds, starts, stops and erases a child of
// it, for graphs and chains of several sizes: it should not matter.
func BenchmarkFork(b *testing.B) {
	for _, size := range []struct{ entities, depth int }{{1, 1}, {1, 100}, {5000, 1}, {5000, 100}} {
		b.Run(fmt.Sprintf("entities=%d/depth=%d", size.entities, size.depth), func(b *testing.B) {
			w := newWorld(b)
			w.seed("a", nil)
			for i := range size.depth {
				var names []string
				for j := range max(size.entities/size.depth, 1) {
					names = append(names, fmt.Sprintf("%d/%d", i, j))
				}
				w.add("a", names...)
				w.freeze("a")
			}
			b.ReportAllocs()
			for b.Loop() {
				snap := w.freeze("a")
				child := w.seed("child", &snap)
				w.discard(snap)
				inst, err := w.Start(b.Context(), child)
				if err != nil {
					b.Fatal(err)
				}
				if err := inst.Stop(context.Background()); err != nil {
					b.Fatal(err)
				}
				if err := w.Erase(b.Context(), child); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
