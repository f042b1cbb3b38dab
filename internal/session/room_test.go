package session_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

func ownedBy(name string) session.OpenOptions {
	return session.OpenOptions{Owner: session.Owner{Name: name}, Wait: -1}
}

// Sessions whose servers don't run hold no room: one principal can't keep others
// out by opening.
func TestEmptySessionsNeedNoRoom(t *testing.T) {
	w := newWorld(t, "sessions: {wait: 0, memory: 350MiB, instances: 3}\n"+small)
	for range 269 {
		w.opened(ownedBy("hog"))
	}
	s := w.opened(ownedBy("ada"))
	set(t, s, "own", "a", "1")
	wantDump(t, "a fork", w.fork(s, 2)[1], "own", `{"a":"1"}`)
}

// A large request that waits at the head of the queue holds up none that fits.
func TestLargeRequestHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "sessions: {instances: 10, idle: 0}\n"+small)
		hog := w.opened(ownedBy("hog"))
		set(t, hog, "own", "a", "1")
		w.opened(session.OpenOptions{Owner: session.Owner{Name: "eve"}, Eager: true})
		forked := w.forking(t.Context(), hog, session.ForkOptions{Count: 9, Wait: time.Hour})
		synctest.Wait()
		for n := range 5 {
			s := w.opened(ownedBy("ada"))
			set(t, s, "own", "n", fmt.Sprint(n))
			w.CloseSession(t.Context(), s)
		}
		err := <-forked
		testkit.Has(t, "the hog", failure(err), "refused: ", "9 sessions need", "waited 10m0s instead of 1h0m0s", "sessions.max_wait")
	})
}

// Sessions that wait for room have no places yet: others may be opened meanwhile.
func TestWhoeverWaitsHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "sessions: {instances: 2, max: 4, idle: 0}\n"+small)
		hog, eve := w.opened(ownedBy("hog")), w.opened(ownedBy("eve"))
		set(t, hog, "own", "a", "1")
		set(t, eve, "own", "a", "1")
		forked := w.forking(t.Context(), hog, session.ForkOptions{Count: 1, Wait: time.Minute})
		synctest.Wait()
		w.opened(ownedBy("ada"))
		last := w.opened(ownedBy("ada"))
		_, _, err := w.OpenSession(t.Context(), ownedBy("ada"))
		testkit.Has(t, "a fifth", failure(err), "refused: ", "4 sessions are open and 4 may be")
		for _, p := range w.m.procs {
			if p.spec.Session == eve.ID {
				p.kill()
			}
		}
		testkit.Has(t, "the fork", failure(<-forked), "refused: ", "4 sessions are open and 4 may be")
		w.CloseSession(t.Context(), last)
		w.fork(hog, 1) // the room that was not used is free
	})
}

// A server that starts at its first call waits for room, is refused, and starts
// once there is room: when another one has ended, by itself or with its session.
func TestStartWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "sessions: {instances: 1, wait: 30s, idle: 0}\n"+small)
		first, second := w.opened(ownedBy("ada")), w.opened(ownedBy("bob"))
		set(t, first, "own", "a", "1")
		began := time.Now()
		got := dump(t, second, "own")
		testkit.Has(t, "a start without room", got, `refused: server "own": it needs 100 MiB and 1 instance;`, "1 of 1 instance are in use", "sessions.instances")
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("it waited for %v", waited)
		}
		up, _, err := second.Upstream("own")
		if err != nil {
			t.Fatal(err)
		}
		_, err = up.Conn(t.Context())
		var refused *api.Error
		if !errors.As(err, &refused) || !refused.Retryable || refused.RetryAfter == 0 || refused.Server != "own" {
			t.Errorf("another try: %+v", err)
		}
		// One that waits gets the room of one that ends.
		answers := make(chan string, 1)
		go func() { answers <- dump(t, second, "own") }()
		synctest.Wait()
		w.m.one("own").kill()
		if got := <-answers; got != `{}` {
			t.Errorf("after a death: %s", got)
		}
		testkit.Has(t, "the one that died", dump(t, first, "own"), "refused: ")
		w.CloseSession(t.Context(), second)
		wantDump(t, "after a close", first, "own", `{"a":"1"}`)
	})
}

// A fork needs what runs in the parent, for each child.
func TestForkNeedsWhatRuns(t *testing.T) {
	w := newWorld(t, "sessions: {wait: 0, memory: 310MiB, share: 100%}\n"+small)
	s := w.opened(ownedBy("ada"))
	if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 50}); err != nil {
		t.Errorf("a fork of what does not run: %s", failure(err))
	}
	set(t, s, "own", "a", "1")
	set(t, s, "mem", "a", "1")
	_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 3})
	testkit.Has(t, "a fork of three", failure(err), "refused: ", "3 sessions need 303 MiB and 3 instances", "servers: [mem, own]", "2 of this kind")
	children := w.fork(s, 2)
	if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1}); err == nil {
		t.Error("there is room for a third")
	}
	// What was reserved for a built-in server is there when that starts.
	w.apply("sessions: {wait: 0, memory: 303MiB, share: 100%}\n" + small)
	for _, c := range children {
		wantDump(t, "a child", c, "mem", `{"a":"1"}`)
		w.CloseSession(t.Context(), c)
	}
	w.fork(s, 2)
}

// What is adopted counts, and what is not running does not.
func TestRoomAfterRestart(t *testing.T) {
	const yaml = "sessions: {wait: 0, instances: 2}\n" + small
	w := newWorld(t, yaml)
	a, b := w.opened(ownedBy("ada")), w.opened(ownedBy("ada"))
	set(t, a, "own", "a", "1")
	set(t, b, "own", "a", "1")
	for range 3 {
		w.opened(ownedBy("ada"))
	}
	for name, restart := range map[string]func(string){"restart": w.reopen, "crash": w.crash} {
		restart(yaml)
		c := w.opened(ownedBy("bob"))
		testkit.Has(t, name, dump(t, c, "own"), "refused: ", "2 of 2 instances")
		w.CloseSession(t.Context(), w.Get(b.ID))
		wantDump(t, name, c, "own", `{}`)
		w.CloseSession(t.Context(), c)
		b = w.opened(ownedBy("ada"))
		set(t, b, "own", "a", "1")
	}
}

// Many that come and go leave nothing of the budget behind.
func TestRoomIsGivenBack(t *testing.T) {
	w := newWorld(t, "sessions: {wait: 20s, instances: 4, memory: 450MiB}\n"+small)
	var wg sync.WaitGroup
	for n := range 30 {
		wg.Go(func() {
			o := ownedBy(fmt.Sprint(n % 3))
			o.Wait, o.Eager = 20*time.Second, n%2 == 0
			s, _, err := w.OpenSession(context.Background(), o)
			if err != nil {
				t.Error(failure(err))
				return
			}
			if p := w.m.worksOn(filepath.Join(w.dir, "sessions", s.ID, "own")); p != nil && n%4 == 0 {
				p.kill()
			}
			if got := dump(t, s, "own"); !strings.HasPrefix(got, "{") && !strings.HasPrefix(got, "lost") {
				t.Error(got)
			}
			w.CloseSession(context.Background(), s)
		})
	}
	wg.Wait()
	w.runs("")
	s := w.opened(session.OpenOptions{Eager: true, Wait: -1})
	w.fork(s, 3)
}
