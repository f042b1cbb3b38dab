package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
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
		wantHas(t, "a call", callIn(t, s, "noted", "x"), "lost: ", `server "noted"`, at+" is gone")
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
	eventually(t, "it is back", func() bool { return callIn(t, s, "noted", "x")[0] == '{' })
}
