package session_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// command is what a member of a session runs.
func (w *world) command(s *session.Session, server string) string {
	w.t.Helper()
	do(context.Background(), w.t, s, server, "dump")
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	var found []string
	for _, p := range w.m.procs {
		if p.spec.Server == server && (p.spec.Session == s.ID || p.spec.Session == "") && !p.over() {
			found = append(found, p.spec.Command)
		}
	}
	return strings.Join(found, " ")
}

func wantRuns(t *testing.T, w *world, what string, s *session.Session, server, want string) {
	t.Helper()
	if s == nil {
		t.Errorf("%s is gone", what)
		return
	}
	if got := w.command(s, server); got != want {
		t.Errorf("%s: %s runs %q, want %q", what, server, got, want)
	}
}

// A session that was opened keeps its servers; a reload is for new ones, for
// implicit sessions, and for what all share.
func TestReloadLeavesOpenedSessionsAlone(t *testing.T) {
	yaml := strings.NewReplacer("command: own", "command: own2", "command: all", "command: all2", "${state.data}", "${state.data}/2").Replace(kept)
	w := newWorld(t, kept)
	used, unused, implicit := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{}), w.session("ada")
	for _, s := range []*session.Session{used, implicit} {
		set(t, s, "own", "it", "1")
		wantRuns(t, w, "before", s, "all", "all")
	}
	snap := w.frozen(used, "before")
	w.apply(yaml)
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).reopen, (*world).crash} {
		again(w, yaml)
		used, unused, implicit = w.Get(used.ID), w.Get(unused.ID), w.Get(implicit.ID)
		wantRuns(t, w, "one that was opened", used, "own", "own")
		wantDump(t, "one that was opened", used, "own", `{"it":"1"}`)
		wantRuns(t, w, "one that had not used it", unused, "own", "own")
		wantRuns(t, w, "its fork", w.fork(used, 1)[0], "own", "own")
		from := w.opened(session.OpenOptions{From: snap.ID})
		wantRuns(t, w, "one from a snapshot of before", from, "own", "own")
		wantDump(t, "one from a snapshot of before", from, "own", `{"it":"1"}`)
		for _, s := range []*session.Session{used, implicit} {
			wantRuns(t, w, "all share", s, "all", "all2")
		}
		wantRuns(t, w, "a new one", w.opened(session.OpenOptions{}), "own", "own2")
		wantRuns(t, w, "an implicit one", implicit, "own", "own2")
	}
}

// What is removed or switched off in the config is gone for all, whatever they
// were made with, and there again as it was when it is back.
func TestTakenAwayFromAll(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, why string }{
		"removed":              {"servers:\n  all: {command: all, scope: shared}\n", "removed from the config"},
		"off":                  {strings.Replace(kept, "command: own", "command: own, enabled: false", 1), "disabled in the config"},
		"off and also changed": {strings.Replace(kept, "command: own", "command: own2, enabled: false", 1), "disabled in the config"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, kept)
			used, unused := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
			set(t, used, "own", "it", "1")
			snap := w.frozen(used, "before")
			w.apply(tt.yaml)
			testkit.Eventually(t, "its instances end", func() bool { return w.m.worksOn(w.dir+"/sessions/"+used.ID+"/own") == nil })
			before := w.m.started("own")
			var later []string // made without it, and having its state
			for _, again := range []func(*world, string){func(*world, string) {}, (*world).reopen, (*world).crash} {
				again(w, tt.yaml)
				used, unused = w.Get(used.ID), w.Get(unused.ID)
				for what, s := range map[string]*session.Session{
					"one that was opened": used, "one that had not used it": unused,
					"its fork": w.fork(used, 1)[0], "one from a snapshot of before": w.opened(session.OpenOptions{From: snap.ID, Eager: true}),
				} {
					testkit.Has(t, what, do(t.Context(), t, s, "own", "dump"), "refused: ", tt.why)
					if s != unused {
						later = append(later, s.ID)
					}
				}
				for _, m := range w.Describe(used, true).Members {
					if m.Server == "own" && (m.State != "disabled" || !strings.Contains(m.Reason, tt.why)) {
						t.Errorf("it is shown as %+v", m)
					}
				}
			}
			if n := w.m.started("own"); n != before {
				t.Errorf("%d were started", n-before)
			}
			w.apply(kept)
			for _, id := range later {
				wantDump(t, "when it is back", w.Get(id), "own", `{"it":"1"}`)
			}
		})
	}
}

// A server that is switched off at run time is off for all, and on again.
func TestSwitchedOffForAll(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "it", "1")
	w.apply(strings.Replace(kept, "command: own", "command: own2", 1))
	other := w.opened(session.OpenOptions{})
	set(t, other, "own", "it", "2")
	no, yes := false, true
	if err := w.Change(t.Context(), "own", session.Change{Enabled: &no}); err != nil {
		t.Fatal(err)
	}
	w.runs("")
	for _, s := range []*session.Session{s, other} {
		testkit.Has(t, "a call", do(t.Context(), t, s, "own", "dump"), "refused: ", "run time")
	}
	w.reopen(strings.Replace(kept, "command: own", "command: own2", 1))
	testkit.Has(t, "a call after a restart", do(t.Context(), t, w.Get(s.ID), "own", "dump"), "refused: ", "run time")
	if err := w.Change(t.Context(), "own", session.Change{Enabled: &yes}); err != nil {
		t.Fatal(err)
	}
	wantDump(t, "on again", w.Get(s.ID), "own", `{"it":"1"}`)
	wantRuns(t, w, "on again", w.Get(s.ID), "own", "own")
	wantDump(t, "on again", w.Get(other.ID), "own", `{"it":"2"}`)
}

// An implicit session whose server is gone leaves nothing of it behind.
func TestImplicitSessionLeavesNothing(t *testing.T) {
	w := newWorld(t, kept)
	s := w.session("ada")
	set(t, s, "own", "it", "1")
	set(t, s, "mem", "it", "1")
	w.apply("servers:\n  mem: {builtin: memory}\n")
	w.runs("mem")
	w.CloseSession(t.Context(), s)
	wantLeft(t, w)
}

// A session whose servers are no longer recorded, and one whose driver is not
// here, stay as they are until they are known again.
func TestRestartWithoutWhatIsNeeded(t *testing.T) {
	for name, catalog := range map[string]string{"are not recorded": "", "can't be read": `{"not":"a list"}`} {
		t.Run("the servers "+name, func(t *testing.T) {
			w := newWorld(t, kept)
			s, other := w.opened(session.OpenOptions{}), w.session("ada")
			set(t, s, "own", "it", "1")
			set(t, other, "own", "it", "1")
			rec, _, err := w.db.Session(t.Context(), s.ID)
			if err != nil {
				t.Fatal(err)
			}
			right, _, err := w.db.Catalog(t.Context(), rec.Catalog)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(w.dir, "catalogs", rec.Catalog+".json")); err != nil {
				t.Fatal(err)
			}
			if catalog == "" {
				w.flip("DELETE FROM catalogs")
			} else {
				w.flip("UPDATE catalogs SET servers = ?", []byte(catalog))
			}
			w.crash(kept)
			if w.Get(s.ID) != nil {
				t.Error("it came back")
			}
			wantDump(t, "the other", w.Get(other.ID), "own", `{"it":"1"}`)
			w.runs("own")
			if err := w.db.MendCatalog(t.Context(), rec.Catalog, right); err != nil {
				t.Fatal(err)
			}
			w.crash(kept)
			wantDump(t, "the session", w.Get(s.ID), "own", `{"it":"1"}`)
		})
	}
	t.Run("the driver is not here", func(t *testing.T) {
		const yaml = "servers:\n  mem: {builtin: memory}\n  own: {command: own, state: [data], args: [\"${state.data}\"]}\n"
		w := newWorld(t, yaml)
		s := w.opened(session.OpenOptions{})
		w.remember(s, "1")
		w.without = "builtin"
		w.reopen(yaml)
		wantDump(t, "what has its driver", w.Get(s.ID), "own", `{"it":"1"}`)
		testkit.Has(t, "what has not", do(t.Context(), t, w.Get(s.ID), "mem", "dump"), "refused: ", "builtin")
		w.without = ""
		w.reopen(yaml)
		w.remembers("with its driver again", w.Get(s.ID), "1")
	})
}
