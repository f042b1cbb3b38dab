package drivertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func (s *Suite) testRestart(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	if carries, _ := w.k.Carries(m.spec); carries == driver.CarryNone {
		t.Error("a fork carries nothing of a server that remembers")
	}
	m.knows(t, map[string]string{"k": ""})
	m.put(t, "k", "first")
	for n := range 3 {
		m.stop(t)
		m.start(t)
		m.knows(t, map[string]string{"k": "first", fmt.Sprint("k", n-1): more(n > 0, "more")})
		m.put(t, fmt.Sprint("k", n), "more")
	}
	m.close(t)
}

// more is a value that is there under a condition.
func more(is bool, value string) string {
	if is {
		return value
	}
	return ""
}

func (s *Suite) testStateAfterCrash(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	m.put(t, "k", "v")
	if _, err := m.p.TryCall(ctx(t), "exit", map[string]any{"code": 1}); err == nil {
		t.Error("a call to exit was answered")
	}
	Ended(t, m.inst)
	m.stop(t)
	m.start(t)
	m.knows(t, map[string]string{"k": "v"})
	m.close(t)
}

func (s *Suite) testAdoptState(t *testing.T) {
	w := s.world(t)
	s.adopter(t)
	m := w.seed(t, "a", driver.Source{})
	for _, held := range []bool{false, true} {
		m.spec = w.spec(t, "a")
		key := fmt.Sprint("held ", held)
		inst, err := w.d.Adopt(ctx(t), s.orphan(t, order{Spec: m.spec, Key: key, Value: "before", Held: held}), nil)
		if err != nil {
			t.Fatalf("adopt: %v", err)
		}
		t.Cleanup(func() { inst.Stop(context.Background()) })
		if err := w.k.Recover(ctx(t), []string{m.spec.State}, nil, true); err != nil {
			t.Errorf("recover: %v", err)
		}
		m.inst, m.p = inst, Dial(t, inst)
		m.knows(t, map[string]string{key: "before"})
		m.put(t, "after", key)
		// What was adopted is forked like any other.
		snap := m.freeze(t, "snap")
		child := w.open(t, "child", driver.Source{From: &snap, Take: true})
		child.knows(t, map[string]string{key: "before", "after": key})
		child.close(t)
		w.discard(t, snap)
		m.stop(t)
	}
	m.close(t)
}

func (s *Suite) testIsolation(t *testing.T) {
	w := s.world(t)
	parent := w.open(t, "parent", driver.Source{})
	parent.put(t, "k", "of the parent")
	parent.put(t, "large", strings.Repeat("l", 300_000))
	snap := parent.freeze(t, "snap")
	if snap.Driver != w.d.Info().Name || snap.Carries == driver.CarryNone || snap.Size < 0 {
		t.Errorf("snapshot %+v", snap)
	}
	parent.put(t, "k", "changed since")
	parent.put(t, "new", "since")
	first := w.open(t, "first", driver.Source{From: &snap})
	second := w.open(t, "second", driver.Source{From: &snap})
	for _, child := range []*member{first, second} {
		child.knows(t, map[string]string{"k": "of the parent", "new": "", "large": strings.Repeat("l", 300_000)})
	}
	first.put(t, "k", "of the first")
	first.put(t, "mine", "first")
	second.put(t, "k", "of the second")
	second.put(t, "large", "short")
	parent.knows(t, map[string]string{"k": "changed since", "new": "since", "mine": "", "large": strings.Repeat("l", 300_000)})
	first.knows(t, map[string]string{"k": "of the first", "new": "", "mine": "first", "large": strings.Repeat("l", 300_000)})
	second.knows(t, map[string]string{"k": "of the second", "new": "", "mine": "", "large": "short"})

	// None needs the others, or the snapshot.
	w.discard(t, snap)
	parent.close(t)
	first.stop(t)
	first.start(t)
	first.knows(t, map[string]string{"k": "of the first", "mine": "first"})
	first.close(t)
	second.knows(t, map[string]string{"k": "of the second", "large": "short"})
	second.close(t)
	Empty(t, w.dir)
}

func (s *Suite) testForksOfForks(t *testing.T) {
	w := s.world(t)
	depth := s.times(5, 3)
	line := []*member{w.open(t, "f0", driver.Source{})}
	for n := range depth {
		last := line[n]
		last.put(t, fmt.Sprint("k", n), fmt.Sprint("v", n))
		last.put(t, "all", fmt.Sprint("until ", n))
		snap := last.freeze(t, fmt.Sprint("snap", n))
		line = append(line, w.open(t, fmt.Sprint("f", n+1), driver.Source{From: &snap, Take: n%2 == 1}))
		w.discard(t, snap)
		last.put(t, fmt.Sprint("own", n), "o")
	}
	for n, m := range line {
		want := map[string]string{"all": more(n > 0, fmt.Sprint("until ", n-1))}
		if n < depth {
			want["all"] = fmt.Sprint("until ", n)
		}
		for i := range depth {
			want[fmt.Sprint("k", i)] = more(i <= n, fmt.Sprint("v", i))
			want[fmt.Sprint("own", i)] = more(i == n, "o")
		}
		m.knows(t, want)
	}
	for _, m := range line { // the oldest first
		m.close(t)
	}
	Empty(t, w.dir)
}

func (s *Suite) testManyChildren(t *testing.T) {
	children := s.times(20, 3)
	for _, take := range []bool{false, true} {
		t.Run(fmt.Sprint("take=", take), func(t *testing.T) {
			w := s.world(t)
			parent := w.open(t, "parent", driver.Source{})
			parent.put(t, "k", "shared")
			snap := parent.freeze(t, "snap")
			specs := make([]driver.Spec, children)
			for n := range children {
				specs[n] = w.spec(t, fmt.Sprint("child", n))
			}
			grow := func(n int, src driver.Source) error {
				c := ctx(t)
				if err := w.k.Seed(c, specs[n], src); err != nil {
					return fmt.Errorf("seed: %w", err)
				}
				inst, err := w.d.Start(c, specs[n])
				if err != nil {
					return fmt.Errorf("start: %w", err)
				}
				defer inst.Stop(context.Background())
				link, err := inst.Dial(c)
				if err != nil {
					return fmt.Errorf("dial: %w", err)
				}
				p := NewPeer(inst, link)
				if err := p.shakeHands(c); err != nil {
					return fmt.Errorf("initialize: %w", err)
				}
				if got, err := w.get(c, p, "k"); err != nil || got != "shared" {
					return fmt.Errorf("got %q, %w", got, err)
				}
				return w.put(c, p, "k", fmt.Sprint("of ", n))
			}
			last := children
			if take {
				last--
			}
			var wg sync.WaitGroup
			for n := range last {
				wg.Go(func() {
					if err := grow(n, driver.Source{From: &snap}); err != nil {
						t.Errorf("child %d: %v", n, err)
					}
				})
			}
			wg.Wait()
			if take {
				if err := grow(last, driver.Source{From: &snap, Take: true}); err != nil {
					t.Errorf("the last child: %v", err)
				}
			}
			w.discard(t, snap)
			parent.knows(t, map[string]string{"k": "shared"})
			parent.close(t)
			for n, spec := range specs {
				m := &member{w: w, spec: spec}
				m.start(t)
				m.knows(t, map[string]string{"k": fmt.Sprint("of ", n)})
				m.close(t)
			}
			Empty(t, w.dir)
		})
	}
}
