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

// kept has servers whose state a fork carries: a program's, that of one inside
// the binary, and one that all sessions share.
const kept = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"]}
  mem: {builtin: memory}
  all: {command: all, scope: shared}
`

// entered lets a call in that ends when leave is called.
func entered(t *testing.T, ctx context.Context, s *session.Session, tool string) (context.Context, func()) {
	t.Helper()
	ctx, leave, err := s.Enter(ctx, "own", tool)
	if err != nil {
		t.Fatal(failure(err))
	}
	return ctx, leave
}

// frozenNow reports whether the gate is closed for calls.
func frozenNow(s *session.Session) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, leave, err := s.Enter(ctx, "own", "x")
	if err == nil {
		leave()
	}
	return err != nil
}

// forking forks in the background and hands out how it ended.
func (w *world) forking(ctx context.Context, s *session.Session, o session.ForkOptions) <-chan error {
	out := make(chan error, 1)
	o.Count = max(o.Count, 1)
	go func() {
		_, err := w.Fork(ctx, s, o)
		out <- err
	}()
	return out
}

func TestForkWaitsForCallsAndCallsForIt(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	_, leave := entered(t, t.Context(), s, "slow")
	_, leaveToo := entered(t, t.Context(), s, "slower")
	forked := w.forking(t.Context(), s, session.ForkOptions{})
	testkit.Eventually(t, "the gate is frozen", func() bool { return frozenNow(s) })
	late := make(chan string, 1)
	go func() { late <- do(context.Background(), t, s, "own", "set", "k", "b", "v", "2") }()
	// What all share has no gate, and a call without one is not waited for.
	testkit.Has(t, "a shared call", do(t.Context(), t, s, "all", "x"), "pid")
	leave()
	select {
	case err := <-forked:
		t.Fatalf("the fork did not wait: %v", err)
	case got := <-late:
		t.Fatalf("the call did not wait: %s", got)
	default:
	}
	leaveToo()
	if err := testkit.Within(t, "the fork", forked); err != nil {
		t.Fatal(err)
	}
	if got := testkit.Within(t, "the call", late); got != `"ok"` {
		t.Errorf("the call that waited got %s", got)
	}
	for _, child := range w.Sessions() {
		if child.Parent == s.ID {
			wantDump(t, "the child", child, "own", `{"a":"1"}`)
		}
	}
	wantDump(t, "the parent", s, "own", `{"a":"1","b":"2"}`)
}

func TestForkWaitsOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "sessions: {fork_wait: 20s, idle: 0}\n"+kept)
		s := w.opened(session.OpenOptions{})
		_, leave := entered(t, t.Context(), s, "oldest")
		time.Sleep(10 * time.Second)
		_, leaveToo := entered(t, t.Context(), s, "younger")
		for _, tt := range []struct {
			wait, took time.Duration
			since      string
		}{{0, 20 * time.Second, "30s"}, {5 * time.Second, 5 * time.Second, "35s"}} {
			began := time.Now()
			_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1, Wait: tt.wait})
			testkit.Has(t, "the error", failure(err), "timeout: ", "own__oldest", "running for "+tt.since, "fork_wait", "1 more")
			if took := time.Since(began); took != tt.took {
				t.Errorf("with a wait of %v it took %v", tt.wait, took)
			}
			if frozenNow(s) {
				t.Error("the gate is frozen after a fork that gave up")
			}
		}
		leave()
		leaveToo()
		// With no call inside there is nothing to wait for, however short the wait.
		if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1, Wait: -1}); err != nil {
			t.Error(failure(err))
		}
		// Who asked may leave.
		_, leave = entered(t, t.Context(), s, "again")
		ctx, cancel := context.WithCancel(t.Context())
		forked := w.forking(ctx, s, session.ForkOptions{})
		synctest.Wait()
		if !frozenNow(s) {
			t.Error("the gate is open while a fork waits")
		}
		cancel()
		if err := <-forked; err == nil {
			t.Error("a fork that was given up succeeded")
		}
		if frozenNow(s) {
			t.Error("the gate is frozen after a fork that was given up")
		}
		leave()
		if n := len(w.Sessions()); n != 2 {
			t.Errorf("%d sessions", n)
		}
	})
}

// A call that waits for a person has no copy that would get the answer.
func TestForkRefusesWhileACallIsParked(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	inside, leave := entered(t, t.Context(), s, "ask")
	s.Park(inside, true)
	_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1, Wait: time.Hour})
	testkit.Has(t, "a fork beside a parked call", failure(err), "refused: ", "own__ask")
	s.Park(t.Context(), true) // of no call
	// Two questions of one call.
	s.Park(inside, true)
	s.Park(inside, false)
	_, err = w.Fork(t.Context(), s, session.ForkOptions{Count: 1, Wait: time.Hour})
	testkit.Has(t, "a fork with one question left", failure(err), "refused: ", "own__ask")
	s.Park(inside, false)
	// It is parked while a fork waits for it.
	forked := w.forking(t.Context(), s, session.ForkOptions{Wait: time.Hour})
	testkit.Eventually(t, "the fork waits", func() bool { return frozenNow(s) })
	s.Park(inside, true)
	testkit.Has(t, "the fork that waited", failure(testkit.Within(t, "its end", forked)), "refused: ", "own__ask")
	if frozenNow(s) {
		t.Error("the gate is frozen after a refusal")
	}
	// A call that was parked and left is no obstacle.
	leave()
	if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1}); err != nil {
		t.Error(failure(err))
	}
}

// What a call inside causes must not wait for the fork that waits for the call.
func TestNestedCallsRideOnTheirParent(t *testing.T) {
	w := newWorld(t, "sessions: {instances: 20}\n"+kept)
	s, other := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	inside, leave := entered(t, t.Context(), s, "outer")
	forked := w.forking(t.Context(), s, session.ForkOptions{Wait: time.Hour})
	testkit.Eventually(t, "the fork waits", func() bool { return frozenNow(s) })
	nested := make(chan string, 1)
	go func() { nested <- do(inside, t, s, "own", "set", "k", "n", "v", "1") }()
	if got := testkit.Within(t, "the nested call", nested); got != `"ok"` {
		t.Errorf("the nested call got %s", got)
	}
	// The entry is one of this session, not of others.
	if got := do(inside, t, other, "own", "dump"); got != `{}` {
		t.Errorf("a call into another session got %s", got)
	}
	if got := w.Describe(s, false).InFlight; got != 1 {
		t.Errorf("%d calls are running", got)
	}
	leave()
	if err := testkit.Within(t, "the fork", forked); err != nil {
		t.Error(failure(err))
	}
	// A call can't freeze what it runs in, but may fork another session.
	inside, leave = entered(t, t.Context(), s, "fork_session")
	defer leave()
	_, err := w.Fork(inside, s, session.ForkOptions{Count: 1, Wait: time.Hour})
	testkit.Has(t, "a fork from inside", failure(err), "refused: ", "own__fork_session")
	_, err = w.Fork(inside, s, session.ForkOptions{Count: 100, Wait: time.Hour}) // for which there is no room
	testkit.Has(t, "a large fork from inside", failure(err), "refused: ", "own__fork_session")
	_, err = w.Freeze(inside, s, session.SnapshotOptions{Wait: time.Hour})
	testkit.Has(t, "a snapshot from inside", failure(err), "refused: ", "own__fork_session")
	if _, err := w.Fork(inside, other, session.ForkOptions{Count: 1}); err != nil {
		t.Errorf("a fork of another session: %s", failure(err))
	}
}

// A program that asks over HTTP says which call it is in. It is told at once that
// it would wait for itself; once the call is over its id means nothing.
func TestARequestThatSaysItsCall(t *testing.T) {
	w := newWorld(t, "sessions: {instances: 20}\n"+kept)
	s, other := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	snap, err := w.Freeze(t.Context(), s, session.SnapshotOptions{})
	if err != nil {
		t.Fatal(failure(err))
	}
	inside, leave := entered(t, t.Context(), s, "search")
	if s.CallID(inside) == "" || s.CallID(t.Context()) != "" || other.CallID(inside) != "" {
		t.Fatalf("ids %q, %q, %q", s.CallID(inside), s.CallID(t.Context()), other.CallID(inside))
	}
	says := session.FromCall(t.Context(), s.CallID(inside))
	_, err = w.Fork(says, s, session.ForkOptions{Count: 1, Wait: time.Hour})
	testkit.Has(t, "a fork", failure(err), "refused: ", "own__search can't freeze the session that it runs in")
	_, err = w.Freeze(says, s, session.SnapshotOptions{Wait: time.Hour})
	testkit.Has(t, "a snapshot", failure(err), "refused: ", "own__search")
	testkit.Has(t, "a rewind", failure(w.Rewind(says, s, snap.ID, time.Hour)), "refused: ", "own__search")
	if _, err := w.Fork(says, other, session.ForkOptions{Count: 1}); err != nil {
		t.Errorf("a fork of another session: %s", failure(err))
	}
	// A request that names another call waits, like any from outside.
	forged := session.FromCall(t.Context(), "call_0")
	_, err = w.Fork(forged, s, session.ForkOptions{Count: 1, Wait: time.Millisecond})
	testkit.Has(t, "a fork from outside", failure(err), "timeout: ", "own__search")
	leave()
	if _, err := w.Fork(says, s, session.ForkOptions{Count: 1}); err != nil {
		t.Errorf("a fork after the call: %s", failure(err))
	}
}

func TestFreezesOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kept)
		s := w.opened(session.OpenOptions{})
		set(t, s, "own", "a", "1")
		there, letOn := w.m.block("freeze own", 0)
		first := w.forking(t.Context(), s, session.ForkOptions{})
		<-there
		_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1, Wait: time.Second})
		testkit.Has(t, "a second one that does not wait", failure(err), "timeout: ", "still running")
		second := w.forking(t.Context(), s, session.ForkOptions{Wait: time.Hour})
		// A call gives up waiting for the first one.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Has(t, "a call that gives up", do(ctx, t, s, "own", "dump"), "refused: ", "given up")
		synctest.Wait()
		letOn()
		for _, c := range []<-chan error{first, second} {
			if err := <-c; err != nil {
				t.Error(failure(err))
			}
		}
		if n := len(w.Sessions()); n != 3 {
			t.Errorf("%d sessions", n)
		}
		wantDump(t, "after both", s, "own", `{"a":"1"}`)
	})
}

// wantLeft sees whether exactly these lie in the folders of sessions and
// snapshots, one level deep.
func wantLeft(t *testing.T, w *world, want ...string) {
	t.Helper()
	got := []string{}
	for _, path := range w.left() {
		if strings.Count(path, "/") == 1 {
			got = append(got, path[strings.Index(path, "/")+1:])
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q is left, want %q", got, want)
	}
}

// TestEveryToolCallIsCounted checks that a session counts its calls to servers that
// it shares, too.
func TestEveryToolCallIsCounted(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	for _, server := range []string{"own", "mem", "all"} {
		for _, tool := range []string{"x", ""} { // what is no tool's call is not counted
			_, leave, err := s.Enter(t.Context(), server, tool)
			if err != nil {
				t.Fatal(failure(err))
			}
			leave()
		}
	}
	if got := w.Describe(s, false).Calls; got != 3 {
		t.Errorf("%d calls are counted, want 3", got)
	}
}

// What waits in vain for a call is not called a fork where it is a snapshot.
func TestASnapshotThatWaitsInVain(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	_, leave := entered(t, t.Context(), s, "slow")
	defer leave()
	_, err := w.Freeze(t.Context(), s, session.SnapshotOptions{Wait: time.Millisecond})
	testkit.Has(t, "a snapshot", failure(err), "timeout: call own__slow", "forks, snapshots and rewinds wait")
}
