package memory

import (
	"fmt"
	"testing"
)

// filled makes a graph with n entities and twice as many relations.
func filled(b *testing.B, n int) *Graph {
	b.Helper()
	g := newGraph()
	for i := range n {
		name := fmt.Sprintf("entity %d", i)
		c := change{
			Entities:  []*entity{{name, "Thing", []string{"has the number " + fmt.Sprint(i), "is one of Many"}}},
			Relations: []relation{{name, fmt.Sprintf("entity %d", i/2), "follows"}, {name, "entity 0", "belongs to"}},
		}
		next, err := c.apply(g)
		if err != nil {
			b.Fatal(err)
		}
		g = next
	}
	return g
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		g := filled(b, n)
		b.Run(fmt.Sprintf("entities=%d/add", n), func(b *testing.B) {
			c := change{Entities: []*entity{{"entity x", "Thing", []string{"o"}}}, Relations: []relation{{"entity x", "entity 1", "follows"}}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.apply(g); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("entities=%d/remove", n), func(b *testing.B) {
			c := change{RemoveNames: []string{"entity 77"}}
			for b.Loop() {
				if _, err := c.apply(g); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("entities=%d/open", n), func(b *testing.B) {
			for b.Loop() {
				g.touching(g.open([]string{"entity 7", "entity 70"}))
			}
		})
		b.Run(fmt.Sprintf("entities=%d/search", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := g.search(b.Context(), "NUMBER 77"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	for b.Loop() {
		filled(b, 10_000)
	}
}
