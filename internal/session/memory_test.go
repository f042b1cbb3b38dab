package session_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
)

const boxed1 = "servers: {box: {command: box, sandbox: true}}\n"

// A copy of a server that runs goes on where that is, and is not greeted again,
// however it came about.
func TestMemoryIsCarriedWithoutASecondHandshake(t *testing.T) {
	w := boxWorld(t, boxed1)
	ctx := t.Context()
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	children := w.fork(s, 2)
	set(t, s, "box", "a", "2")
	set(t, children[1], "box", "b", "3")
	wantDump(t, "a child", children[0], "box", `{"a":"1"}`)
	wantDump(t, "its sibling", children[1], "box", `{"a":"1","b":"3"}`)
	wantDump(t, "the parent", s, "box", `{"a":"2"}`)
	grand := w.fork(children[1], 1)[0]
	wantDump(t, "a grandchild", grand, "box", `{"a":"1","b":"3"}`)

	snap := w.frozen(s, "")
	set(t, s, "box", "a", "4")
	wantDump(t, "one opened from a snapshot", w.opened(session.OpenOptions{From: snap.ID}), "box", `{"a":"2"}`)
	if err := w.Rewind(ctx, s, snap.ID, 0); err != nil {
		t.Fatal(err)
	}
	wantDump(t, "the one rewound", s, "box", `{"a":"2"}`)

	var file bytes.Buffer
	if err := w.Export(ctx, snap.ID, nil, &file); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(file.Bytes(), []byte(`"hello":{"version":"2025-11-25"`)) {
		t.Error("the file does not have what the server said")
	}
	if n := w.m.greetings("box"); n != 1 {
		t.Errorf("%d handshakes with the first and all that came of it", n)
	}
	if got := w.boxes.carried(); got != "memory" {
		t.Errorf("freezes were to carry %q", got)
	}
}

func TestFilesAloneAreCarriedWhereTheConfigSaysSo(t *testing.T) {
	w := boxWorld(t, "servers: {box: {command: box, sandbox: true, fork: files, state: [d]}}\n")
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	w.fork(s, 1)
	if got := w.boxes.carried(); got != "files" {
		t.Errorf("freezes were to carry %q", got)
	}
}

// What ends though its session stays does not forget.
func TestMemoryRests(t *testing.T) {
	ctx := context.Background()
	setup := func(t *testing.T) (*world, *session.Session) {
		w := boxWorld(t, boxed1)
		s := w.opened(session.OpenOptions{})
		set(t, s, "box", "a", "1")
		return w, s
	}
	check := func(t *testing.T, w *world, s *session.Session, hellos int) {
		t.Helper()
		wantDump(t, "what it knows", w.Get(s.ID), "box", `{"a":"1"}`)
		if n := w.m.greetings("box"); n != hellos {
			t.Errorf("%d handshakes", n)
		}
	}
	t.Run("over a stop that leaves nothing running", func(t *testing.T) {
		w, s := setup(t)
		w.close(false)
		w.runs("")
		w.open(boxed1)
		check(t, w, s, 1)
	})
	t.Run("while its server is off", func(t *testing.T) {
		w, s := setup(t)
		off, on := false, true
		if err := w.Change(ctx, "box", session.Change{Enabled: &off}); err != nil {
			t.Fatal(err)
		}
		w.runs("")
		if err := w.Change(ctx, "box", session.Change{Enabled: &on}); err != nil {
			t.Fatal(err)
		}
		check(t, w, s, 1)
	})
	t.Run("while its server is off in the next gateway", func(t *testing.T) {
		w := boxWorld(t, boxed1)
		s := w.session("me") // which follows the config
		set(t, s, "box", "a", "1")
		w.reopen("servers: {box: {command: box, sandbox: true, enabled: false}}\n")
		w.runs("")
		w.reopen(boxed1)
		check(t, w, s, 1)
	})
	t.Run("of an unused session", func(t *testing.T) {
		w := boxWorld(t, boxed1)
		s := w.session("me")
		set(t, s, "box", "a", "1")
		w.Suspend(s)
		w.runs("")
		check(t, w, s, 1)
	})
	t.Run("and a fork of one that rests has it too", func(t *testing.T) {
		w, s := setup(t)
		w.close(false)
		w.open(boxed1)
		child := w.fork(w.Get(s.ID), 1)[0]
		check(t, w, child, 1)
	})
	t.Run("but not where it can't, nor where the session is closed", func(t *testing.T) {
		w, s := setup(t)
		w.boxes.broken = errors.New("it has the network of the host")
		w.close(false)
		w.runs("")
		w.boxes.broken = nil
		w.open(boxed1)
		wantDump(t, "what it knows", w.Get(s.ID), "box", `{}`)
		if err := w.CloseSession(ctx, w.Get(s.ID)); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, w)
	})
	t.Run("and not where another program takes its place", func(t *testing.T) {
		w := boxWorld(t, boxed1)
		s := w.session("me")
		set(t, s, "box", "a", "1")
		w.apply("servers: {box: {command: box, args: [x], sandbox: true}}\n")
		wantDump(t, "what it knows", s, "box", `{}`)
	})
}
