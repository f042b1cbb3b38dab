package layer

import (
	"fmt"
	"github.com/tine-mcp/tine/internal/torture"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestModel does everything at random to a family of states, with a plain map
// beside each state and each reference. Layers are merged at every opportunity.
func TestModel(t *testing.T) {
	runs, steps := torture.Or(6, 20), torture.Or(1000, 1500)
	for run := range runs {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("%d seed=%d", run, seed), func(t *testing.T) {
			m := &model{t: t, w: newWorld(t), rnd: rand.New(rand.NewPCG(seed, 0)), states: map[string]*modelState{}}
			m.limits()
			m.w.create("first", Ref{})
			m.states["first"] = &modelState{want: map[string]string{}}
			for range steps {
				m.step()
			}
			m.end()
		})
	}
}

type model struct {
	t      *testing.T
	w      *world
	rnd    *rand.Rand
	states map[string]*modelState
	refs   []modelRef
	old    []modelValue
	names  int
}

type modelState struct {
	h    *Head[dict] // nil: not open
	want map[string]string
}

type modelRef struct {
	ref  Ref
	want map[string]string
}

// modelValue is a value that a caller keeps, of a state that lives.
type modelValue struct {
	state string
	value dict
	want  map[string]string
}

func (m *model) limits() {
	m.w.rewriteFrom, m.w.mergeFrom = 1<<10, 2
}

func (m *model) pick() (string, *modelState) {
	names := slices.Sorted(maps.Keys(m.states))
	name := names[m.rnd.IntN(len(names))]
	return name, m.states[name]
}

func (m *model) head(name string) *Head[dict] {
	m.t.Helper()
	s := m.states[name]
	if s.h == nil {
		s.h = m.w.open(name)
		expect(m.t, s.h, s.want)
	}
	return s.h
}

func (m *model) step() {
	m.t.Helper()
	name, s := m.pick()
	switch act := m.rnd.IntN(200); {
	case act < 90:
		h := m.head(name)
		key := fmt.Sprintf("k%d", m.rnd.IntN(12))
		if m.rnd.IntN(5) == 0 {
			must(m.t, drop(h, key))
			s.want = maps.Clone(s.want)
			delete(s.want, key)
			break
		}
		size := m.rnd.IntN(50)
		if m.rnd.IntN(10) == 0 {
			size = m.rnd.IntN(5000)
		}
		value := fmt.Sprint(m.rnd.Uint32()) + strings.Repeat("v", size)
		must(m.t, put(h, key, value))
		s.want = with(s.want, key, value)
	case act < 120: // nothing stays of it
		must(m.t, m.w.Release(m.w.seal(name)))
	case act < 145: // a ring
		m.refs = append(m.refs, modelRef{m.w.seal(name), s.want})
		if len(m.refs) > 6 {
			m.release(0)
		}
	case act < 150 && len(m.refs) > 0:
		m.release(m.rnd.IntN(len(m.refs)))
	case act < 160 && len(m.states) < 8:
		ref := m.w.seal(name)
		m.create(ref, s.want)
		must(m.t, m.w.Release(ref))
	case act < 166 && len(m.states) < 8 && len(m.refs) > 0:
		r := m.refs[m.rnd.IntN(len(m.refs))]
		m.create(r.ref, r.want)
	case act < 178 && len(m.states) > 1:
		must(m.t, m.w.Remove(m.w.dir(name)))
		delete(m.states, name)
		m.old = slices.DeleteFunc(m.old, func(v modelValue) bool { return v.state == name })
	case act < 184:
		if s.h != nil {
			must(m.t, s.h.Close())
			s.h = nil
		}
	case act < 188 && len(m.old) < 10:
		m.old = append(m.old, modelValue{name, m.head(name).Value(), s.want})
	case act < 192 && len(m.old) > 0:
		i := m.rnd.IntN(len(m.old))
		if got := contents(m.t, m.old[i].value); !maps.Equal(got, m.old[i].want) {
			m.t.Fatalf("an old value of %s is %.300v, want %.300v", m.old[i].state, got, m.old[i].want)
		}
		m.old = slices.Delete(m.old, i, i+1)
	case act < 198:
		expect(m.t, m.head(name), s.want)
	case m.rnd.IntN(5) == 0:
		m.restart()
	}
}

func (m *model) create(ref Ref, want map[string]string) {
	m.t.Helper()
	m.names++
	name := fmt.Sprintf("s%d", m.names)
	m.w.create(name, ref)
	m.states[name] = &modelState{want: want}
}

func (m *model) release(i int) {
	m.t.Helper()
	must(m.t, m.w.Release(m.refs[i].ref))
	m.refs = slices.Delete(m.refs, i, i+1)
}

func (m *model) restart() {
	m.t.Helper()
	var refs []Ref
	for _, r := range m.refs {
		refs = append(refs, r.ref)
	}
	m.old = nil
	m.w.restart(slices.Sorted(maps.Keys(m.states)), refs...)
	m.limits()
	if b := m.w.Broken(); len(b) > 0 {
		m.t.Fatalf("broken: %v", b)
	}
	used := map[string]bool{}
	for name, s := range m.states {
		s.h = nil
		if own := m.w.own(name); own.end > 0 {
			used[own.id] = true
		}
		for _, l := range m.w.own(name).parent.chain() {
			used[l.id] = true
		}
	}
	for _, r := range m.refs {
		for _, l := range m.w.layers[r.ref.ID].chain() {
			used[l.id] = true
		}
	}
	m.w.expectFiles(len(used))
}

// end looks at all of it, and then removes it.
func (m *model) end() {
	m.t.Helper()
	for _, v := range m.old {
		if got := contents(m.t, v.value); !maps.Equal(got, v.want) {
			m.t.Fatalf("an old value is %.300v, want %.300v", got, v.want)
		}
	}
	m.restart()
	for name, s := range m.states {
		expect(m.t, m.head(name), s.want)
		must(m.t, m.w.Remove(m.w.dir(name)))
	}
	for len(m.refs) > 0 {
		m.w.create("look", m.refs[0].ref)
		expect(m.t, m.w.open("look"), m.refs[0].want)
		must(m.t, m.w.Remove(m.w.dir("look")))
		m.release(0)
	}
	m.w.expectFiles(0)
}
