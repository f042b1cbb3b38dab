package session_test

import (
	"testing"

	"github.com/tine-mcp/tine/internal/session"
)

// The driver hears how many are to come before anything of the parent is taken
// down, and when all of them are there or none will be.
func TestForkIsExpected(t *testing.T) {
	w := boxWorld(t, "servers: {box: {command: box, sandbox: true}, idle: {command: box, sandbox: true}, plain: {builtin: memory}}\n")
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	w.fork(s, 3)
	if got := w.boxes.expected(); got != "box 3, over" {
		t.Errorf("it heard %q", got)
	}
	w.m.fail("freeze box", 0)
	if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 2}); err == nil {
		t.Fatal("it was forked")
	}
	if got := w.boxes.expected(); got != "box 3, over, box 2, over" {
		t.Errorf("it heard %q", got)
	}
}
