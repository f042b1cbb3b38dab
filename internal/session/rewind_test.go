package session_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

func (w *world) rewound(s *session.Session, id string) {
	w.t.Helper()
	if err := w.Rewind(context.Background(), s, id, 0); err != nil {
		w.t.Fatal(failure(err))
	}
}

func TestRewind(t *testing.T) {
	w := newWorld(t, whole+"  anew: {command: anew, fork: fresh}\n")
	ctx := t.Context()
	s := w.opened(session.OpenOptions{})
	empty := w.frozen(s, "empty")
	w.remember(s, "first")
	first := w.frozen(s, "first")
	w.remember(s, "second")
	set(t, s, "anew", "a", "1")
	child := w.fork(s, 1)[0]
	w.rewound(s, first.ID)
	w.remembers("rewound", s, "first")
	wantDump(t, "what is not carried", s, "anew", `{}`)
	w.remembers("the child", child, "second")
	// Forward again, and back, and over restarts.
	w.remember(s, "third")
	third := w.frozen(s, "third")
	w.rewound(s, empty.ID)
	w.remembers("at the beginning", s, "")
	w.crash(whole + "  anew: {command: anew, fork: fresh}\n")
	s = w.Get(s.ID)
	w.remembers("at the beginning after a restart", s, "")
	w.rewound(s, third.ID)
	w.rewound(s, third.ID)
	w.remembers("forward", s, "third")
	w.remember(s, "fourth")
	w.reopen(whole + "  anew: {command: anew, fork: fresh}\n")
	s = w.Get(s.ID)
	w.remembers("after a rewind and a restart", s, "fourth")
	grand := w.fork(s, 1)[0]
	w.remembers("a fork of what was rewound", grand, "fourth")

	// Only to the session's own.
	for what, id := range map[string]string{"another session's": w.frozen(grand, "").ID, "an unknown": "snp_000000000000"} {
		if got := failure(w.Rewind(ctx, s, id, 0)); !strings.HasPrefix(got, "invalid: ") {
			t.Errorf("a rewind to %s: %s", what, got)
		}
	}
	w.remembers("after a rewind that was refused", s, "fourth")
	for _, snap := range w.Snapshots() {
		if err := w.DeleteSnapshot(ctx, snap.ID); err != nil {
			t.Error(err)
		}
	}
	for _, s := range w.Sessions() {
		w.CloseSession(ctx, s)
	}
	wantLeft(t, w)
	if n := w.layersLeft(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
}

// What fails in the middle leaves the state as it was.
func TestRewindThatFails(t *testing.T) {
	for _, point := range []string{"seed own", "seeded own", "seed mem", "put sessions"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, whole)
			s := w.opened(session.OpenOptions{})
			w.remember(s, "then")
			snap := w.frozen(s, "")
			w.remember(s, "now")
			before, layers := strings.Join(w.left(), " "), w.layersLeft()
			w.m.fail(point, 0)
			if err := w.Rewind(t.Context(), s, snap.ID, 0); err == nil {
				t.Fatal("it succeeded")
			}
			if got := strings.Join(w.left(), " "); got != before {
				t.Errorf("left is %s, and it was %s", got, before)
			}
			w.remembers("after the failure", s, "now")
			if n := w.layersLeft(); n > layers {
				t.Errorf("%d layers are left, and there were %d", n, layers)
			}
			w.crash(whole)
			w.remembers("after a restart", w.Get(s.ID), "now")
			w.rewound(w.Get(s.ID), snap.ID)
			w.remembers("rewound", w.Get(s.ID), "then")
		})
	}
}

// Calls that wait while a session is rewound see what it was rewound to, and a
// snapshot that is deleted meanwhile is still good for it.
func TestCallsDuringARewind(t *testing.T) {
	w := newWorld(t, whole)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "then")
	snap := w.frozen(s, "")
	w.remember(s, "now")
	// It waits for running calls.
	_, leave := entered(t, t.Context(), s, "slow")
	testkit.Has(t, "a rewind beside a call", failure(w.Rewind(t.Context(), s, snap.ID, time.Millisecond)), "timeout: ", "own__slow")
	leave()
	there, letOn := w.m.block("seed mem", 0)
	rewound := make(chan error, 1)
	go func() { rewound <- w.Rewind(t.Context(), s, snap.ID, 0) }()
	testkit.Within(t, "the rewind", there)
	var late [3]chan string
	for i, server := range []string{"own", "mem", "tree"} {
		late[i] = make(chan string, 1)
		go func() {
			if server == "tree" {
				late[i] <- do(context.Background(), t, s, server, "read", "path", "it")
				return
			}
			late[i] <- dump(t, s, server)
		}()
	}
	if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	letOn()
	if err := testkit.Within(t, "the rewind", rewound); err != nil {
		t.Fatal(failure(err))
	}
	for i, want := range []string{`{"it":"then"}`, `{"it":"then"}`, `"then"`} {
		if got := testkit.Within(t, "the call", late[i]); got != want {
			t.Errorf("a call that waited got %s, want %s", got, want)
		}
	}
	testkit.Eventually(t, "the snapshot is removed", func() bool { return !strings.Contains(strings.Join(w.left(), " "), snap.ID) })
	// From inside it can't be.
	w.frozen(s, "")
	inside, leave := entered(t, t.Context(), s, "rewind_session")
	defer leave()
	testkit.Has(t, "a rewind from inside", failure(w.Rewind(inside, s, w.frozenBeside(s).ID, time.Hour)), "refused: ", "own__rewind_session")
}

// A session is amended while it is rewound: neither undoes the other.
func TestAmendDuringARewind(t *testing.T) {
	w := newWorld(t, whole)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "then")
	snap := w.frozen(s, "")
	w.remember(s, "now")
	there, letOn := w.m.block("put sessions", 0)
	amended := make(chan error, 1)
	go func() { amended <- w.Amend(context.Background(), s, map[string]string{"a": "1"}, nil, nil) }()
	testkit.Within(t, "the amendment", there)
	rewound := make(chan error, 1)
	go func() { rewound <- w.Rewind(context.Background(), s, snap.ID, 0) }()
	select {
	case err := <-rewound: // it need not wait
		rewound <- err
	case <-time.After(50 * time.Millisecond): // nothing tells that it waits
	}
	letOn()
	if err := errors.Join(testkit.Within(t, "the amendment", amended), testkit.Within(t, "the rewind", rewound)); err != nil {
		t.Fatal(err)
	}
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).crash} {
		again(w, whole)
		s = w.Get(s.ID)
		w.remembers("both", s, "then")
		if got := w.Describe(s, false).Labels["a"]; got != "1" {
			t.Errorf("the label is %q", got)
		}
	}
}

// A closed session can't be amended back to life.
func TestAmendOfWhatIsClosed(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	w.CloseSession(t.Context(), s)
	if err := w.Amend(t.Context(), s, map[string]string{"a": "1"}, nil, nil); err == nil {
		t.Error("it was amended")
	}
	w.crash(kept)
	if n := len(w.Sessions()); n != 0 {
		t.Errorf("%d sessions came back", n)
	}
}

// A member whose driver keeps no states has none of a time that was undone.
func TestRewindOfWhatKeepsNothing(t *testing.T) {
	const yaml = kept + "  far: {url: \"http://127.0.0.1:9/mcp\", scope: session, fork: fresh}\n"
	w := makeWorld(t, yaml, func(w *world) { w.also = map[string]driver.Driver{"url": plain{w.m}} })
	s := w.opened(session.OpenOptions{})
	snap := w.frozen(s, "")
	before := do(t.Context(), t, s, "far", "x")
	w.rewound(s, snap.ID)
	if after := do(t.Context(), t, s, "far", "x"); after == before || !strings.Contains(after, "pid") {
		t.Errorf("it was %s and is %s", before, after)
	}
}

// plain is a driver without a Keeper.
type plain struct{ m *machine }

func (p plain) Info() driver.Info { return driver.Info{Name: "url"} }

func (p plain) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	return (&desk{p.m, p.m.generation(), "url"}).Start(ctx, spec)
}

func (p plain) Adopt(context.Context, driver.Handle, *slog.Logger) (driver.Instance, error) {
	return nil, driver.ErrGone
}

// frozenBeside returns some snapshot of a session that was made before.
func (w *world) frozenBeside(s *session.Session) api.Snapshot {
	for _, snap := range w.Snapshots() {
		if snap.Session == s.ID {
			return snap
		}
	}
	w.t.Fatal("there is none")
	return api.Snapshot{}
}

// A member that starts between a rewind and the removal of what was before it
// works in the new workspace.
func TestStartDuringARewind(t *testing.T) {
	w := newWorld(t, whole)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "then")
	snap := w.frozen(s, "")
	w.remember(s, "now")
	there, letOn := w.m.block("erase own", 0)
	rewound := make(chan error, 1)
	go func() { rewound <- w.Rewind(context.Background(), s, snap.ID, 0) }()
	testkit.Within(t, "the removal", there)
	up, _, err := s.Upstream("tree")
	if err == nil {
		_, err = up.Conn(t.Context()) // as a list does, which has no gate
	}
	if err != nil {
		t.Error(failure(err))
	}
	letOn()
	if err := testkit.Within(t, "the rewind", rewound); err != nil {
		t.Fatal(failure(err))
	}
	w.remembers("afterwards", s, "then")
}
