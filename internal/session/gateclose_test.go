package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestCloseAndFreeze(t *testing.T) {
	t.Run("while it waits for calls", func(t *testing.T) {
		w := newWorld(t, kept)
		s := w.opened(session.OpenOptions{})
		_, leave := entered(t, t.Context(), s, "slow")
		defer leave()
		forked := w.forking(t.Context(), s, session.ForkOptions{Wait: time.Hour})
		testkit.Eventually(t, "the fork waits", func() bool { return frozenNow(s) })
		late := make(chan string, 1)
		go func() { late <- do(context.Background(), t, s, "own", "dump") }()
		w.CloseSession(t.Context(), s)
		testkit.Has(t, "the fork", failure(testkit.Within(t, "its end", forked)), "refused: ", s.ID, "closed")
		testkit.Has(t, "the call that waited", testkit.Within(t, "its end", late), "refused: ", "closed")
		wantLeft(t, w)
	})
	t.Run("while it takes the state down", func(t *testing.T) {
		w := newWorld(t, kept)
		s := w.opened(session.OpenOptions{})
		set(t, s, "own", "a", "1")
		there, letOn := w.m.block("freeze own", 0)
		forked := w.forking(t.Context(), s, session.ForkOptions{})
		testkit.Within(t, "the freeze", there)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { w.CloseSession(t.Context(), s) })
		}
		letOn()
		if err := testkit.Within(t, "the fork", forked); err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(failure(err))
		}
		wg.Wait()
		for _, child := range w.Sessions() {
			wantDump(t, "the child", child, "own", `{"a":"1"}`)
			w.CloseSession(t.Context(), child)
		}
		wantLeft(t, w)
		w.reopen(kept)
		wantLeft(t, w)
	})
	t.Run("of the gateway", func(t *testing.T) {
		w := newWorld(t, kept)
		s := w.opened(session.OpenOptions{})
		_, leave := entered(t, t.Context(), s, "slow")
		defer leave()
		forked := w.forking(t.Context(), s, session.ForkOptions{Wait: time.Hour})
		testkit.Eventually(t, "the fork waits", func() bool { return frozenNow(s) })
		w.reopen(kept)
		if err := testkit.Within(t, "the fork", forked); err == nil {
			t.Error("a fork succeeded at the end of the gateway")
		}
		if w.Get(s.ID) == nil || len(w.Sessions()) != 1 {
			t.Errorf("%d sessions came back", len(w.Sessions()))
		}
	})
}

// Many at once: no call is lost, and every fork is of one moment.
func TestCallsAndForksAtOnce(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "n", "0")
	set(t, s, "mem", "n", "0")
	stop := make(chan struct{})
	var calls, forks sync.WaitGroup
	for c := range 3 {
		calls.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if c > 0 {
					do(t.Context(), t, s, "own", "set", "k", fmt.Sprint(c), "v", fmt.Sprint(n))
					continue
				}
				// Both in one call: a fork that saw one alone is of no moment.
				ctx, leave, err := s.Enter(t.Context(), "own", "both")
				if err != nil {
					t.Error(failure(err))
					return
				}
				do(ctx, t, s, "mem", "set", "k", "n", "v", fmt.Sprint(n))
				do(ctx, t, s, "own", "set", "k", "n", "v", fmt.Sprint(n))
				leave()
			}
		})
	}
	for range 2 {
		forks.Go(func() {
			for range 4 {
				f, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 2})
				if err != nil {
					t.Error(failure(err))
					return
				}
				for _, child := range f.Children {
					var own, mem struct{ N string }
					if err := errors.Join(json.Unmarshal([]byte(dump(t, child, "own")), &own), json.Unmarshal([]byte(dump(t, child, "mem")), &mem)); err != nil {
						t.Error(err)
					}
					if own != mem {
						t.Errorf("one member of a fork is at %s, the other at %s", own.N, mem.N)
					}
				}
			}
		})
	}
	forks.Wait()
	close(stop)
	calls.Wait()
	if n := len(w.Sessions()); n != 17 {
		t.Errorf("%d sessions", n)
	}
}
