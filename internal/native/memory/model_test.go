package memory

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/torture"
)

// model is a graph as the reference keeps it: two lists.
type model struct {
	entities  []entity
	relations []relation
}

func (m model) clone() model {
	c := model{relations: slices.Clone(m.relations)}
	for _, e := range m.entities {
		e.Observations = slices.Clone(e.Observations)
		c.entities = append(c.entities, e)
	}
	return c
}

func (m *model) find(name string) *entity {
	for i := range m.entities {
		if m.entities[i].Name == name {
			return &m.entities[i]
		}
	}
	return nil
}

// step makes one random call and does the same to the model.
func (m *model) step(t *testing.T, rng *rand.Rand, cs *mcp.ClientSession) {
	t.Helper()
	name := func() string { return fmt.Sprint("n", rng.IntN(40)) }
	fact := func() string { return fmt.Sprint("o", rng.IntN(6)) }
	facts := func() []string {
		out := []string{}
		for range rng.IntN(4) {
			out = append(out, fact())
		}
		return out
	}
	some := 1 + rng.IntN(3)
	switch rng.IntN(12) {
	case 0, 1, 2:
		var in, added []entity
		for range some {
			in = append(in, entity{name(), "t", facts()})
		}
		for _, e := range in {
			if m.find(e.Name) == nil {
				added = append(added, e)
			}
		}
		m.entities = append(m.entities, added...)
		nativetest.Call(t, cs, "create_entities", map[string]any{"entities": in})
	case 3, 4, 5:
		var in, added []relation
		for range some {
			in = append(in, relation{name(), name(), fmt.Sprint("r", rng.IntN(3))})
		}
		for _, r := range in {
			if !slices.Contains(m.relations, r) {
				added = append(added, r)
			}
		}
		m.relations = append(m.relations, added...)
		nativetest.Call(t, cs, "create_relations", map[string]any{"relations": in})
	case 6, 7:
		next := m.clone()
		var in []map[string]any
		ok := true
		for range some {
			n, contents := name(), facts()
			in = append(in, dict("entityName", n, "contents", contents))
			e := next.find(n)
			if e == nil {
				ok = false
				break
			}
			had := slices.Clone(e.Observations)
			for _, o := range contents {
				if !slices.Contains(had, o) {
					e.Observations = append(e.Observations, o)
				}
			}
		}
		if res := nativetest.Call(t, cs, "add_observations", map[string]any{"observations": in}); res.IsError == ok {
			t.Fatalf("add_observations: %s", nativetest.Text(res))
		}
		if ok {
			*m = next
		}
	case 8:
		gone := []string{name()}
		m.entities = slices.DeleteFunc(m.entities, func(e entity) bool { return slices.Contains(gone, e.Name) })
		m.relations = slices.DeleteFunc(m.relations, func(r relation) bool { return slices.Contains(gone, r.From) || slices.Contains(gone, r.To) })
		nativetest.Call(t, cs, "delete_entities", map[string]any{"entityNames": gone})
	case 9, 10:
		var in []map[string]any
		for range some {
			n, gone := name(), facts()
			in = append(in, dict("entityName", n, "observations", gone))
			if e := m.find(n); e != nil {
				e.Observations = slices.DeleteFunc(e.Observations, func(o string) bool { return slices.Contains(gone, o) })
			}
		}
		nativetest.Call(t, cs, "delete_observations", map[string]any{"deletions": in})
	case 11:
		var gone []relation
		for range some {
			if len(m.relations) > 0 {
				gone = append(gone, m.relations[rng.IntN(len(m.relations))])
			}
		}
		gone = append(gone, relation{"not", "there", "r"})
		m.relations = slices.DeleteFunc(m.relations, func(r relation) bool { return slices.Contains(gone, r) })
		nativetest.Call(t, cs, "delete_relations", map[string]any{"relations": gone})
	}
}

// check compares a graph with the model, and its indexes with itself.
func (m model) check(t *testing.T, g *Graph) {
	t.Helper()
	var entities []entity
	for _, e := range seek(g.entities, 0) {
		entities = append(entities, entity{e.Name, e.Type, append([]string{}, e.Observations...)})
	}
	want := m.clone().entities
	for i := range want {
		want[i].Observations = append([]string{}, want[i].Observations...)
	}
	relations := slices.Collect(values(seek(g.relations, 0)))
	if !reflect.DeepEqual(entities, want) || !slices.Equal(relations, m.relations) {
		t.Fatalf("the graph is\n%v\n%v\nwant\n%v\n%v", entities, relations, want, m.relations)
	}
	// Built anew, it has the same indexes and the same size.
	d := newGraph().edit()
	for id, e := range seek(g.entities, 0) {
		d.next = id
		d.addEntity(e)
	}
	for id, r := range seek(g.relations, 0) {
		d.next = id
		d.addRelation(r)
	}
	d.next = g.next
	same(t, "rebuilt", &d.Graph, g)
}

// same checks that graphs are equal, numbers included.
func same(t *testing.T, what string, got, want *Graph) {
	t.Helper()
	type flat struct {
		Next      uint64
		Bytes     int64
		Entities  map[uint64]entity
		Relations map[uint64]relation
		Named, To []nameKey
		From      []relationKey
	}
	lay := func(g *Graph) flat {
		f := flat{Next: g.next, Bytes: g.bytes, Entities: map[uint64]entity{}, Relations: maps.Collect(seek(g.relations, 0))}
		for id, e := range seek(g.entities, 0) {
			f.Entities[id] = entity{e.Name, e.Type, append([]string{}, e.Observations...)}
		}
		for k := range seek(g.named, nameKey{}) {
			f.Named = append(f.Named, k)
		}
		for k := range seek(g.to, nameKey{}) {
			f.To = append(f.To, k)
		}
		for k := range seek(g.from, relationKey{}) {
			f.From = append(f.From, k)
		}
		return f
	}
	if a, b := lay(got), lay(want); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, a, b)
	}
}

// TestModel makes random calls to states that fork and are opened again,
// against a model of plain lists. Each is dumped and folded now and then.
func TestModel(t *testing.T) {
	for seed := range torture.Or[uint64](2, 8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			root := t.TempDir()
			store, err := layer.OpenStore(layer.Options{Dir: filepath.Join(root, "layers")})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { store.Close() }()
			dirs := []string{filepath.Join(root, "0")}
			models := []model{{}}
			bases := []*Graph{newGraph()}
			if err := store.Create(dirs[0], layer.Ref{}); err != nil {
				t.Fatal(err)
			}
			for range 60 {
				i := rng.IntN(len(dirs))
				h, err := layer.Open(store, dirs[i], Machine())
				if err != nil {
					t.Fatal(err)
				}
				s, err := New(nil, h)
				if err != nil {
					t.Fatal(err)
				}
				cs := nativetest.Connect(t, s, nativetest.Modern, nil)
				for range rng.IntN(12) {
					models[i].step(t, rng, cs)
				}
				cs.Close()
				g := h.Value()
				models[i].check(t, g)
				dumps(t, bases[i], g)
				dumps(t, newGraph(), g)
				if rng.IntN(3) == 0 && len(dirs) < 12 {
					ref, err := store.Seal(dirs[i])
					if err != nil {
						t.Fatal(err)
					}
					child := filepath.Join(root, fmt.Sprint(len(dirs)))
					if err := store.Create(child, ref); err != nil {
						t.Fatal(err)
					}
					if err := store.Release(ref); err != nil {
						t.Fatal(err)
					}
					bases[i] = g
					dirs, models, bases = append(dirs, child), append(models, models[i].clone()), append(bases, g)
				}
				h.Close()
				if rng.IntN(8) == 0 { // another process
					store.Close()
					if store, err = layer.OpenStore(layer.Options{Dir: filepath.Join(root, "layers")}); err != nil {
						t.Fatal(err)
					}
					if err := store.Recover(dirs, nil); err != nil {
						t.Fatal(err)
					}
					for i, dir := range dirs {
						h, err := layer.Open(store, dir, Machine())
						if err != nil {
							t.Fatal(err)
						}
						models[i].check(t, h.Value())
						bases[i] = newGraph() // a value of another process shares nothing
						h.Close()
					}
				}
			}
		})
	}
}

// dumps checks that a dump leads from base to g.
func dumps(t *testing.T, base, g *Graph) {
	t.Helper()
	at := base
	var written int64
	err := dump(base, g, func(meta []byte, body io.Reader, _ int64) error {
		if body != nil || !json.Valid(meta) {
			t.Errorf("change %s", meta)
		}
		written += int64(len(meta))
		next, err := apply(at, meta, layer.Extent{})
		at = next
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "dumped", at, g)
	if l := live(base, g); l == 0 && at.entities.Len() > base.entities.Len() {
		t.Errorf("%d bytes are dumped and none are live", written)
	}
}

// TestRewrite says the same over and over: the log does not keep it all.
func TestRewrite(t *testing.T) {
	store, dir := state(t)
	h := open(t, store, dir)
	do := func(c change) {
		t.Helper()
		if _, err := h.Commit(commit(func(*Graph) (*change, error) { return &c, nil })); err != nil {
			t.Fatal(err)
		}
	}
	do(change{Entities: []*entity{{"first", "t", []string{"o"}}}})
	if _, err := store.Seal(dir); err != nil {
		t.Fatal(err)
	}
	do(change{Entities: []*entity{{"second", "t", []string{}}}})
	blob := []string{fmt.Sprintf("%01000000d", 1)}
	var most int64
	for i := range 30 {
		name := []string{"first", "second"}[i%2]
		do(change{Added: []observed{{name, blob}}})
		do(change{Removed: []observed{{name, blob}}})
		n, err := store.StateSize(dir)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if most > 30<<20 {
		t.Errorf("the log has grown to %d bytes", most)
	}
	do(change{Added: []observed{{"second", []string{"end"}}}})
	want := model{entities: []entity{{"first", "t", []string{"o"}}, {"second", "t", []string{"end"}}}}
	want.check(t, h.Value())
	h.Close()
	want.check(t, open(t, store, dir).Value())
}

func TestApplyTrustsNothing(t *testing.T) {
	g := newGraph()
	for _, bad := range []string{``, `{`, `[]`, `{"+e":[null]}`, `{"+e":5}`, `{"+o":[{"n":"nobody","o":["x"]}]}`, `{"-o":[{"n":"nobody","o":["x"]}]}`,
		`{"at":18446744073709551615,"+e":[{"name":"a"},{"name":"b"}]}`, `{"at":-1}`} {
		if _, err := apply(g, []byte(bad), layer.Extent{}); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	g, err := apply(g, []byte(`{"at":7,"+e":[{"name":"a","entityType":"t","observations":[]}]}`), layer.Extent{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := apply(g, []byte(`{"at":7,"+r":[{}]}`), layer.Extent{}); err == nil {
		t.Error("a number is given twice")
	}
}
