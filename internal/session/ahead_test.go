package session_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

const ahead = "servers: {box: {command: box, sandbox: true, fork_ahead: true}, plain: {builtin: memory}}\n"

// freezes counts the snapshots that were made of a server.
func (m *machine) freezes(server string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.points {
		if p == "froze "+server {
			n++
		}
	}
	return n
}

// copied waits until a copy stands ready, and returns how many were made.
func (w *world) copied(more int) int {
	w.t.Helper()
	testkit.Eventually(w.t, "there is a copy", func() bool { return w.m.freezes("box") >= more && w.boxes.isReady() == 1 })
	return w.m.freezes("box")
}

func TestForkAheadIsAHandOver(t *testing.T) {
	w := boxWorld(t, ahead)
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	n := w.copied(1)
	a, b := w.fork(s, 2), w.fork(s, 1) // it is good for as long as nothing happens
	if got := w.m.freezes("box"); got != n {
		t.Errorf("%d snapshots were made for the forks", got-n)
	}
	for _, child := range append(a, b...) {
		wantDump(t, "a child", child, "box", `{"a":"1"}`)
	}
	set(t, a[0], "box", "a", "2")
	wantDump(t, "the parent", s, "box", `{"a":"1"}`)
	wantDump(t, "a sibling", a[1], "box", `{"a":"1"}`)
	if got := w.m.greetings("box"); got != 1 {
		t.Errorf("%d handshakes", got)
	}
	for _, child := range append(a, b...) {
		w.CloseSession(t.Context(), child)
	}
	w.CloseSession(t.Context(), s)
	testkit.Eventually(t, "nothing is left", func() bool { return len(w.left()) == 0 && w.boxes.isReady() == 0 })
}

// Whatever happened in between: the fork has it.
func TestForkAheadIsNeverWrong(t *testing.T) {
	for name, meanwhile := range map[string]func(*world, *session.Session){
		"a call": func(w *world, s *session.Session) { set(w.t, s, "box", "a", "2") },
		"a message that is no call": func(w *world, s *session.Session) {
			up := s.Peek("box")
			p := w.m.one("box")
			p.mu.Lock()
			p.state["a"] = "2" // what the message made of it
			p.mu.Unlock()
			if err := up.Peek().Forward(context.Background(), "notifications/roots/list_changed", nil); err != nil {
				w.t.Fatal(err)
			}
		},
		"something that the server said": func(w *world, s *session.Session) {
			p := w.m.one("box")
			p.mu.Lock()
			p.state["a"] = "2"
			p.mu.Unlock()
			up := s.Peek("box")
			before := up.Mark()
			p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			testkit.Eventually(w.t, "it is heard", func() bool { return up.Mark() != before })
		},
		"its death": func(w *world, s *session.Session) {
			w.m.one("box").kill()
			testkit.Eventually(w.t, "it is seen", func() bool { return s.Peek("box").Mark() == "" })
			testkit.Has(w.t, "the call after its death", call(w.t, s, "box", "dump"), "lost: ", `server "box"`)
			set(w.t, s, "box", "a", "2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := boxWorld(t, ahead)
			s := w.opened(session.OpenOptions{})
			set(t, s, "box", "a", "1")
			w.copied(1)
			meanwhile(w, s)
			wantDump(t, "a child", w.fork(s, 1)[0], "box", `{"a":"2"}`)
		})
	}
	t.Run("a rewind", func(t *testing.T) {
		w := boxWorld(t, ahead)
		s := w.opened(session.OpenOptions{})
		set(t, s, "box", "a", "1")
		snap := w.frozen(s, "")
		set(t, s, "box", "a", "2")
		w.copied(2)
		if err := w.Rewind(t.Context(), s, snap.ID, 0); err != nil {
			t.Fatal(err)
		}
		wantDump(t, "a child", w.fork(s, 1)[0], "box", `{"a":"1"}`)
	})
	t.Run("many at once", func(t *testing.T) {
		w := boxWorld(t, ahead)
		s := w.opened(session.OpenOptions{})
		for round := range 10 {
			want := string(rune('a' + round))
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { do(t.Context(), t, s, "box", "dump") })
			}
			wg.Wait()
			set(t, s, "box", "at", want)
			child := w.fork(s, 1)[0]
			wantDump(t, "a child", child, "box", `{"at":"`+want+`"}`)
			w.CloseSession(t.Context(), child)
		}
	})
}

// Copying must not make a call wait that comes while another is inside, and
// comes to an end where it can't be done.
func TestForkAheadGivesWay(t *testing.T) {
	t.Run("to a call of another server", func(t *testing.T) {
		w := boxWorld(t, ahead)
		s := w.opened(session.OpenOptions{})
		_, leave := entered(t, t.Context(), s, "slow")
		set(t, s, "box", "a", "1")
		leave()
		w.copied(1) // when that is over
	})
	t.Run("where it fails", func(t *testing.T) {
		w := boxWorld(t, ahead)
		s := w.opened(session.OpenOptions{})
		w.m.mu.Lock()
		for range 3 {
			w.m.faults = append(w.m.faults, &fault{point: "freeze box", do: func(context.Context) error { return errFailed }})
		}
		w.m.mu.Unlock()
		for tries := 1; tries <= 3; tries++ {
			set(t, s, "box", "a", "1")
			testkit.Eventually(t, "it was tried", func() bool {
				w.m.mu.Lock()
				defer w.m.mu.Unlock()
				return len(w.m.faults) <= 3-tries
			})
		}
		wantDump(t, "a child", w.fork(s, 1)[0], "box", `{"a":"1"}`)
		w.CloseSession(t.Context(), s)
	})
	t.Run("over a crash", func(t *testing.T) {
		w := boxWorld(t, ahead)
		s := w.opened(session.OpenOptions{})
		set(t, s, "box", "a", "1")
		w.copied(1)
		w.boxes = &boxes{}
		w.crash(ahead)
		wantLeft(t, w, s.ID)
		wantDump(t, "the session", w.Get(s.ID), "box", `{"a":"1"}`)
	})
}
