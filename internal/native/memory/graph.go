package memory

import (
	"cmp"
	"iter"
	"slices"

	"github.com/benbjohnson/immutable"
)

// entity is a thing that is remembered. One that is in a graph is never
// changed.
type entity struct {
	Name         string   `json:"name"`
	Type         string   `json:"entityType"`
	Observations []string `json:"observations"`
}

// relation leads from one name to another, of entities that need not exist.
type relation struct {
	From string `json:"from"`
	To   string `json:"to"`
	Type string `json:"relationType"`
}

// Graph is a knowledge graph. It is persistent: its methods leave it as it is.
//
// What is in it is numbered as it comes, and read in that order. The reference
// lets one call create two entities with the same name, and so the indexes are
// sorted sets of names with numbers: the first of a name is found by seeking.
type Graph struct {
	next      uint64 // the number of what comes next
	bytes     int64  // what it holds, about
	entities  *immutable.SortedMap[uint64, *entity]
	relations *immutable.SortedMap[uint64, relation]
	named     *immutable.SortedMap[nameKey, struct{}]     // entities by name
	from      *immutable.SortedMap[relationKey, struct{}] // relations by all they say
	to        *immutable.SortedMap[nameKey, struct{}]     // relations by where they lead
}

type nameKey struct {
	name string
	id   uint64
}

type relationKey struct {
	relation
	id uint64
}

type order[K any] func(a, b K) int

func (o order[K]) Compare(a, b K) int { return o(a, b) }

func compareNames(a, b nameKey) int {
	if c := cmp.Compare(a.name, b.name); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

func compareRelations(a, b relationKey) int {
	if c := cmp.Compare(a.From, b.From); c != 0 {
		return c
	}
	if c := cmp.Compare(a.To, b.To); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Type, b.Type); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

func newGraph() *Graph {
	return &Graph{
		entities:  immutable.NewSortedMap[uint64, *entity](order[uint64](cmp.Compare[uint64])),
		relations: immutable.NewSortedMap[uint64, relation](order[uint64](cmp.Compare[uint64])),
		named:     immutable.NewSortedMap[nameKey, struct{}](order[nameKey](compareNames)),
		from:      immutable.NewSortedMap[relationKey, struct{}](order[relationKey](compareRelations)),
		to:        immutable.NewSortedMap[nameKey, struct{}](order[nameKey](compareNames)),
	}
}

// seek goes through a map from a key on.
func seek[K, V any](m *immutable.SortedMap[K, V], from K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		it := m.Iterator()
		it.Seek(from)
		for !it.Done() {
			if k, v, _ := it.Next(); !yield(k, v) {
				return
			}
		}
	}
}

// called returns the numbers of the entities with a name, in order.
func (g *Graph) called(name string) []uint64 { return numbers(g.named, name) }

// leadingTo returns the numbers of the relations to a name, in order.
func (g *Graph) leadingTo(name string) []uint64 { return numbers(g.to, name) }

func numbers(m *immutable.SortedMap[nameKey, struct{}], name string) []uint64 {
	var ids []uint64
	for k := range seek(m, nameKey{name: name}) {
		if k.name != name {
			break
		}
		ids = append(ids, k.id)
	}
	return ids
}

// leadingFrom returns the numbers of the relations from a name.
func (g *Graph) leadingFrom(name string) []uint64 {
	var ids []uint64
	for k := range seek(g.from, relationKey{relation: relation{From: name}}) {
		if k.From != name {
			break
		}
		ids = append(ids, k.id)
	}
	return ids
}

// alike returns the numbers of the relations that say the same.
func (g *Graph) alike(r relation) []uint64 {
	var ids []uint64
	for k := range seek(g.from, relationKey{relation: r}) {
		if k.relation != r {
			break
		}
		ids = append(ids, k.id)
	}
	return ids
}

// first returns the first entity with a name.
func (g *Graph) first(name string) (uint64, *entity, bool) {
	for k := range seek(g.named, nameKey{name: name}) {
		if k.name != name {
			break
		}
		e, ok := g.entities.Get(k.id)
		return k.id, e, ok
	}
	return 0, nil, false
}

// An edit is a graph in the making, which is not shared yet.
type edit struct{ Graph }

func (g *Graph) edit() *edit { return &edit{*g} }

func (d *edit) addEntity(e *entity) {
	d.entities = d.entities.Set(d.next, e)
	d.named = d.named.Set(nameKey{e.Name, d.next}, struct{}{})
	d.bytes += e.size()
	d.next++
}

func (d *edit) addRelation(r relation) {
	d.relations = d.relations.Set(d.next, r)
	d.from = d.from.Set(relationKey{r, d.next}, struct{}{})
	d.to = d.to.Set(nameKey{r.To, d.next}, struct{}{})
	d.bytes += r.size()
	d.next++
}

// removeName removes the entities with a name and the relations from and to it.
func (d *edit) removeName(name string) {
	for _, id := range d.called(name) {
		e, _ := d.entities.Get(id)
		d.entities = d.entities.Delete(id)
		d.named = d.named.Delete(nameKey{name, id})
		d.bytes -= e.size()
	}
	for _, id := range slices.Concat(d.leadingFrom(name), d.leadingTo(name)) {
		if r, ok := d.relations.Get(id); ok { // one from a name to itself is in both
			d.removeRelation(id, r)
		}
	}
}

func (d *edit) removeRelations(r relation) {
	for _, id := range d.alike(r) {
		d.removeRelation(id, r)
	}
}

func (d *edit) removeRelation(id uint64, r relation) {
	d.relations = d.relations.Delete(id)
	d.from = d.from.Delete(relationKey{r, id})
	d.to = d.to.Delete(nameKey{r.To, id})
	d.bytes -= r.size()
}

// observe replaces what was observed about the first entity with a name.
func (d *edit) observe(id uint64, old *entity, observations []string) {
	e := &entity{Name: old.Name, Type: old.Type, Observations: observations}
	d.entities = d.entities.Set(id, e)
	d.bytes += e.size() - old.size()
}

// size is about what an entity takes in memory and in the log.
func (e *entity) size() int64 {
	n := 64 + len(e.Name) + len(e.Type)
	for _, o := range e.Observations {
		n += 16 + len(o)
	}
	return int64(n)
}

func (r relation) size() int64 { return int64(64 + len(r.From) + len(r.To) + len(r.Type)) }
