package session_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	w := newWorld(t, two)
	s := w.session("ada")
	hear := &ear{}
	defer s.Watch(hear)()
	own, all := call(t, s, "own", "x"), call(t, s, "all", "x")
	under := later(t, s, "own", "wait")
	testkit.Within(t, "the call", w.m.one("own").waiting)

	w.apply(`
servers:
  more: {command: more}
  own: {command: own, title: Another, timeout: 7m, tools: {deny: [secret]}}
  all: {command: all, scope: shared, eager: true}
`)
	if !hear.has(wire.NoteToolsChanged) {
		t.Errorf("the clients heard %q", hear.heard)
	}
	if got := call(t, s, "own", "x"); got != own {
		t.Errorf("own was %s and is %s", own, got)
	}
	if got := call(t, s, "all", "x"); got != all {
		t.Errorf("all was %s and is %s", all, got)
	}
	testkit.Has(t, "a server that came", call(t, s, "more", "x"), `{"pid":`)
	close(w.m.one("own").release)
	if got := testkit.Within(t, "the running call", under); got != own {
		t.Errorf("the running call got %s", got)
	}
	w.runs("all more own")
	if got := w.Catalog().Entry("own"); got.Title != "Another" || len(got.Tools.Deny) != 1 {
		t.Errorf("the entry is %+v", got)
	}
	if got := len(w.Catalog().Entries); got != 3 || w.Catalog().Entries[0].ID != "more" {
		t.Errorf("%d entries, the first is %s", got, w.Catalog().Entries[0].ID)
	}
}

// A new time limit holds for the calls to come, without a restart.
func TestReloadOfATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, two)
		s := w.session("ada")
		pids := call(t, s, "own", "x") + call(t, s, "all", "x")
		w.apply(strings.ReplaceAll(two, "{command", "{timeout: 10s, command"))
		for _, server := range []string{"own", "all"} {
			began := time.Now()
			testkit.Has(t, server, call(t, s, server, "wait"), "timeout: ")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s took %v", server, took)
			}
		}
		if got := call(t, s, "own", "x") + call(t, s, "all", "x"); got != pids {
			t.Errorf("it was %s and is %s", pids, got)
		}
	})
}

func TestReloadRetiresWhatChanged(t *testing.T) {
	for _, server := range []string{"own", "all"} {
		for name, yaml := range map[string]string{
			"changed": strings.NewReplacer("command: "+server, "command: "+server+", args: [-v]").Replace(two),
			"removed": strings.NewReplacer("  "+server+": ", "  other: ").Replace(two),
			"off":     strings.NewReplacer("command: "+server, "command: "+server+", enabled: false").Replace(two),
		} {
			t.Run(server+" "+name, func(t *testing.T) {
				w := newWorld(t, two)
				s := w.session("ada")
				before := call(t, s, server, "x")
				old := w.m.one(server)
				under := later(t, s, server, "wait")
				testkit.Within(t, "the call", old.waiting)
				w.apply(yaml)
				switch after := call(t, s, server, "x"); name {
				case "changed":
					if after == before || !strings.HasPrefix(after, `{"pid":`) {
						t.Errorf("before %s, after %s", before, after)
					}
				case "removed":
					testkit.Has(t, "a call after", after, "invalid: ")
				case "off":
					testkit.Has(t, "a call after", after, "refused: ", "disabled in the config")
				}
				if old.over() {
					t.Error("the old instance ended before its call")
				}
				close(old.release)
				if got := testkit.Within(t, "the running call", under); got != before {
					t.Errorf("the running call got %s, want %s", got, before)
				}
				testkit.Within(t, "the end of the old instance", old.done)
				testkit.Eventually(t, "the old handle is forgotten", func() bool {
					return strings.Count(w.handles(), server) == map[bool]int{true: 1}[name == "changed"]
				})
			})
		}
	}
}

func TestReloadForSessionsToCome(t *testing.T) {
	w := newWorld(t, two)
	a := w.session("ada")
	call(t, a, "own", "x")
	w.apply(strings.Replace(two, "command: own", "command: own2", 1))
	b := w.session("bob")
	call(t, b, "own", "x")
	w.runs("own")
	if p := w.m.one("own"); p.spec.Command != "own2" || p.spec.Session != b.ID {
		t.Errorf("%s runs in %s", p.spec.Command, p.spec.Session)
	}
}

func TestChangeEnabled(t *testing.T) {
	w := newWorld(t, two+"  off: {command: off, enabled: false}\n")
	s := w.session("ada")
	hear := &ear{}
	defer s.Watch(hear)()
	call(t, s, "own", "x")
	on, no := true, false
	ctx := t.Context()
	if err := w.Change(ctx, "own", session.Change{Enabled: &no}); err != nil {
		t.Fatal(err)
	}
	w.runs("")
	testkit.Has(t, "a call of what is off", call(t, s, "own", "x"), "refused: ", "run time")
	if !hear.has(wire.NoteToolsChanged) {
		t.Errorf("the clients heard %q", hear.heard)
	}
	if e := w.Catalog().Entry("own"); len(e.Overrides()) == 0 {
		t.Error("it is not shown as overridden")
	}
	if err := w.Change(ctx, "off", session.Change{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "a call of what is on", call(t, s, "off", "x"), `{"pid":`)
	if err := w.Change(ctx, "none", session.Change{Enabled: &on}); err == nil {
		t.Error("a server that is not there can be switched")
	}
	// It lasts over a reload and over a restart.
	yaml := two + "  off: {command: off, enabled: false}\n  new: {command: new}\n"
	w.apply(yaml)
	testkit.Has(t, "after a reload", call(t, s, "own", "x"), "refused: ")
	before := call(t, s, "off", "x")
	w.reopen(yaml)
	s = w.Get(s.ID)
	testkit.Has(t, "after a restart", call(t, s, "own", "x"), "refused: ")
	if got := call(t, s, "off", "x"); got != before {
		t.Errorf("what was on is %s after a restart and was %s", got, before)
	}
	// Until it is taken back.
	for _, id := range []string{"own", "off"} {
		if err := w.Change(ctx, id, session.Change{Reset: true}); err != nil {
			t.Fatal(err)
		}
		if w.Catalog().Entry(id).Overrides() != nil {
			t.Errorf("%s is still overridden", id)
		}
	}
	testkit.Has(t, "taken back", call(t, s, "own", "x"), `{"pid":`)
	testkit.Has(t, "taken back", call(t, s, "off", "x"), "refused: ", "config")
	w.reopen(yaml)
	testkit.Has(t, "after another restart", call(t, w.Get(s.ID), "own", "x"), `{"pid":`)
	// Saying what the config says is no override.
	if err := w.Change(ctx, "own", session.Change{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	if w.Catalog().Entry("own").Overrides() != nil {
		t.Error("on in both is shown as overridden")
	}
}

// slowStore is a store whose writes of overrides wait.
type slowStore struct {
	store.Store
	begun, goOn chan struct{}
}

func (s *slowStore) ChangeOverride(ctx context.Context, id string, change func(store.Override) (store.Override, error)) error {
	s.begun <- struct{}{}
	<-s.goOn
	return s.Store.ChangeOverride(ctx, id, change)
}

// A reload that comes while a server is switched off must not be undone by it.
func TestReloadWhileAServerIsSwitched(t *testing.T) {
	w := newWorld(t, two)
	w.close(true)
	slow := &slowStore{begun: make(chan struct{}), goOn: make(chan struct{})}
	w.wrap = func(s store.Store) store.Store { slow.Store = s; return slow }
	w.open(two)
	no := false
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Change(context.Background(), "own", session.Change{Enabled: &no}); err != nil {
			t.Error(err)
		}
	})
	testkit.Within(t, "the write", slow.begun)
	applied := make(chan struct{})
	wg.Go(func() {
		defer close(applied)
		if err := w.Apply(context.Background(), parse(t, two+"  new: {command: new}\n")); err != nil {
			t.Error(err)
		}
	})
	// Either the reload goes first or it waits; after both, both must hold.
	select {
	case <-applied:
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.goOn)
	wg.Wait()
	if w.Catalog().Entry("new") == nil {
		t.Error("the new config is gone")
	}
	if on, _ := w.Catalog().Entry("own").On(); on {
		t.Error("the switch is lost")
	}
}

func TestReloadsAtOnce(t *testing.T) {
	w := newWorld(t, two)
	s := w.session("ada")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := call(t, s, "own", "x")
				if !strings.HasPrefix(got, `{"pid":`) && !strings.HasPrefix(got, "refused: ") && !strings.HasPrefix(got, "lost: ") {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	for n := range 10 {
		w.apply(strings.Replace(two, "command: own", "command: own, args: ["+string(rune('a'+n))+"]", 1))
	}
	close(stop)
	wg.Wait()
	testkit.Has(t, "in the end", call(t, s, "own", "x"), `{"pid":`)
	w.runs("own")
	if p := w.m.one("own"); len(p.spec.Args) != 1 || p.spec.Args[0] != "j" {
		t.Errorf("what runs was started with %q", p.spec.Args)
	}
	testkit.Eventually(t, "the old handles are forgotten", func() bool { return w.handles() == "own" })
}

// A reload may come while the gateway stops.
func TestReloadAtTheEnd(t *testing.T) {
	for range 10 {
		w := newWorld(t, two)
		s := w.session("ada")
		call(t, s, "own", "x")
		cfg := parse(t, strings.Replace(two, "command: own", "command: own2", 1))
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Apply(context.Background(), cfg) })
		wg.Go(func() { w.Registry.Close(context.Background(), false) })
		wg.Go(func() { _, _ = w.ForClient(context.Background(), "x", nil) })
		wg.Wait()
		w.Registry.Close(context.Background(), false)
		if got := w.m.running(); got != "" {
			t.Errorf("%s is left", got)
		}
	}
}

var _ session.Watcher = (*ear)(nil)

// Two never work on one state: what takes the place of another one begins when
// that has ended.
func TestReloadOfWhatRemembers(t *testing.T) {
	const yaml = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"]}
  all: {command: all, scope: shared, state: [data], args: ["${state.data}"]}
`
	for _, server := range []string{"own", "all"} {
		t.Run(server, func(t *testing.T) {
			w := newWorld(t, yaml)
			s := w.session("ada")
			set(t, s, server, "it", "1")
			old := w.m.one(server)
			under := later(t, s, server, "wait")
			testkit.Within(t, "the call", old.waiting)
			w.apply(strings.Replace(yaml, "command: "+server, "command: "+server+"2", 1))
			after := make(chan string, 1)
			go func() { after <- dump(t, s, server) }()
			testkit.Eventually(t, "the next one is wanted", func() bool {
				up := s.Peek(server)
				return up != nil && up.Started()
			})
			if old.over() {
				t.Error("the old one ended before its call")
			}
			close(old.release)
			testkit.Has(t, "the running call", testkit.Within(t, "its end", under), "pid")
			if got := testkit.Within(t, "the call after", after); got != `{"it":"1"}` {
				t.Errorf("the next one remembers %s", got)
			}
			if p := w.m.one(server); p.spec.Command != server+"2" {
				t.Errorf("%s runs", p.spec.Command)
			}
		})
	}
}
