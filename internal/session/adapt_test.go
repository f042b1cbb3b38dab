package session_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/wire"
)

const agentID = "ses_0123456789ab"

// listed is a list of servers of a config and, as NAME=ENTRY, of a session's own.
func listed(t *testing.T, yaml string, names ...string) catalog.List {
	t.Helper()
	cfg, l := parse(t, yaml), catalog.List{}
	for _, name := range names {
		id, entry, own := strings.Cut(name, "=")
		if !own {
			l.Servers = append(l.Servers, id)
			continue
		}
		s, _, err := cfg.Inline(id, []byte(entry), config.Options{Getenv: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatal(err)
		}
		l.Inline = append(l.Inline, s)
	}
	return l
}

const (
	scratch  = `scratch={"command": "scratch", "state": ["data"], "args": ["${state.data}"]}`
	scratch2 = `scratch={"command": "scratch2", "state": ["data"], "args": ["${state.data}"]}`
)

// agent opens a session with a list of servers.
func (w *world) agent(id string, l catalog.List) *session.Session {
	w.t.Helper()
	s, opened, err := w.OpenAs(context.Background(), session.OpenOptions{ID: id, Owner: session.Owner{Name: "ada"}, List: &l})
	if err != nil || !opened {
		w.t.Fatalf("opened %v: %s", opened, failure(err))
	}
	return s
}

func (w *world) adapted(s *session.Session, l catalog.List) session.Adapted {
	w.t.Helper()
	a, err := w.Adapt(context.Background(), s, session.AdaptOptions{List: l})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return a
}

// servers are those that a session has.
func servers(s *session.Session) string {
	if s == nil {
		return "no session"
	}
	var ids []string
	for _, e := range s.Catalog().Entries {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

func wantServers(t *testing.T, what string, s *session.Session, want string) {
	t.Helper()
	if got := servers(s); got != want {
		t.Errorf("%s has servers %q, want %q", what, got, want)
	}
}

func TestListsThatCantBe(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "own"))
	for name, tt := range map[string]struct {
		l    catalog.List
		want []string
	}{
		"a name of the config": {listed(t, "servers: {}\n", `own={"command": "x"}`), []string{"invalid: ", "mcp_servers.own", "reference"}},
		"an unknown reference": {catalog.List{Servers: []string{"nope"}}, []string{"invalid: ", `"nope"`}},
		"a name twice": {catalog.List{Inline: slices.Concat(
			listed(t, kept, scratch).Inline, listed(t, kept, scratch2).Inline)}, []string{"invalid: ", "mcp_servers.scratch stands twice"}},
		"too many": {catalog.List{Servers: slices.Repeat([]string{"own"}, 257)}, []string{"invalid: ", "257"}},
	} {
		_, err := w.Adapt(t.Context(), s, session.AdaptOptions{List: tt.l})
		testkit.Has(t, name, failure(err), tt.want...)
		_, _, err = w.OpenAs(t.Context(), session.OpenOptions{ID: "ses_000000000000", List: &tt.l})
		testkit.Has(t, name+" at an open", failure(err), tt.want...)
	}
	wantServers(t, "after refusals", s, "own")
	for what, other := range map[string]*session.Session{"a default session": w.session("ada"), "one without a list": w.opened(session.OpenOptions{})} {
		_, err := w.Adapt(t.Context(), other, session.AdaptOptions{List: listed(t, kept, "mem")})
		testkit.Has(t, what, failure(err), "invalid: ")
	}
	w.CloseSession(t.Context(), s)
	if _, err := w.Adapt(t.Context(), s, session.AdaptOptions{}); !strings.Contains(failure(err), "closed") {
		t.Errorf("a closed one: %v", err)
	}
}

func TestAdapt(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "own", "all", scratch))
	set(t, s, "own", "it", "1")
	set(t, s, "scratch", "it", "1")
	snap, child := w.frozen(s, "before"), w.fork(s, 1)[0]
	hears := &ear{}
	defer s.Watch(hears)()

	// The config and the blueprint say something else of what stays.
	changed := strings.Replace(kept, "command: own", "command: own2", 1)
	w.apply(changed)
	a := w.adapted(s, listed(t, changed, "own", "mem", scratch2))
	if fmt.Sprint(a) != "{[mem] [all]}" {
		t.Errorf("it changed %v", a)
	}
	wantServers(t, "adapted", s, "own mem scratch")
	wantRuns(t, w, "what stays", s, "own", "own")
	wantRuns(t, w, "what stays", s, "scratch", "scratch")
	for _, note := range []string{wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged} {
		if !hears.has(note) {
			t.Errorf("clients did not hear %s", note)
		}
	}
	testkit.Has(t, "what is gone", do(t.Context(), t, s, "all", "dump"), "invalid: ", `"all"`)
	set(t, s, "mem", "it", "1")
	if a := w.adapted(s, listed(t, changed, "own", "mem", scratch2)); len(a.Joined)+len(a.Gone) > 0 {
		t.Errorf("the same again changed %v", a)
	}

	// What goes and comes back knows what it knew.
	w.adapted(s, listed(t, changed, "mem"))
	if w.m.worksOn(w.dir+"/sessions/"+s.ID+"/own") != nil || w.m.worksOn(w.dir+"/sessions/"+s.ID+"/scratch") != nil {
		t.Error("what is gone runs")
	}
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).reopen, (*world).crash} {
		again(w, changed)
		s = w.Get(agentID)
		wantServers(t, "without them", s, "mem")
		testkit.Has(t, "what is gone", do(t.Context(), t, s, "own", "dump"), "invalid: ", "taken out")
		w.adapted(s, listed(t, changed, scratch))
		wantServers(t, "with one again", s, "scratch")
		wantDump(t, "what is back", s, "scratch", `{"it":"1"}`)
		w.adapted(s, listed(t, changed, "mem"))
		wantDump(t, "what is back", s, "mem", `{"it":"1"}`)
		if d := s.Damaged(); len(d) > 0 {
			t.Errorf("it is damaged: %+v", d)
		}
	}
	// Defined in another way it is another one.
	w.adapted(s, listed(t, changed, "own", scratch2))
	wantDump(t, "another definition", s, "own", `{}`)
	wantDump(t, "another definition", s, "scratch", `{}`)
	set(t, s, "scratch", "it", "2")
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).crash} {
		again(w, changed)
		s = w.Get(agentID)
		w.adapted(s, listed(t, changed, scratch2))
		wantDump(t, "the second", s, "scratch", `{"it":"2"}`)
		w.adapted(s, listed(t, changed, "mem"))
		w.adapted(s, listed(t, changed, scratch))
		wantDump(t, "the first", s, "scratch", `{"it":"1"}`)
		w.adapted(s, catalog.List{})
	}

	// What was made before keeps its list.
	child = w.Get(child.ID)
	wantServers(t, "a fork of before", child, "own all scratch")
	wantDump(t, "a fork of before", child, "scratch", `{"it":"1"}`)
	from := w.opened(session.OpenOptions{From: snap.ID})
	wantServers(t, "one from a snapshot of before", from, "own all scratch")
	wantDump(t, "one from a snapshot of before", from, "own", `{"it":"1"}`)
	w.CloseSession(t.Context(), s)
	if _, err := os.Lstat(w.dir + "/sessions/" + s.ID); err == nil {
		t.Error("its folder is left")
	}
}

// A world may begin with a snapshot, whose servers stay as they are there.
func TestListFromASnapshot(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "own", scratch))
	set(t, s, "own", "it", "1")
	set(t, s, "scratch", "it", "1")
	snap := w.frozen(s, "")
	changed := strings.Replace(kept, "command: own", "command: own2", 1)
	w.apply(changed)
	l := listed(t, changed, "own", "mem", scratch2)
	from, _, err := w.OpenAs(t.Context(), session.OpenOptions{ID: "ses_ba9876543210", From: snap.ID, List: &l})
	if err != nil {
		t.Fatal(failure(err))
	}
	wantServers(t, "it", from, "own mem scratch")
	wantRuns(t, w, "it", from, "own", "own")
	wantDump(t, "it", from, "own", `{"it":"1"}`)
	wantDump(t, "it", from, "scratch", `{"it":"1"}`)
	wantDump(t, "it", from, "mem", `{}`)
	l = listed(t, changed, "mem")
	less, _, err := w.OpenAs(t.Context(), session.OpenOptions{ID: "ses_aaaaaaaaaaaa", From: snap.ID, List: &l})
	if err != nil {
		t.Fatal(failure(err))
	}
	wantServers(t, "one without them", less, "mem")
}

// A rewind brings states back and leaves the list as it is.
func TestRewindToOtherServers(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "own", scratch))
	set(t, s, "own", "it", "1")
	set(t, s, "scratch", "it", "1")
	snap := w.frozen(s, "first")
	set(t, s, "own", "it", "2")
	set(t, s, "scratch", "it", "2")
	w.adapted(s, listed(t, kept, "own", "mem", `more={"command": "more", "state": ["data"], "args": ["${state.data}"]}`))
	set(t, s, "mem", "it", "2")
	set(t, s, "more", "it", "2")
	w.adapted(s, listed(t, kept, "own", "mem"))
	w.rewound(s, snap.ID)
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).crash} {
		again(w, kept)
		s = w.Get(agentID)
		wantServers(t, "rewound", s, "own mem")
		wantDump(t, "what was there then", s, "own", `{"it":"1"}`)
		wantDump(t, "what joined after", s, "mem", `{}`)
	}
	w.adapted(s, listed(t, kept, scratch))
	wantDump(t, "what was there then and is back", s, "scratch", `{"it":"1"}`)
	w.adapted(s, listed(t, kept, `more={"command": "more", "state": ["data"], "args": ["${state.data}"]}`))
	wantDump(t, "what joined after, went, and is back", s, "more", `{}`)
	// One of the same name that is another now has nothing of the snapshot's.
	w.adapted(s, catalog.List{})
	w.adapted(s, listed(t, kept, scratch2))
	set(t, s, "scratch", "it", "3")
	w.rewound(s, snap.ID)
	wantDump(t, "another of that name", s, "scratch", `{}`)
	w.adapted(s, catalog.List{})
	w.adapted(s, listed(t, kept, scratch))
	wantDump(t, "the one of the snapshot", s, "scratch", `{"it":"1"}`)
	if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	w.CloseSession(t.Context(), s)
	wantLeft(t, w)
}

// Calls in flight of what goes end with the reason; others go on.
func TestCallsDuringAdapt(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "mem", "own", scratch))
	ends, stays := later(t, s, "scratch", "wait"), later(t, s, "own", "wait")
	gone, there := w.waiting("scratch"), w.waiting("own")
	testkit.Within(t, "the call of what goes", gone.waiting)
	testkit.Within(t, "the call of what stays", there.waiting)
	_, leave := entered(t, t.Context(), s, "slow") // no call is waited for
	w.adapted(s, listed(t, kept, "own", "mem"))
	leave()
	testkit.Has(t, "the call of what went", testkit.Within(t, "its end", ends), "lost: ", `"scratch"`, "the gateway ended it")
	close(there.release)
	testkit.Has(t, "the call of what stays", testkit.Within(t, "its end", stays), `{"pid":`)
}

func (w *world) waiting(server string) (p *proc) {
	testkit.Eventually(w.t, "the start of "+server, func() bool {
		w.m.mu.Lock()
		defer w.m.mu.Unlock()
		for _, one := range w.m.procs {
			if one.spec.Server == server {
				p = one
			}
		}
		return p != nil
	})
	return p
}

// Forks, snapshots, rewinds and changes of the list at once: each has a whole list.
func TestAdaptAmongForks(t *testing.T) {
	w := newWorld(t, kept)
	lists := []catalog.List{listed(t, kept, "own", scratch), listed(t, kept, "mem"), {}, listed(t, kept, "mem", scratch2)}
	whole := []string{"own scratch", "mem", "", "mem scratch"}
	s := w.agent(agentID, lists[0])
	set(t, s, "own", "it", "1")
	snap := w.frozen(s, "first")
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			for i := range 8 {
				if _, err := w.Adapt(context.Background(), s, session.AdaptOptions{List: lists[(i+n)%len(lists)]}); err != nil {
					t.Error(failure(err))
				}
			}
		})
		wg.Go(func() {
			for range 4 {
				switch n {
				case 0:
					f, err := w.Fork(context.Background(), s, session.ForkOptions{Count: 2})
					if err != nil {
						if !strings.Contains(failure(err), "being changed") {
							t.Error(failure(err))
						}
						continue
					}
					for _, c := range f.Children {
						if !slices.Contains(whole, servers(c)) {
							t.Errorf("a fork has %q", servers(c))
						}
					}
				case 1:
					if err := w.Rewind(context.Background(), s, snap.ID, 0); err != nil {
						t.Error(failure(err))
					}
				default:
					made, err := w.Freeze(context.Background(), s, session.SnapshotOptions{})
					if err != nil {
						t.Error(failure(err))
						continue
					}
					if from := w.opened(session.OpenOptions{From: made.ID}); !slices.Contains(whole, servers(from)) {
						t.Errorf("one from a snapshot has %q", servers(from))
					}
				}
			}
		})
	}
	wg.Wait()
	w.adapted(s, lists[0])
	wantDump(t, "in the end", s, "own", `{"it":"1"}`)
	w.crash(kept)
	for _, s := range w.Sessions() {
		if !slices.Contains(whole, servers(s)) {
			t.Errorf("after a restart one has %q", servers(s))
		}
	}
}

// A gateway that is killed at any step leaves the old list or the new one, with what is
// remembered.
func TestKilledWhileAdapting(t *testing.T) {
	seen := make(map[string]bool)
	for n := 0; ; n++ {
		if n > 60 {
			t.Fatal("it has no end")
		}
		w := newWorld(t, kept)
		s := w.agent(agentID, listed(t, kept, "own", scratch))
		set(t, s, "own", "it", "1")
		set(t, s, "scratch", "it", "1")
		crashed := w.dieAt(anyStep, n)
		_, err := w.Adapt(t.Context(), s, session.AdaptOptions{List: listed(t, kept, "own", "mem")})
		if !crashed() {
			if err != nil {
				t.Fatal(failure(err))
			}
			break
		}
		w.rise(kept)
		s = w.Get(agentID)
		list := servers(s)
		seen[list] = true
		if err == nil && list != "own mem" {
			t.Errorf("step %d: it was answered, and the session has %q", n, list)
		}
		if list != "own scratch" && list != "own mem" {
			t.Fatalf("step %d: the session has %q", n, list)
		}
		wantDump(t, fmt.Sprintf("step %d", n), s, "own", `{"it":"1"}`)
		if list == "own mem" {
			w.adapted(s, listed(t, kept, "own", scratch))
		}
		wantDump(t, fmt.Sprintf("step %d", n), s, "scratch", `{"it":"1"}`)
		w.CloseSession(t.Context(), s)
		wantLeft(t, w)
		w.close(false)
		w.Registry = nil
	}
	if !seen["own scratch"] || !seen["own mem"] {
		t.Errorf("lists after a kill: %v", slices.Collect(maps.Keys(seen)))
	}
}

// What fails to be written down changes nothing.
func TestAdaptThatFails(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "own", scratch))
	set(t, s, "scratch", "it", "1")
	w.m.fail("put sessions", 0)
	if _, err := w.Adapt(t.Context(), s, session.AdaptOptions{List: listed(t, kept, "own")}); err == nil {
		t.Fatal("it succeeded")
	}
	wantServers(t, "after a failure", s, "own scratch")
	wantDump(t, "after a failure", s, "scratch", `{"it":"1"}`)
	w.crash(kept)
	wantServers(t, "after a restart", w.Get(agentID), "own scratch")
}

// The memory that goes with an instance is a loss that is told when the server is back.
func TestMemoryOfWhatGoes(t *testing.T) {
	const forgetful = `forgetful={"command": "forgetful"}`
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "own", forgetful))
	set(t, s, "forgetful", "it", "1")
	w.adapted(s, listed(t, kept, "own"))
	if d := s.Damaged(); len(d) != 0 {
		t.Errorf("without it the session is damaged: %+v", d)
	}
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).crash} {
		again(w, kept)
		s = w.Get(agentID)
		w.adapted(s, listed(t, kept, "own", forgetful))
		if d := s.Damaged(); len(d) != 1 || d[0].Server != "forgetful" || d[0].Kept != api.KeptNothing {
			t.Errorf("with it again the session is damaged by %+v", d)
		}
		w.adapted(s, listed(t, kept, "own"))
	}
}

func TestMostThatLeft(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, catalog.List{})
	for n := range 64 {
		l := listed(t, kept, fmt.Sprintf(`scratch={"command": "s%d", "state": ["data"], "args": ["${state.data}"]}`, n))
		w.adapted(s, l)
		set(t, s, "scratch", "it", fmt.Sprint(n))
		w.adapted(s, catalog.List{})
	}
	w.adapted(s, listed(t, kept, "own"))
	set(t, s, "own", "it", "1")
	_, err := w.Adapt(t.Context(), s, session.AdaptOptions{})
	testkit.Has(t, "one too many", failure(err), "refused: ", `"own"`, "64")
	wantServers(t, "after the refusal", s, "own")
	w.CloseSession(t.Context(), s)
	wantLeft(t, w)
}
