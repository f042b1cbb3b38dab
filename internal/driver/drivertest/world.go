package drivertest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// StateVar names, in the environment of the suite's server, the directory of what
// it remembers.
const StateVar = "DRIVERTEST_STATE"

// world is a folder of states and snapshots, and their keeper.
type world struct {
	*Suite
	d   driver.Driver
	k   driver.Keeper
	dir string
}

func (s *Suite) world(t testing.TB) *world {
	t.Helper()
	d := s.New(0)
	k, ok := d.(driver.Keeper)
	if !ok {
		t.Skip("the driver keeps no state")
	}
	if s.Stateful == nil {
		t.Fatal("the driver keeps state, and the suite has no Stateful to test it with")
	}
	return &world{Suite: s, d: d, k: k, dir: t.TempDir()}
}

// member is a state with an instance on it, or none.
type member struct {
	w    *world
	spec driver.Spec
	inst driver.Instance
	p    *Peer
}

// spec is that of an instance on a state.
func (w *world) spec(t testing.TB, name string) driver.Spec {
	t.Helper()
	return w.Stateful(t, w.Program(t), filepath.Join(w.dir, name))
}

// seed makes a state.
func (w *world) seed(t testing.TB, name string, src driver.Source) *member {
	t.Helper()
	m := &member{w: w, spec: w.spec(t, name)}
	if err := w.k.Seed(ctx(t), m.spec, src); err != nil {
		t.Fatalf("seed %s: %v", name, err)
	}
	return m
}

// open makes a state and starts an instance on it.
func (w *world) open(t testing.TB, name string, src driver.Source) *member {
	t.Helper()
	m := w.seed(t, name, src)
	m.start(t)
	return m
}

func (m *member) start(t testing.TB) {
	t.Helper()
	m.spec = m.w.Stateful(t, m.w.Program(t), m.spec.State)
	m.inst = m.w.StartSpec(t, m.w.d, m.spec)
	m.p = Dial(t, m.inst)
}

func (m *member) stop(t testing.TB) {
	t.Helper()
	m.w.Stop(t, m.inst)
	m.inst, m.p = nil, nil
}

// close stops the instance and erases the state.
func (m *member) close(t testing.TB) {
	t.Helper()
	if m.inst != nil {
		m.stop(t)
	}
	if err := m.w.k.Erase(ctx(t), m.spec); err != nil {
		t.Fatalf("erase: %v", err)
	}
	Absent(t, m.spec.State)
}

// freeze holds the instance and takes its state down.
func (m *member) freeze(t testing.TB, name string) driver.Snapshot {
	t.Helper()
	if m.inst != nil {
		defer hold(t, m.inst)()
	}
	snap, err := m.w.k.Freeze(ctx(t), m.spec, m.inst, filepath.Join(m.w.dir, name))
	if err != nil {
		t.Fatalf("freeze: %v", err)
	}
	return greeted(snap)
}

// greeted adds to a snapshot of memory what its server said in its handshake, as the
// session does.
func greeted(snap driver.Snapshot) driver.Snapshot {
	if snap.Carries == driver.CarryMemory && snap.Hello == nil {
		snap.Hello = []byte(`{"version":"2025-11-25"}`)
	}
	return snap
}

func (m *member) put(t testing.TB, key, value string) {
	t.Helper()
	if err := m.w.put(ctx(t), m.p, key, value); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

// knows looks that a member has these values and, where one is empty, none.
func (m *member) knows(t testing.TB, want map[string]string) {
	t.Helper()
	for key, value := range want {
		got, err := m.w.get(ctx(t), m.p, key)
		if err != nil || got != value {
			t.Errorf("%s: %q is %q, %v, want %q", filepath.Base(m.spec.State), key, got, err, value)
		}
	}
}

func (w *world) discard(t testing.TB, snap driver.Snapshot) {
	t.Helper()
	if err := w.k.Discard(ctx(t), snap); err != nil {
		t.Fatalf("discard: %v", err)
	}
	if snap.Dir != "" {
		Absent(t, snap.Dir)
	}
}

func (s *Suite) put(c context.Context, p *Peer, key, value string) error {
	if s.Put != nil {
		return s.Put(c, p, key, value)
	}
	got, err := p.TryCall(c, "remember", map[string]any{"key": key, "value": value})
	if err == nil && got != "ok" {
		err = errors.New(got)
	}
	return err
}

func (s *Suite) get(c context.Context, p *Peer, key string) (string, error) {
	if s.Get != nil {
		return s.Get(c, p, key)
	}
	got, err := p.TryCall(c, "recall", map[string]any{"key": key})
	if err != nil || got == "" {
		return "", err
	}
	value, ok := strings.CutPrefix(got, "+")
	if !ok {
		return "", fmt.Errorf("recall said %q", got)
	}
	return value, nil
}
