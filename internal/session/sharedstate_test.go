package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// The lost state of a server that several sessions share damages those that called it,
// and those made of them, and no other. What is advised is not a rewind, and an
// operator can have the server begin anew.
func TestLostStateOfASharedServer(t *testing.T) {
	const yaml = forgetful + "  notes: {command: notes, scope: shared, args: ['${state.data}'], state: [data]}\n" +
		"  both: {command: both, fork: share, args: ['${state.data}'], state: [data]}\n"
	for _, server := range []string{"notes", "both"} {
		t.Run(server, func(t *testing.T) {
			w := newWorld(t, yaml)
			w.m.loses = true
			s, unused := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
			set(t, s, server, "a", "1")
			child := w.fork(s, 1)[0]
			snap := w.frozen(s, "base")
			w.close(false)
			w.open(yaml)
			from := w.opened(session.OpenOptions{From: snap.ID})
			home := "shared"
			if server == "both" {
				home = s.ID
			}
			at := filepath.Join(w.dir, "sessions", home, server)
			if err := os.RemoveAll(at); err != nil {
				t.Fatal(err)
			}
			s, child, unused = w.Get(s.ID), w.Get(child.ID), w.Get(unused.ID)
			got := callIn(t, child, server, "x")
			testkit.Has(t, "a call", got, "lost: ", at+" is gone; put it back, or make the empty file "+at+"~anew", "a rewind does not bring it back")
			if strings.Contains(got, "rewind the session") {
				t.Errorf("a call: %s", got)
			}
			marked := func(s *session.Session, why string) {
				t.Helper()
				for _, d := range s.Damaged() {
					if d.Server == server && strings.Contains(d.Why, why) {
						return
					}
				}
				t.Errorf("session %s is damaged by %q, not by %q", s.ID, damaged(s.Damaged()), why)
			}
			marked(s, "is gone")
			marked(child, "is gone")
			if server == "notes" {
				marked(from, "is gone")
				// One that did not call it before has lost nothing.
				testkit.Has(t, "a call of another", callIn(t, unused, server, "x"), "lost: ")
			}
			wantDamage(t, "another", unused.Damaged(), "")
			w.close(false)
			if err := os.WriteFile(at+"~anew", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			w.open(yaml)
			s, child = w.Get(s.ID), w.Get(child.ID)
			testkit.Has(t, "the first call after", callIn(t, s, server, "x"), "lost: ", "begin anew")
			wantDump(t, "the second", s, server, `{}`)
			marked(child, "begin anew")
			set(t, s, server, "a", "2")
			w.close(false)
			w.open(yaml)
			if server == "notes" { // also who is made of what was before, later
				late := w.opened(session.OpenOptions{From: snap.ID})
				marked(late, "begin anew")
				testkit.Has(t, "its first call", callIn(t, late, server, "x"), "lost: ", "begin anew")
				wantDamage(t, "one from a snapshot of after", w.opened(session.OpenOptions{From: w.frozen(w.opened(session.OpenOptions{}), "after").ID}).Damaged(), "")
			}
			wantDump(t, "after a restart", w.Get(s.ID), server, `{"a":"2"}`)
		})
	}
}
