package session_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

const ways = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"]}
  unknown: {command: unknown}
  anew: {command: anew, fork: fresh}
  both: {command: both, fork: share}
`

// What was never started has nothing to lose; what was refuses by name, before
// anything has happened.
func TestForkRefusesWhatItCannotCarry(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	child := w.fork(s, 1)[0]
	set(t, child, "unknown", "a", "1")
	before := strings.Join(w.left(), " ")
	_, leave := entered(t, t.Context(), child, "slow") // no fork waits for it in vain
	defer leave()
	for what, try := range map[string]func() error{
		"a fork":     func() error { _, err := w.Fork(t.Context(), child, session.ForkOptions{Count: 1}); return err },
		"a snapshot": func() error { _, err := w.Freeze(t.Context(), child, session.SnapshotOptions{}); return err },
	} {
		testkit.Has(t, what, failure(try()), "refused: ", `"unknown"`, "servers.unknown.state", "${state.", "fresh or share")
	}
	if got := strings.Join(w.left(), " "); got != before {
		t.Errorf("left is %s, and it was %s", got, before)
	}
	// The other one can still be.
	w.fork(s, 1)
	if m := w.Describe(child, true).Members; len(m) != 4 || m[1].Fork != "refuse" || m[2].Fork != "fresh" || m[3].Fork != "share" || m[0].Fork != "files" {
		t.Errorf("the members are %+v", m)
	}
	// It may also be what the config wants.
	w.apply(ways + "  never: {builtin: memory, fork: refuse}\n")
	s = w.opened(session.OpenOptions{})
	set(t, s, "never", "a", "1")
	_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1})
	testkit.Has(t, "a fork", failure(err), "refused: ", "servers.never.fork")
}

func TestForkBeginsAnew(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "anew", "a", "1")
	child := w.fork(s, 1)[0]
	wantDump(t, "the child", child, "anew", `{}`)
	set(t, child, "anew", "b", "2")
	wantDump(t, "the parent", s, "anew", `{"a":"1"}`)
	snap := w.frozen(s, "")
	wantDump(t, "one opened from a snapshot", w.opened(session.OpenOptions{From: snap.ID}), "anew", `{}`)
}

// One instance for a session and its forks: it outlives the one it was first
// used in, and ends with the last that uses it.
func TestForkShares(t *testing.T) {
	for name, again := range map[string]func(*world, string){
		"": func(*world, string) {}, "over a restart": (*world).reopen, "over a crash": (*world).crash,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, ways)
			get := func(s *session.Session) *session.Session {
				t.Helper()
				got := w.Get(s.ID)
				if got == nil {
					t.Fatalf("session %s is gone", s.ID)
				}
				return got
			}
			s := w.opened(session.OpenOptions{})
			set(t, s, "both", "a", "1")
			pid := do(t.Context(), t, s, "both", "x")
			children := w.fork(s, 2)
			grand := w.fork(children[0], 1)[0]
			again(w, ways)
			for _, c := range []*session.Session{s, children[0], grand} {
				if got := do(t.Context(), t, get(c), "both", "x"); got != pid {
					t.Errorf("session %s uses %s, and the first one %s", c.ID, got, pid)
				}
			}
			set(t, get(grand), "both", "b", "2")
			wantDump(t, "the first", get(s), "both", `{"a":"1","b":"2"}`)
			w.CloseSession(t.Context(), get(s))
			again(w, ways)
			wantDump(t, "a fork after the end of the first", get(grand), "both", `{"a":"1","b":"2"}`)
			set(t, get(children[0]), "both", "c", "3")
			w.CloseSession(t.Context(), get(children[0]))
			w.CloseSession(t.Context(), get(grand))
			again(w, ways)
			// The last one has never used it.
			wantDump(t, "the last", get(children[1]), "both", `{"a":"1","b":"2","c":"3"}`)
			if got := do(t.Context(), t, get(children[1]), "both", "x"); got != pid {
				t.Errorf("the last one uses %s, and the first one %s", got, pid)
			}
			w.CloseSession(t.Context(), get(children[1]))
			w.runs("")
			wantLeft(t, w)
			if got := w.handles(); got != "" {
				t.Errorf("handles of %s are left", got)
			}
			again(w, ways)
			wantLeft(t, w)
			w.runs("")
		})
	}
}

// The parent ends before any of its children has used what they share.
func TestForkSharesWithTheOrphan(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "both", "a", "1")
	child := w.fork(s, 1)[0]
	w.CloseSession(t.Context(), s)
	wantDump(t, "the child", child, "both", `{"a":"1"}`)
	w.CloseSession(t.Context(), child)
	w.runs("")
	wantLeft(t, w)
}

// The parent ends while its children are made.
func TestCloseWhileChildrenAreMade(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	set(t, s, "both", "a", "1")
	there, letOn := w.m.block("seed own", 1)
	forked := w.forking(t.Context(), s, session.ForkOptions{Count: 3})
	testkit.Within(t, "the second child", there)
	w.CloseSession(t.Context(), s)
	letOn()
	if err := testkit.Within(t, "the fork", forked); err != nil {
		t.Fatal(failure(err))
	}
	if w.Get(s.ID) != nil {
		t.Error("the parent is open")
	}
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).crash} {
		again(w, ways)
		if n := len(w.Sessions()); n != 3 {
			t.Errorf("%d sessions", n)
		}
		for _, c := range w.Sessions() {
			wantDump(t, "a child", c, "own", `{"a":"1"}`)
			wantDump(t, "a child", c, "both", `{"a":"1"}`)
		}
	}
	for _, c := range w.Sessions() {
		w.CloseSession(t.Context(), c)
	}
	w.runs("")
	wantLeft(t, w)
}

// What failed to be forked shares nothing, and what was shared before still is.
func TestForkThatFailsSharesNothing(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	set(t, s, "both", "a", "1")
	for _, point := range []string{"put sessions", "seed own", "seed own"} {
		w.m.fail(point, 0)
		if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 2}); err == nil {
			t.Fatalf("it succeeded at %s", point)
		}
		wantDump(t, "the parent", s, "both", `{"a":"1"}`)
	}
	w.CloseSession(t.Context(), s)
	w.runs("")
	wantLeft(t, w)
	w.reopen(ways)
	if n := len(w.Sessions()); n != 0 {
		t.Errorf("%d sessions came back", n)
	}
}

// Two members see one workspace; it can't be shared with a fork.
func TestForkSharesNoWorkspace(t *testing.T) {
	w := newWorld(t, `
servers:
  prog: {command: prog, workspace: true, fork: share}
`)
	s := w.opened(session.OpenOptions{})
	_, err := w.Fork(context.Background(), s, session.ForkOptions{Count: 1})
	testkit.Has(t, "the fork", failure(err), "refused: ", `"prog"`, "workspace", "servers.prog.fork")
}
