//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// shelved is a server with a directory of its own, and slots.
type shelved struct {
	*testing.T
	b     *bench
	d     *Driver
	dir   string
	slots int
}

func newShelved(t *testing.T, slots int) *shelved {
	b := newBench(t)
	return &shelved{T: t, b: b, d: b.driver(Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}), dir: t.TempDir(), slots: slots}
}

func (s *shelved) spec(name string) driver.Spec {
	spec := s.b.spec(s.T, builder.Program(s.T))
	spec.Session, spec.State, spec.Dirs = name, filepath.Join(s.dir, name), []driver.StateDir{{Name: "data"}}
	spec.Env = map[string]string{drivertest.StateVar: "${state.data}"}
	options(spec).Slots = s.slots
	return spec
}

// boxMember is one that was started on a state of its own.
type boxMember struct {
	spec driver.Spec
	inst *instance
	p    *drivertest.Peer
}

// begin makes a state and starts the server on it.
func (s *shelved) begin(name string, from *driver.Snapshot) *boxMember {
	s.Helper()
	spec := s.spec(name)
	if err := s.d.Seed(s.Context(), spec, driver.Source{From: from}); err != nil {
		s.Fatal(err)
	}
	inst := builder.StartSpec(s.T, s.d, spec)
	m := &boxMember{spec: spec, inst: inst.(*instance)}
	if from == nil {
		m.p = drivertest.Dial(s.T, inst)
		return m
	}
	link, err := inst.Dial(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	m.p = drivertest.NewPeer(inst, link)
	return m
}

func (s *shelved) freeze(m *boxMember, name string) *driver.Snapshot {
	s.Helper()
	release, err := m.inst.Hold(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	defer release()
	snap, err := s.d.Freeze(s.Context(), m.spec, m.inst, filepath.Join(s.dir, name))
	if err != nil {
		s.Fatal(err)
	}
	snap.Hello = greetingText
	return &snap
}

func (s *shelved) put(m *boxMember, key, value string) {
	s.Helper()
	if got := m.p.Call(s.T, "remember", map[string]any{"key": key, "value": value}); got != "ok" {
		s.Fatalf("%s can't remember %s: %s", m.spec.Session, key, got)
	}
	reads(s.T, dirsOf(m.spec.State, "data", key), value)
}

func (s *shelved) knows(m *boxMember, key, want string) {
	s.Helper()
	if got := m.p.Call(s.T, "recall", map[string]any{"key": key}); got != want {
		s.Errorf("%s: %s is %q, want %q", m.spec.Session, key, got, want)
	}
}

// ahead waits until so many slots are there, none of which takes any of a CPU, and
// returns their names.
func (s *shelved) ahead(n int) []string {
	s.Helper()
	var names []string
	settles(s.T, fmt.Sprint(n), func() string {
		names = nil
		s.d.pool.mu.Lock()
		defer s.d.pool.mu.Unlock()
		for _, shelf := range s.d.pool.shelves {
			for _, m := range shelf.have {
				if m.rec.ID.Stands() {
					names = append(names, m.rec.Sandbox)
				}
			}
		}
		return fmt.Sprint(len(names))
	})
	return names
}

// shown is what the helpers show to sandboxes that are not whole yet.
func (s *shelved) shown() []string {
	s.Helper()
	entries, err := os.ReadDir(s.d.mountsDir())
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A slot that was made before its instance was known sees the directories of that
// instance, and of no other.
func TestForkOnSlots(t *testing.T) {
	s := newShelved(t, 1)
	a := s.begin("a", nil)
	s.put(a, "word", "of a")
	slot := s.ahead(1)
	if got := s.shown(); !slices.Equal(got, slot) {
		t.Errorf("%q are shown, want %q", got, slot)
	}
	snap := s.freeze(a, "snap")
	b := s.begin("b", snap)
	if b.inst.rec.Sandbox != slot[0] {
		t.Errorf("it is %s and not %s, which was there", b.inst.rec.Sandbox, slot[0])
	}
	s.knows(b, "word", "+of a")
	s.put(b, "word", "of b")
	s.put(b, "more", "of b")
	s.knows(a, "word", "+of a")
	s.knows(a, "more", "")

	// An instance that begins anew, and one that goes on from an instance on a slot.
	s.ahead(1)
	c := s.begin("c", nil)
	s.knows(c, "word", "")
	s.put(c, "word", "of c")
	s.ahead(1)
	e := s.begin("e", s.freeze(b, "snap2"))
	s.knows(e, "word", "+of b")
	s.knows(e, "more", "+of b")
	s.put(e, "word", "of e")
	for m, want := range map[*boxMember]string{a: "+of a", b: "+of b", c: "+of c"} {
		s.knows(m, "word", want)
	}
	// Its owner on the host is the owner of the state.
	for _, m := range []*boxMember{a, b} {
		var st unix.Stat_t
		if err := unix.Stat(dirsOf(m.spec.State, "data", "word"), &st); err != nil || int(st.Uid) != os.Geteuid() {
			t.Errorf("what %s wrote is of %d: %v", m.spec.Session, st.Uid, err)
		}
	}
	// And it is there for the next instance on the state.
	builder.Stop(t, b.inst)
	if err := s.d.took(b.spec.State); err != nil {
		t.Fatal(err)
	}
	b.spec.Dir = filepath.Join(t.TempDir(), "again")
	b.inst = builder.StartSpec(t, s.d, b.spec).(*instance)
	b.p = drivertest.Dial(t, b.inst)
	s.knows(b, "word", "+of b")
}

// A directory of the host that is another one by now is not what the slot was made
// with.
func TestForkOnSlotsOfHostDirectories(t *testing.T) {
	s := newShelved(t, 1)
	host := filepath.Join(s.dir, "host")
	spec := func(name string) driver.Spec {
		spec := s.b.spec(t, builder.Program(t))
		spec.Session, spec.Env = name, map[string]string{drivertest.StateVar: host}
		options(spec).Slots, options(spec).AllowWrite = 1, []string{host}
		return spec
	}
	start := func(name string) *boxMember {
		m := &boxMember{spec: spec(name)}
		m.inst = builder.StartSpec(t, s.d, m.spec).(*instance)
		m.p = drivertest.Dial(t, m.inst)
		return m
	}
	put(t, filepath.Join(host, "word"), "old")
	s.knows(start("a"), "word", "+old")
	slot := s.ahead(1)
	if err := os.Rename(host, host+".old"); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(host, "word"), "new")
	b := start("b")
	if b.inst.rec.Sandbox != slot[0] {
		t.Errorf("it is %s and not %s, which was there", b.inst.rec.Sandbox, slot[0])
	}
	s.knows(b, "word", "+new")
}

// What can't be given its directories is never used.
func TestForkOnSlotsThatAreSpoilt(t *testing.T) {
	for name, spoil := range map[string]func(s *shelved, m *making){
		"its helper is gone": func(s *shelved, m *making) {
			m.help.run.Kill()
			<-m.help.done
		},
		"its root is gone": func(s *shelved, m *making) {
			root := control.Root{Dir: filepath.Join(s.d.mountsDir(), m.rec.Sandbox)}
			if _, _, err := m.help.call(s.Context(), control.Request{Op: control.OpDrop, Root: &root}); err != nil {
				s.Fatal(err)
			}
		},
		"nothing reaches it": func(s *shelved, m *making) {
			root := m.plan.openRoot(s.d, m.rec.Sandbox)
			if _, _, err := m.help.call(s.Context(), control.Request{Op: control.OpDrop, Root: &root}); err != nil {
				s.Fatal(err)
			}
			if _, _, err := m.help.call(s.Context(), control.Request{Op: control.OpRoot, Root: &root}); err != nil {
				s.Fatal(err)
			}
		},
		"its gofer is gone": func(s *shelved, m *making) {
			if err := m.rec.Gofer.Signal(unix.SIGKILL); err != nil {
				s.Fatal(err)
			}
			settles(s.T, "false", func() string { return fmt.Sprint(m.rec.Gofer.Lives()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelved(t, 1)
			a := s.begin("a", nil)
			s.put(a, "word", "of a")
			slot := s.ahead(1)
			snap := s.freeze(a, "snap")
			s.d.pool.mu.Lock()
			var m *making
			for _, shelf := range s.d.pool.shelves {
				m = shelf.have[0]
			}
			s.d.pool.mu.Unlock()
			spoil(s, m)
			b := s.begin("b", snap)
			if b.inst.rec.Sandbox == slot[0] {
				t.Errorf("it is %s", slot[0])
			}
			s.knows(b, "word", "+of a")
			s.put(b, "word", "of b")
			s.knows(a, "word", "+of a")
		})
	}
}

// What a gateway that was killed had made ahead of time goes with the next one,
// and the directories stay.
func TestForkOnSlotsOfADeadGateway(t *testing.T) {
	s := newShelved(t, 2)
	a := s.begin("a", nil)
	s.put(a, "word", "of a")
	s.ahead(2)
	s.d.cancel() // so that nothing is made any more
	// As far as a hand-over comes.
	s.d.pool.mu.Lock()
	var m *making
	for _, shelf := range s.d.pool.shelves {
		m, shelf.have = shelf.have[0], shelf.have[1:]
	}
	s.d.pool.mu.Unlock()
	p, err := s.d.plan(t.Context(), a.spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.show(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	m.pipe.Close()
	m.stderr.Close()
	next := s.b.driver(Options{Log: s.d.opts.Log})
	if _, err := next.Sweep(t.Context(), filepath.Dir(a.spec.Dir), map[string]bool{a.spec.Dir: true}); err != nil {
		t.Fatal(err)
	}
	if got := s.shown(); len(got) > 0 {
		t.Errorf("%q are still shown", got)
	}
	holds(t, next.pool.dir())
	s.knows(a, "word", "+of a")
	reads(t, dirsOf(a.spec.State, "data", "word"), "of a")
}
