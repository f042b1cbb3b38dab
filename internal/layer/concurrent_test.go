package layer

import (
	"fmt"
	"github.com/tine-mcp/tine/internal/torture"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestManyHeadsFewFiles(t *testing.T) {
	w := newWorld(t)
	w.files.max = 4
	var open, most atomic.Int64
	osOpen := w.files.open
	w.files.open = func(path string, flag int) (handle, error) {
		f, err := osOpen(path, flag)
		if err != nil {
			return nil, err
		}
		for n := open.Add(1); ; {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		return counted{f, &open}, nil
	}
	w.create("root", Ref{})
	must(t, put(w.open("root"), "x", strings.Repeat("r", 1000)))
	ref := w.seal("root")
	heads := torture.Or(100, 300)
	var wg sync.WaitGroup
	for i := range heads {
		wg.Go(func() {
			for round := range 2 {
				name := fmt.Sprintf("%d-%d", i, round)
				if err := live(w.Store, w.dir(name), ref); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > 4 {
		t.Errorf("%d files were open at once", most.Load())
	}
	must(t, w.Remove(w.dir("root")))
	must(t, w.Release(ref))
	w.expectFiles(0)
	must(t, w.Close())
	if open.Load() != 0 {
		t.Errorf("%d files were left open", open.Load())
	}
}

type counted struct {
	handle
	open *atomic.Int64
}

func (c counted) Close() error {
	c.open.Add(-1)
	return c.handle.Close()
}

// live is the life of a state: made, changed, copied within itself, sealed while
// it is changed, removed while it is read.
func live(s *Store, dir string, from Ref) error {
	if err := s.Create(dir, from); err != nil {
		return err
	}
	h, err := Open(s, dir, dictMachine())
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, 3)
	wg.Go(func() {
		for i := range 20 {
			_, errs[0] = h.Commit(func(v dict) ([]byte, io.Reader, int64, error) {
				e, _ := v.Get("x")
				return []byte("+" + strconv.Itoa(i)), e.Reader(), e.Size(), nil
			})
			if errs[0] != nil {
				return
			}
		}
	})
	wg.Go(func() {
		for range 5 {
			ref, err := s.Seal(dir)
			if err == nil {
				err = s.Release(ref)
			}
			if err != nil {
				errs[1] = err
				return
			}
		}
	})
	wg.Go(func() {
		for range 20 {
			for it := h.Value().Iterator(); !it.Done(); {
				key, e, _ := it.Next()
				b, err := io.ReadAll(e.Reader())
				if err != nil || string(b) != strings.Repeat("r", 1000) {
					errs[2] = fmt.Errorf("%s reads %.20q, %w", key, b, err)
					return
				}
			}
		}
	})
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if n := h.Value().Len(); n != 21 {
		return fmt.Errorf("%d keys", n)
	}
	return s.Remove(dir)
}

func TestSiblingsFoldOnce(t *testing.T) {
	w := newWorld(t)
	w.create("base", Ref{})
	h := w.open("base")
	for i := range 10 {
		must(t, put(h, strconv.Itoa(i), "x"))
		must(t, w.Release(w.seal("base")))
	}
	ref := w.seal("base")
	var names []string
	for i := range 100 {
		name := strconv.Itoa(i)
		names = append(names, name)
		w.create(name, ref)
		must(t, put(w.open(name), "own", name))
		if i%2 == 0 {
			must(t, w.Release(w.seal(name)))
		}
	}
	must(t, w.Remove(w.dir("base")))
	must(t, w.Release(ref))
	w.restart(names)

	var applied atomic.Int64
	m := dictMachine()
	apply := m.Apply
	m.Apply = func(v dict, meta []byte, body Extent) (dict, error) {
		applied.Add(1)
		return apply(v, meta, body)
	}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			h, err := Open(w.Store, w.dir(name), m)
			if err != nil || h.Value().Len() != 11 {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if n := applied.Load(); n != 10+100 {
		t.Errorf("%d changes were applied, want each once: 110", n)
	}
}

func TestForkSharesTheValue(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	a := w.open("a")
	must(t, put(a, "x", "1"))
	ref := w.seal("a")
	w.create("b", ref)
	if b := w.open("b"); b.Value() != a.Value() {
		t.Error("the fork folded for itself")
	}
	w.create("c", ref)
	_, err := Open(w.Store, w.dir("c"), &Machine[int]{Apply: func(int, []byte, Extent) (int, error) { return 0, nil }})
	wantError(t, err, "another kind", ref.ID)
	w.open("c")
}

func TestValuesOfInnerLayersAreLetGo(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	for i := range 50 {
		must(t, put(h, "x", strconv.Itoa(i)))
		must(t, w.Release(w.seal("a")))
	}
	kept := 0
	for _, l := range w.layers {
		if l.fold.trail.Load() != nil {
			kept++
		}
	}
	if kept > 1 {
		t.Errorf("%d of %d layers keep a value that no caller can ask for", kept, len(w.layers))
	}
	// An unchanged state gives its value to the next fork again.
	ref := w.seal("a")
	w.create("b", ref)
	if w.open("b").Value() != h.Value() {
		t.Error("the fork folded for itself")
	}
}
