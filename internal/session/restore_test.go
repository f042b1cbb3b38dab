package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
)

func TestRestart(t *testing.T) {
	for name, again := range map[string]func(*world, string){
		"in order": (*world).reopen, "after a crash": (*world).crash, "after a crash of which the store knows no instance": (*world).crashWithoutHandles,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, two)
			s := w.session("ada")
			one, err := w.ForClient(t.Context(), "", []byte(`{"elicitation":{}}`))
			if err != nil {
				t.Fatal(err)
			}
			own, all, other := call(t, s, "own", "x"), call(t, s, "all", "x"), call(t, one, "own", "x")
			again(w, two)
			back := w.Get(s.ID)
			if back == nil || back.Owner != "ada" || back.Kind != session.KindDefault || !back.Created.Equal(s.Created.Truncate(1)) && back.Created.Sub(s.Created).Abs() > 1e6 {
				t.Fatalf("the session came back as %+v", back)
			}
			if w.session("ada") != back {
				t.Error("its owner has another one now")
			}
			if c := w.Get(one.ID); c == nil || c.Kind != session.KindClient || w.session("") == c {
				t.Fatalf("the session of a connection came back as %+v", c)
			}
			// The instances are the same, and are not greeted again.
			for what, got := range map[string][2]string{
				"own": {own, call(t, back, "own", "x")}, "all": {all, call(t, back, "all", "x")}, "other": {other, call(t, w.Get(one.ID), "own", "x")},
			} {
				if got[0] != got[1] {
					t.Errorf("%s was %s and is %s", what, got[0], got[1])
				}
			}
			for _, p := range w.m.procs {
				if n := len(p.hello()); n != 1 {
					t.Errorf("an instance of %s was greeted %d times", p.spec.Server, n)
				}
			}
			w.runs("all own own")
			if got := w.m.swept[len(w.m.swept)-1]; got != "all own own" {
				t.Errorf("the sweep was told to keep %q", got)
			}
			// And once more: the handles are still there.
			again(w, two)
			if got := call(t, w.Get(s.ID), "own", "x"); got != own {
				t.Errorf("after two restarts own was %s and is %s", own, got)
			}
		})
	}
}

// crashWithoutHandles is crash with a store that has lost what runs.
func (w *world) crashWithoutHandles(yaml string) {
	w.t.Helper()
	all, err := w.db.Handles(context.Background())
	for _, h := range all {
		err = errors.Join(err, w.db.DeleteHandle(context.Background(), h.Key))
	}
	if err != nil || len(all) == 0 {
		w.t.Fatalf("%d handles, %v", len(all), err)
	}
	w.crash(yaml)
}

// What a restart finds no use for is ended, whatever the reason.
func TestRestartEndsWhatIsNotWanted(t *testing.T) {
	tests := []struct {
		name string
		yaml string
		harm func(t *testing.T, w *world)
		want string // what runs at once
	}{
		{"changed", strings.Replace(two, "command: own", "command: own2", 1), nil, "all"},
		{"removed", "servers:\n  all: {command: all, scope: shared}\n", nil, "all"},
		{"switched off in the config", strings.Replace(two, "command: own", "command: own, enabled: false", 1), nil, "all"},
		{"shared now", strings.Replace(two, "command: own", "command: own, scope: shared", 1), nil, "all"},
		{"no longer shared", strings.Replace(two, "command: all, scope: shared", "command: all", 1), nil, "own"},
		{"its session is closed", two, func(t *testing.T, w *world) {
			for _, s := range w.Sessions() {
				if err := w.db.CloseSessions(t.Context(), time.Now(), s.ID); err != nil {
					t.Fatal(err)
				}
			}
		}, "all"},
		{"it died meanwhile", two, func(_ *testing.T, w *world) { w.m.one("own").kill() }, "all"},
		{"its handshake was not finished", two, func(t *testing.T, w *world) {
			hs, err := w.db.Handles(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hs {
				if h.Server == "own" {
					h.Link = nil
					if err := w.db.PutHandle(t.Context(), h); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, "all"},
		{"it was never recorded", two, func(t *testing.T, w *world) {
			hs, err := w.db.Handles(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hs {
				if h.Server == "own" {
					err := errors.Join(w.db.DeleteHandle(t.Context(), h.Key), os.Remove(filepath.Join(w.dir, "instances", h.Key+".handle")))
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}, "all"},
		{"it was switched off at run time", two, func(t *testing.T, w *world) {
			no := false
			if err := w.db.PutOverride(t.Context(), "own", store.Override{Enabled: &no}); err != nil {
				t.Fatal(err)
			}
		}, "all"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, two)
			s := w.session("ada")
			call(t, s, "own", "x")
			call(t, s, "all", "x")
			w.runs("all own")
			if tt.harm != nil {
				tt.harm(t, w)
			}
			w.crash(tt.yaml)
			w.runs(tt.want)
			eventually(t, "only what runs is recorded", func() bool { return w.handles() == tt.want })
			eventually(t, "only what runs has a file", func() bool { return len(w.handleFiles()) == len(strings.Fields(tt.want)) })
			// What is left still works, and so does what is started anew.
			now := w.session("ada")
			for _, e := range w.Catalog().Entries {
				if on, _ := e.On(); on {
					if tt.name == "it died meanwhile" && e.ID == "own" {
						wantHas(t, e.ID, call(t, now, e.ID, "x"), "lost: ")
					}
					wantHas(t, e.ID, call(t, now, e.ID, "x"), `{"pid":`)
				}
			}
		})
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, two)
	s := w.session("ada")
	call(t, s, "own", "x")
	call(t, s, "all", "x")
	under := later(t, s, "own", "wait")
	within(t, "the call", w.m.one("own").waiting)
	w.Registry.Close(t.Context(), false)
	w.Registry.Close(t.Context(), true)
	wantHas(t, "a call under way", within(t, "its end", under), "lost: ")
	if got := w.m.running() + w.handles(); got != "" {
		t.Errorf("%s is left", got)
	}
	wantHas(t, "a call after", call(t, s, "own", "x"), "refused: ")
	if _, err := w.Default(t.Context(), "eve"); err == nil {
		t.Error("a registry that is closed opens sessions")
	}
}

// Instances that can't be adopted are ended, not left.
func TestCloseWithWhatCannotBeAdopted(t *testing.T) {
	w := newWorld(t, two)
	w.close(true)
	w.m.adopts = false
	w.open(two)
	s := w.session("ada")
	call(t, s, "own", "x")
	if got := w.handles(); got != "" {
		t.Errorf("handles of %s are kept", got)
	}
	w.reopen(two)
	w.runs("")
	wantHas(t, "a call after", call(t, w.Get(s.ID), "own", "x"), `{"pid":`)
}

// What a request made that was never answered is removed, unless somebody has used
// it: the answer was given then, and only the record of it is lost.
func TestUnansweredButUsed(t *testing.T) {
	w := newWorld(t, kept)
	c := store.Creation{Owner: "ada", Key: "k", Request: "r", At: time.Now()}
	if _, _, err := w.db.BeginCreation(t.Context(), c, time.Time{}); err != nil {
		t.Fatal(err)
	}
	all, err := w.db.Unanswered(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	mark := all[0].Mark()
	unused, called, forked := w.opened(session.OpenOptions{Creation: mark}), w.opened(session.OpenOptions{Creation: mark}), w.opened(session.OpenOptions{Creation: mark})
	set(t, called, "own", "a", "1")
	child := w.fork(forked, 1)[0]
	w.crash(kept)
	if w.Get(unused.ID) != nil {
		t.Error("one that nobody was told of is still there")
	}
	if w.Get(called.ID) == nil || w.Get(forked.ID) == nil || w.Get(child.ID) == nil {
		t.Fatal("one that was used is gone")
	}
	wantDump(t, "one that was used", w.Get(called.ID), "own", `{"a":"1"}`)
}
