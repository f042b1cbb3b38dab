package memory

import (
	"context"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/benbjohnson/immutable"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// lowering makes strings lower case as JavaScript does, where some letters
// become two and a sigma at the end of a word is another one. It is for one
// goroutine.
type lowering struct{ full cases.Caser }

func newLowering() lowering { return lowering{cases.Lower(language.Und)} }

func (l lowering) lower(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return l.full.String(s)
		}
	}
	return strings.ToLower(s)
}

// search returns the numbers of the entities of which the name, the type or an
// observation contains a text, in any case.
func (g *Graph) search(ctx context.Context, query string) ([]uint64, error) {
	l := newLowering()
	query = l.lower(query)
	has := func(s string) bool { return strings.Contains(l.lower(s), query) }
	var ids []uint64
	seen := 0
	for id, e := range seek(g.entities, 0) {
		if seen++; seen%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if has(e.Name) || has(e.Type) || slices.ContainsFunc(e.Observations, has) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// open returns the numbers of the entities with one of these names, in the
// order of the graph.
func (g *Graph) open(names []string) []uint64 {
	var ids []uint64
	for _, name := range names {
		ids = append(ids, g.called(name)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// touching returns the numbers of the relations from or to one of these
// entities, in the order of the graph.
func (g *Graph) touching(entities []uint64) []uint64 {
	names := make(map[string]struct{}, len(entities))
	for _, id := range entities {
		e, _ := g.entities.Get(id)
		names[e.Name] = struct{}{}
	}
	var ids []uint64
	if len(names) > g.relations.Len()/16 {
		// Going through all is faster than looking for each.
		for id, r := range seek(g.relations, 0) {
			_, from := names[r.From]
			_, to := names[r.To]
			if from || to {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for name := range names {
		ids = append(ids, g.leadingFrom(name)...)
		ids = append(ids, g.leadingTo(name)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// parts are entities and relations of a graph, in its order.
type parts struct {
	entities  iter.Seq[*entity]
	relations iter.Seq[relation]
}

func (g *Graph) all() parts {
	return parts{values(seek(g.entities, 0)), values(seek(g.relations, 0))}
}

// around returns the given entities with the relations that touch them.
func (g *Graph) around(entities []uint64) parts {
	return parts{get(g.entities, entities), get(g.relations, g.touching(entities))}
}

func values[K, V any](seq iter.Seq2[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range seq {
			if !yield(v) {
				return
			}
		}
	}
}

func get[V any](m *immutable.SortedMap[uint64, V], ids []uint64) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, id := range ids {
			if v, ok := m.Get(id); ok && !yield(v) {
				return
			}
		}
	}
}
