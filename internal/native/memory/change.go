package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/tine-mcp/tine/internal/layer"
)

// change is what a call did to a graph, without what it only asked for. Removals
// come before additions.
//
// Additions are numbered from where the graph is. Only a dump, which leaves out
// what is gone, says where: so everything keeps the number that it had.
type change struct {
	RemoveNames     []string   `json:"-n,omitempty"` // entities and their relations
	RemoveRelations []relation `json:"-r,omitempty"`
	Removed         []observed `json:"-o,omitempty"`
	Added           []observed `json:"+o,omitempty"`
	At              uint64     `json:"at,omitempty"`
	Entities        []*entity  `json:"+e,omitempty"`
	Relations       []relation `json:"+r,omitempty"`
}

// observed are observations of the first entity with a name.
type observed struct {
	Name         string   `json:"n"`
	Observations []string `json:"o"`
}

// empty reports whether nothing would change.
func (c *change) empty() bool {
	return len(c.RemoveNames)+len(c.RemoveRelations)+len(c.Removed)+len(c.Added)+len(c.Entities)+len(c.Relations) == 0
}

// maxChange is how large one change may be. It is less than what a layer takes
// and than what it takes to send so much.
const maxChange = 48 << 20

// encode returns a change as a Head's Commit takes it.
func (c *change) encode() (meta []byte, body io.Reader, size int64, err error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c); err != nil {
		return nil, nil, 0, fmt.Errorf("write a change: %w", err)
	}
	if b.Len() > maxChange {
		return nil, nil, 0, refusal("this is too much for one call; make several")
	}
	return b.Bytes(), nil, 0, nil
}

var machine = sync.OnceValue(func() *layer.Machine[*Graph] {
	return &layer.Machine[*Graph]{Empty: newGraph(), Apply: apply, Dump: dump, Live: live}
})

// Machine folds the changes of a state into a graph. It is the same at each
// call, so that forks share what they have in common.
func Machine() *layer.Machine[*Graph] { return machine() }

func apply(g *Graph, meta []byte, _ layer.Extent) (*Graph, error) {
	var c change
	if err := json.Unmarshal(meta, &c); err != nil {
		return nil, fmt.Errorf("read a change of a knowledge graph: %w", err)
	}
	return c.apply(g)
}

// apply trusts nothing: a log may come from an imported file.
func (c *change) apply(g *Graph) (*Graph, error) {
	d := g.edit()
	for _, name := range c.RemoveNames {
		d.removeName(name)
	}
	for _, r := range c.RemoveRelations {
		d.removeRelations(r)
	}
	for _, o := range c.Removed {
		id, e, ok := d.first(o.Name)
		if !ok {
			return nil, fmt.Errorf("change of a knowledge graph: there is no entity %q", o.Name)
		}
		d.observe(id, e, without(e.Observations, o.Observations))
	}
	for _, o := range c.Added {
		id, e, ok := d.first(o.Name)
		if !ok {
			return nil, fmt.Errorf("change of a knowledge graph: there is no entity %q", o.Name)
		}
		d.observe(id, e, slices.Concat(e.Observations, o.Observations))
	}
	if c.At != 0 {
		if c.At < d.next || c.At > maxNumber {
			return nil, fmt.Errorf("change of a knowledge graph: number %d can't be given", c.At)
		}
		d.next = c.At
	}
	for _, e := range c.Entities {
		if e == nil {
			return nil, errors.New("change of a knowledge graph: an entity is missing")
		}
		d.addEntity(e)
	}
	for _, r := range c.Relations {
		d.addRelation(r)
	}
	return &d.Graph, nil
}

// maxNumber leaves more numbers than a log can use.
const maxNumber = 1 << 62

// without returns the observations that are not among the others. Sets are only
// worth making for many.
func without(observations, others []string) []string {
	if len(others) > 8 {
		set := make(map[string]struct{}, len(others))
		for _, o := range others {
			set[o] = struct{}{}
		}
		return slices.DeleteFunc(slices.Clone(observations), func(o string) bool { _, ok := set[o]; return ok })
	}
	return slices.DeleteFunc(slices.Clone(observations), func(o string) bool { return slices.Contains(others, o) })
}

// dumped is about how many bytes of values one change of a dump has.
const dumped = 256 << 10

// dump writes changes that lead from base to g, which continues it.
func dump(base, g *Graph, emit func(meta []byte, body io.Reader, size int64) error) error {
	w := writer{emit: emit}
	removed := map[string]struct{}{}
	for id, e := range seek(base.entities, 0) {
		now, ok := g.entities.Get(id)
		if now == e {
			continue
		}
		if !ok {
			if _, ok := removed[e.Name]; ok {
				continue
			}
			removed[e.Name] = struct{}{}
			w.c.RemoveNames = append(w.c.RemoveNames, e.Name)
			w.size += int64(len(e.Name)) + 1
		} else {
			// A name with several entities only ever has its first one changed.
			more := now.Observations
			if n := len(e.Observations); len(more) > n && slices.Equal(more[:n], e.Observations) {
				more = more[n:]
			} else {
				w.c.Removed = append(w.c.Removed, observed{e.Name, e.Observations})
				w.size += e.size()
			}
			w.c.Added = append(w.c.Added, observed{e.Name, more})
			w.size += now.size()
		}
		if err := w.flush(dumped); err != nil {
			return err
		}
	}
	for id, r := range seek(base.relations, 0) {
		if _, ok := g.relations.Get(id); ok {
			continue
		}
		_, from := removed[r.From]
		_, to := removed[r.To]
		if from || to {
			continue // it went with the entity
		}
		w.c.RemoveRelations = append(w.c.RemoveRelations, r)
		w.size += r.size()
		if err := w.flush(dumped); err != nil {
			return err
		}
	}
	if err := w.flush(0); err != nil {
		return err
	}

	// Numbers that follow each other share a change. The two kinds come in order
	// each, and so both at once.
	next := base.next
	entities, relations := g.entities.Iterator(), g.relations.Iterator()
	entities.Seek(base.next)
	relations.Seek(base.next)
	eid, e, more := entities.Next()
	rid, r, also := relations.Next()
	for more || also {
		isEntity := more && (!also || eid < rid)
		id := rid
		if isEntity {
			id = eid
		}
		// Within one change entities come before relations.
		if id != next || isEntity && len(w.c.Relations) > 0 {
			if err := w.flush(0); err != nil {
				return err
			}
		}
		if w.c.empty() {
			w.c.At = id
		}
		next = id + 1
		if isEntity {
			w.c.Entities = append(w.c.Entities, e)
			w.size += e.size()
			eid, e, more = entities.Next()
		} else {
			w.c.Relations = append(w.c.Relations, r)
			w.size += r.size()
			rid, r, also = relations.Next()
		}
		if err := w.flush(dumped); err != nil {
			return err
		}
	}
	if next < g.next {
		if err := w.flush(0); err != nil {
			return err
		}
		w.c.At = g.next
		w.size = 1
	}
	return w.flush(0)
}

type writer struct {
	emit func(meta []byte, body io.Reader, size int64) error
	c    change
	size int64
}

// flush emits what was gathered when it is more than n.
func (w *writer) flush(n int64) error {
	if w.size <= n {
		return nil
	}
	meta, body, size, err := w.c.encode()
	if err != nil {
		return err
	}
	w.c, w.size = change{}, 0
	return w.emit(meta, body, size)
}

// live is about what dump would write.
func live(base, g *Graph) int64 {
	var n int64
	for id, e := range seek(g.entities, 0) {
		if id < base.next {
			if was, _ := base.entities.Get(id); was == e {
				continue
			}
		}
		n += e.size()
	}
	for _, r := range seek(g.relations, base.next) {
		n += r.size()
	}
	return n
}
