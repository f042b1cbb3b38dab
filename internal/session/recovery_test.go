package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

const lasting = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"]}
  mem: {builtin: memory}
  tree: {builtin: files}
  both: {command: both, fork: share}
`

// Sessions whose time was over while no gateway ran are closed, with why.
func TestTimeGoesOnWithoutAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yaml = "sessions: {idle: 10h}\njournal: {max_age: 2d}\n" + lasting
		w := newWorld(t, yaml)
		expired := w.opened(session.OpenOptions{TTL: time.Hour})
		idle := w.opened(session.OpenOptions{Idle: 2 * time.Hour})
		lasts := w.opened(session.OpenOptions{Idle: -1})
		closed := w.opened(session.OpenOptions{})
		for _, s := range []*session.Session{expired, idle, lasts, closed} {
			w.remember(s, "x")
		}
		children := w.fork(expired, 1)
		w.CloseSession(t.Context(), closed)
		w.close(true)
		time.Sleep(5 * time.Hour)
		w.open(yaml)
		ended := func(s *session.Session, why string) {
			t.Helper()
			if w.Get(s.ID) != nil {
				t.Errorf("%s came back", s.ID)
			}
			got, ok, err := w.Closed(t.Context(), s.ID)
			if err != nil || !ok || !strings.Contains(got.Reason, why) || why == "" && got.Reason != "" {
				t.Errorf("it is remembered as %+v, %v, %v", got, ok, err)
			}
		}
		ended(expired, "time to live")
		ended(closed, "")
		// While no gateway ran it could not be used.
		w.remembers("one that was not used", w.Get(idle.ID), "x")
		time.Sleep(2*time.Hour + time.Minute)
		synctest.Wait()
		ended(idle, "not used for 2h")
		w.remembers("one that lasts", w.Get(lasts.ID), "x")
		w.remembers("a child of one that ended", w.Get(children[0].ID), "x")
		w.sound()
		// The gateway closes them itself, too.
		short := w.opened(session.OpenOptions{TTL: time.Minute})
		w.remember(short, "y")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got, ok, err := w.Closed(t.Context(), short.ID)
		if err != nil || !ok || !strings.Contains(got.Reason, "time to live") {
			t.Errorf("it is remembered as %+v, %v, %v", got, ok, err)
		}
		testkit.Has(t, "a call", do(t.Context(), t, short, "own", "dump"), "refused: ", "closed")
		// Closing it again does not change why.
		w.CloseSession(t.Context(), short)
		if again, _, _ := w.Closed(t.Context(), short.ID); again.Reason != got.Reason {
			t.Errorf("the reason is %q now", again.Reason)
		}
		w.sound()
		// They are forgotten when the journal has nothing of them, unless one that
		// was forked from them lives.
		stay := w.Get(children[0].ID)
		if err := w.Amend(t.Context(), stay, nil, nil, new(-time.Second)); err != nil {
			t.Fatal(err)
		}
		w.close(true)
		time.Sleep(72 * time.Hour)
		w.open(yaml)
		synctest.Wait()
		for _, s := range []*session.Session{short, idle, closed} {
			if _, ok, _ := w.Closed(t.Context(), s.ID); ok {
				t.Errorf("%s is still remembered", s.ID)
			}
		}
		if _, ok, _ := w.Closed(t.Context(), expired.ID); !ok {
			t.Error("the parent of a session that lives is forgotten")
		}
		w.remembers("one that lasts", w.Get(lasts.ID), "x")
	})
}

// Two things start and freeze at once: neither waits for the other for ever.
func TestFreezeWhileAMemberStarts(t *testing.T) {
	for _, what := range []string{"fork", "rewind"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, kept)
			s := w.opened(session.OpenOptions{})
			set(t, s, "own", "it", "then")
			snap := w.frozen(s, "")
			w.m.one("own").kill() // its state is there, and it is about to start again
			there, letOn := w.m.block("seed mem", 0)
			begun := make(chan error, 2)
			begin := func(server string) {
				up, _, err := s.Upstream(server)
				if err == nil {
					_, err = up.Conn(context.Background()) // as a list does, which has no gate
				}
				begun <- err
			}
			go begin("mem")
			testkit.Within(t, "the start of mem", there)
			done := make(chan error, 1)
			go func() {
				if what == "rewind" {
					done <- w.Rewind(context.Background(), s, snap.ID, 0)
					return
				}
				_, err := w.Fork(context.Background(), s, session.ForkOptions{Count: 1})
				done <- err
			}()
			// It either waits for the running call, or need not.
			testkit.Eventually(t, "it is running", func() bool { return len(done) > 0 || frozenNow(s) })
			go begin("own")
			testkit.Eventually(t, "own is starting", func() bool {
				up := s.Peek("own")
				return up != nil && up.Started()
			})
			letOn()
			if err := testkit.Within(t, "the end of the "+what, done); err != nil {
				t.Error(failure(err))
			}
			for range 2 {
				if err := testkit.Within(t, "a start", begun); err != nil && what == "fork" {
					t.Error(failure(err))
				}
			}
			wantDump(t, "afterwards", s, "own", `{"it":"then"}`)
			wantDump(t, "afterwards", s, "mem", `{}`)
		})
	}
}

// A member that is not held yet, as after a restart, does not begin to work on
// its state while that is taken down.
func TestStartWhileAStateIsFrozen(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "mem", "it", "then")
	w.reopen(kept)
	s = w.Get(s.ID)
	there, letOn := w.m.block("freeze mem", 0)
	forked := w.forking(t.Context(), s, session.ForkOptions{})
	testkit.Within(t, "the freeze", there)
	begun := make(chan error, 1)
	go func() {
		up, _, err := s.Upstream("mem")
		if err == nil {
			_, err = up.Conn(context.Background())
		}
		begun <- err
	}()
	select {
	case err := <-begun:
		t.Errorf("it began: %v", err)
	case <-time.After(20 * time.Millisecond): // nothing tells that it waits
		defer func() {
			if err := testkit.Within(t, "the start", begun); err != nil {
				t.Error(failure(err))
			}
		}()
	}
	letOn()
	if err := testkit.Within(t, "the fork", forked); err != nil {
		t.Error(failure(err))
	}
}
