package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A state that was made and is not there any more is damaged: nothing empty takes
// its place, in the session itself and in forks.
func TestAStateFolderThatVanished(t *testing.T) {
	w := newWorld(t, forgetful)
	s := w.opened(session.OpenOptions{})
	set(t, s, "noted", "a", "1")
	w.close(false)
	w.open(forgetful)
	s = w.Get(s.ID)
	at, away := filepath.Join(w.dir, "sessions", s.ID, "noted"), filepath.Join(t.TempDir(), "away")
	if err := os.Rename(at, away); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		testkit.Has(t, "a call", callIn(t, s, "noted", "x"), "lost: ", `server "noted"`, at+" is gone")
	}
	if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1}); err == nil {
		t.Error("it was forked")
	}
	if _, err := os.Lstat(at); err == nil {
		t.Error("something took its place")
	}
	marked := false
	for _, d := range s.Damaged() {
		marked = marked || d.Server == "noted" && d.Kept == api.KeptPart
	}
	if !marked {
		t.Errorf("the session is damaged by %+v", s.Damaged())
	}
	if err := os.Rename(away, at); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is back", func() bool { return callIn(t, s, "noted", "x")[0] == '{' })
}

// A default session has nothing to be rewound to: the error says what helps there.
func TestLostDataOfADefaultSession(t *testing.T) {
	w := newWorld(t, forgetful)
	s := w.session("ada")
	set(t, s, "noted", "a", "1")
	w.close(false)
	w.open(forgetful)
	s = w.session("ada")
	if err := os.RemoveAll(filepath.Join(w.dir, "sessions", s.ID, "noted")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		testkit.Has(t, "a call", callIn(t, w.session("ada"), "noted", "x"), "lost: ", "`tine session close "+s.ID+"`")
	}
	if err := w.CloseSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "a call after that", callIn(t, w.session("ada"), "noted", "x"), `{"pid":`)
}

// A state is missed also where its mark went with it, or a file that must be in its
// folder: that it was made is noted in the session's record too.
func TestAStateThatVanishedWithItsMark(t *testing.T) {
	const yaml = forgetful + "  tree: {builtin: files}\n  notes: {command: notes, scope: shared, args: ['${state.data}'], state: [data]}\n"
	for name, test := range map[string]struct {
		server string
		gone   func(state string) []string
	}{
		"folder and mark":           {"noted", func(at string) []string { return []string{at, at + "~whole"} }},
		"of a shared server":        {"notes", func(at string) []string { return []string{at, at + "~whole"} }},
		"workspace and mark":        {"~workspace", func(at string) []string { return []string{at, at + "~whole"} }},
		"a file of the driver":      {"noted", func(at string) []string { return []string{filepath.Join(at, ".list")} }},
		"that file and the mark":    {"noted", func(at string) []string { return []string{filepath.Join(at, ".list"), at + "~whole"} }},
		"all there is in it":        {"noted", func(at string) []string { return []string{filepath.Join(at, ".list"), filepath.Join(at, "state.json")} }},
		"the one of a fork's share": {"both", func(at string) []string { return []string{at, at + "~whole"} }},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := yaml + "  both: {command: both, fork: share, args: ['${state.data}'], state: [data]}\n"
			w := newWorld(t, yaml)
			w.m.loses = true
			s := w.opened(session.OpenOptions{})
			set(t, s, "noted", "a", "1")
			set(t, s, "notes", "a", "1")
			set(t, s, "both", "a", "1")
			if got := do(t.Context(), t, s, "tree", "write", "path", "it", "text", "1"); got != `"ok"` {
				t.Fatal(got)
			}
			child := w.fork(s, 1)[0]
			home, server := s.ID, test.server
			switch server {
			case "notes":
				home = "shared"
			case "~workspace":
				server = "tree"
			case "both": // its state outlasts the session it was made in
				w.CloseSession(t.Context(), s)
				s = child
			}
			at := filepath.Join(w.dir, "sessions", home, test.server)
			for _, restart := range []bool{false, true} {
				w.close(false)
				if restart {
					w.open(yaml)
				}
				for _, path := range test.gone(at) {
					if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
				if !restart {
					w.open(yaml)
				}
				s := w.Get(s.ID)
				testkit.Has(t, "a call", callIn(t, s, server, "x"), "lost: ", at, " is gone")
				if test.server == "noted" || server == "tree" {
					if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1}); err == nil {
						t.Error("it was forked")
					}
				}
				if _, err := os.Lstat(filepath.Join(at, "state.json")); err == nil && name != "a file of the driver" && name != "that file and the mark" {
					t.Error("something took its place")
				}
			}
			w.close(false)
		})
	}
}

// A mark alone that is gone costs nothing: the state is there, and is noted.
func TestAMarkThatVanished(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
	w.remember(s, "x")
	marks, err := filepath.Glob(filepath.Join(w.dir, "sessions", s.ID, "*~whole"))
	if err != nil || len(marks) < 3 {
		t.Fatalf("there are %v, %v", marks, err)
	}
	gone := func() {
		for _, mark := range marks {
			if err := os.Remove(mark); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.close(false)
	gone()
	w.open(lasting)
	w.remembers("after a start", w.Get(s.ID), "x")
	w.close(false)
	w.open(lasting)
	gone()
	w.remembers("while the gateway runs", w.Get(s.ID), "x")
	w.remembers("a fork", w.fork(w.Get(s.ID), 1)[0], "x")
}

// A rewind notes the states that it makes, and no others.
func TestAStateThatVanishedAfterARewind(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
	w.remember(s, "x")
	snap := w.frozen(s, "base")
	w.remember(s, "y")
	w.rewound(s, snap.ID)
	w.remembers("rewound", s, "x")
	w.close(false)
	w.open(lasting)
	states, err := filepath.Glob(filepath.Join(w.dir, "sessions", s.ID, "own~*"))
	if err != nil || len(states) != 2 {
		t.Fatalf("there are %v, %v", states, err)
	}
	for _, path := range states {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Has(t, "a call", callIn(t, w.Get(s.ID), "own", "x"), "lost: ", " is gone")
	w.rewound(w.Get(s.ID), snap.ID)
	w.remembers("rewound again", w.Get(s.ID), "x")
}
