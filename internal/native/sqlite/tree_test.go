package sqlite

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/tine-mcp/tine/internal/layer"
)

// places returns extents that differ from each other.
func places(t *testing.T, n int) []layer.Extent {
	t.Helper()
	var at layer.Extent
	w := newWorld(t)
	w.create("x", layer.Ref{})
	h, err := layer.Open(w.store, w.state("x"), &layer.Machine[int]{Apply: func(v int, _ []byte, body layer.Extent) (int, error) {
		at = body
		return v, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if _, err := h.Commit(func(int) ([]byte, io.Reader, int64, error) {
		return []byte{0}, bytes.NewReader(make([]byte, n)), int64(n), nil
	}); err != nil {
		t.Fatal(err)
	}
	out := make([]layer.Extent, n)
	for i := range out {
		out[i] = at.Sub(int64(i), 1)
	}
	return out
}

func TestTreeAgainstMap(t *testing.T) {
	type version struct {
		tree tree
		want map[uint64]layer.Extent
	}
	all := places(t, 4000)
	rnd := rand.New(rand.NewPCG(1, 2))
	index := func() uint64 { return rnd.Uint64N(1 << (1 + rnd.UintN(17))) }
	versions := []version{{want: map[uint64]layer.Extent{}}}
	for range 300 {
		from := versions[rnd.IntN(len(versions))]
		next := version{tree: from.tree, want: map[uint64]layer.Extent{}}
		for k, v := range from.want {
			next.want[k] = v
		}
		e := &edit{}
		for range rnd.IntN(20) {
			if rnd.IntN(6) == 0 {
				size := index()
				next.tree = next.tree.cut(e, size)
				for k := range next.want {
					if k >= size {
						delete(next.want, k)
					}
				}
				continue
			}
			i, x := index(), all[rnd.IntN(len(all))]
			next.tree = next.tree.set(e, i, x)
			next.want[i] = x
		}
		versions = append(versions, next)
	}
	check := func(v version) {
		for k, x := range v.want {
			if v.tree.get(k) != x {
				t.Fatalf("at %d: %v, want %v", k, v.tree.get(k), x)
			}
		}
		for range 100 {
			if i := index(); v.tree.get(i) != v.want[i] {
				t.Fatalf("at %d: %v, want %v", i, v.tree.get(i), v.want[i])
			}
		}
	}
	for i, v := range versions {
		check(v)
		base := versions[rnd.IntN(len(versions))]
		got, last := map[uint64]layer.Extent{}, int64(-1)
		v.tree.diff(base.tree, func(k uint64, x layer.Extent) {
			if int64(k) <= last {
				t.Fatalf("version %d: %d after %d", i, k, last)
			}
			last = int64(k)
			got[k] = x
		})
		for k, x := range got {
			if base.want[k] == x || v.want[k] != x {
				t.Fatalf("version %d: diff has %v at %d, base %v, own %v", i, x, k, base.want[k], v.want[k])
			}
		}
		for k, x := range v.want {
			if base.want[k] != x && got[k] != x {
				t.Fatalf("version %d: diff lacks %d", i, k)
			}
		}
		for k := range base.want {
			if _, ok := got[k]; !ok && v.want[k] != base.want[k] {
				t.Fatalf("version %d: diff lacks %d, which is gone", i, k)
			}
		}
	}
}

// TestDiffSkipsWhatIsShared: a change of a large database is found without a walk
// over all of it.
func TestDiffSkipsWhatIsShared(t *testing.T) {
	all := places(t, 2)
	var base tree
	e := &edit{}
	for i := range uint64(300_000) {
		base = base.set(e, i, all[0])
	}
	next := base.set(&edit{}, 123_456, all[1])
	allocs := testing.AllocsPerRun(10, func() {
		n := 0
		next.diff(base, func(i uint64, _ layer.Extent) {
			if n++; i != 123_456 {
				t.Errorf("differs at %d", i)
			}
		})
		if n != 1 {
			t.Errorf("%d differences", n)
		}
	})
	if allocs > 5 {
		t.Errorf("%v allocations", allocs)
	}
	if got := base.get(123_456); got != all[0] {
		t.Error("the base has changed")
	}
}

func FuzzChange(f *testing.F) {
	c := change{pageSize: 4096, pages: 10}
	c.add(0)
	c.add(1)
	c.add(7)
	f.Add(c.encode(), int64(3*4096))
	f.Add([]byte{1, 0x80, 0x20, 5, 0, 200}, int64(1<<40))
	f.Fuzz(func(t *testing.T, meta []byte, body int64) {
		if body < 0 {
			return
		}
		c, err := decodeChange(meta, body)
		if err != nil {
			return
		}
		again, err := decodeChange(c.encode(), body)
		if err != nil || !bytes.Equal(again.encode(), c.encode()) {
			t.Fatalf("%+v is %+v after a round: %v", c, again, err)
		}
		for _, r := range c.runs {
			if r.first+r.count > c.pages {
				t.Fatalf("%+v lies outside of %d pages", r, c.pages)
			}
		}
	})
}

func TestDamagedChanges(t *testing.T) {
	for _, meta := range [][]byte{nil, {}, {9}, {1}, {1, 0x80, 0x20}, {1, 3, 1}, {1, 0x80, 0x20, 1, 0, 2}, {1, 0x80, 0x20, 2, 0, 1, 0}, {1, 0x80, 0x20, 2, 5, 1}, {1, 0x80, 0x20, 2, 0, 0}} {
		if c, err := decodeChange(meta, 4096); err == nil {
			t.Errorf("%v is read as %+v", meta, c)
		}
	}
}
