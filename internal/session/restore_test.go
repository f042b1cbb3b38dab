package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
	"github.com/tine-mcp/tine/internal/testkit"
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
				w.endInStore(s.ID)
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
			if err := storetest.PutOverride(t.Context(), w.db, "own", store.Override{Enabled: &no}); err != nil {
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
			testkit.Eventually(t, "only what runs is recorded", func() bool { return w.handles() == tt.want })
			testkit.Eventually(t, "only what runs has a file", func() bool { return len(w.handleFiles()) == len(strings.Fields(tt.want)) })
			// What is left still works, and so does what is started anew.
			now := w.session("ada")
			for _, e := range w.Catalog().Entries {
				if on, _ := e.On(); on {
					if tt.name == "it died meanwhile" && e.ID == "own" {
						testkit.Has(t, e.ID, call(t, now, e.ID, "x"), "lost: ")
					}
					testkit.Has(t, e.ID, call(t, now, e.ID, "x"), `{"pid":`)
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
	testkit.Within(t, "the call", w.m.one("own").waiting)
	w.Registry.Close(t.Context(), false)
	w.Registry.Close(t.Context(), true)
	testkit.Has(t, "a running call", testkit.Within(t, "its end", under), "lost: ")
	if got := w.m.running() + w.handles(); got != "" {
		t.Errorf("%s is left", got)
	}
	testkit.Has(t, "a call after", call(t, s, "own", "x"), "refused: ")
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
	testkit.Has(t, "a call after", call(t, w.Get(s.ID), "own", "x"), `{"pid":`)
}

// What a request made that was never answered is removed. What was answered for is
// not, though the database has lost the answer, as a power cut leaves it.
func TestUnanswered(t *testing.T) {
	w := newWorld(t, lasting)
	begin := func(key string) string {
		t.Helper()
		c := store.Creation{Owner: "ada", Key: key, Request: "r", At: time.Now()}
		if _, _, err := w.db.BeginCreation(t.Context(), c, time.Time{}); err != nil {
			t.Fatal(err)
		}
		return c.Mark()
	}
	makes := func(mark, name string) (s, child *session.Session, snap string) {
		t.Helper()
		s = w.opened(session.OpenOptions{Creation: mark})
		w.remember(s, "x")
		forked, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1, Creation: mark})
		if err != nil {
			t.Fatal(err)
		}
		frozen, err := w.Freeze(t.Context(), s, session.SnapshotOptions{Name: name, Creation: mark})
		if err != nil {
			t.Fatal(err)
		}
		return s, forked.Children[0], frozen.ID
	}
	s, child, snap := makes(begin("answered"), "answered")
	if err := w.db.EndCreation(t.Context(), "ada", "answered", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	never, neverChild, neverSnap := makes(begin("never"), "never")
	w.close(false)
	w.flip("UPDATE creations SET answer = NULL WHERE key = 'answered'")
	w.open(lasting)
	if w.Get(never.ID) != nil || w.Get(neverChild.ID) != nil {
		t.Error("a session whose request was not answered is still there")
	}
	var snaps []string
	for _, at := range w.Snapshots() {
		snaps = append(snaps, at.ID)
	}
	if !slices.Equal(snaps, []string{snap}) {
		t.Errorf("the snapshots are %v, not %s without %s", snaps, snap, neverSnap)
	}
	if w.Get(s.ID) == nil || w.Get(child.ID) == nil {
		t.Fatal("a session that was answered for is gone")
	}
	w.remembers("the session", w.Get(s.ID), "x")
	w.remembers("its fork", w.Get(child.ID), "x")
	wantDump(t, "one from the snapshot", w.opened(session.OpenOptions{From: snap}), "own", `{"it":"x"}`)
}

// unsettled is a store with which the record in the folder of a snapshot can't be
// made to count.
type unsettled struct {
	store.Store
	home string
}

func (u *unsettled) PutSnapshot(ctx context.Context, s store.Snapshot) error {
	return errors.Join(u.Store.PutSnapshot(ctx, s), os.Mkdir(filepath.Join(u.home, s.ID, "~snapshot"), 0o700))
}

// A snapshot whose folder calls itself unfinished is not answered for: a start that
// finds no record of it in the database would remove it.
func TestSnapshotFolderNotFinished(t *testing.T) {
	w := makeWorld(t, lasting, func(w *world) {
		w.wrap = func(s store.Store) store.Store { return &unsettled{s, filepath.Join(w.dir, "snapshots")} }
	})
	s := w.opened(session.OpenOptions{})
	w.remember(s, "x")
	if _, err := w.Freeze(t.Context(), s, session.SnapshotOptions{}); err == nil {
		t.Error("a snapshot was answered for whose folder calls itself unfinished")
	}
	if all, err := w.db.Snapshots(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("the database has %v, %v", all, err)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "snapshots")); len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// endInStore closes a session as a gateway does that dies before it has removed anything.
func (w *world) endInStore(id string) {
	w.t.Helper()
	ctx := w.t.Context()
	rec, ok, err := w.db.Session(ctx, id)
	if err != nil || !ok {
		w.t.Fatalf("session %s: %v, %v", id, ok, err)
	}
	var facts map[string]any
	if err := json.Unmarshal(rec.Data, &facts); err != nil {
		w.t.Fatal(err)
	}
	rev, _ := facts["rev"].(float64)
	facts["rev"] = rev + 1
	rec.Closed = time.Now()
	if rec.Data, err = json.Marshal(facts); err == nil {
		err = w.db.PutSessions(ctx, rec)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A session that its gateway holds is closed by the next one, with what it keeps; a fork
// of it is not.
func TestHeldSessions(t *testing.T) {
	for name, again := range map[string]func(w *world, yaml string){"killed": (*world).crash, "stopped": (*world).reopen} {
		t.Run(name, func(t *testing.T) {
			w := recording(t, kept)
			held, free := w.opened(session.OpenOptions{Held: true}), w.opened(session.OpenOptions{})
			set(t, held, "own", "it", "s1")
			child := w.fork(held, 1)[0]
			again(w, kept)
			if w.Get(held.ID) != nil || w.Get(free.ID) == nil || w.Get(child.ID) == nil {
				t.Errorf("held %v, free %v, and the fork %v", w.Get(held.ID), w.Get(free.ID), w.Get(child.ID))
			}
			if why := w.closedBecause(held.ID); why != "the gateway that held it has ended" {
				t.Errorf("it is closed because of %q", why)
			}
			again(w, kept)
			if w.Get(child.ID) == nil {
				t.Error("the fork is closed at the next start")
			}
		})
	}
}
