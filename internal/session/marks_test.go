package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
)

// A flipped byte in a mark costs neither the state nor the layers that it needs.
func TestFlippedMarks(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
	w.remember(s, "x")
	w.close(false)
	marks, err := filepath.Glob(filepath.Join(w.dir, "sessions", s.ID, "*~whole"))
	if err != nil || len(marks) < 3 {
		t.Fatalf("there are %v, %v", marks, err)
	}
	for _, mark := range marks {
		right, err := os.ReadFile(mark)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(mark, []byte(strings.ToUpper(string(right[:4]))+string(right[4:])), 0o600); err != nil {
			t.Fatal(err)
		}
		before := w.filesBelow()
		w.open(lasting)
		w.remembers("after "+filepath.Base(mark), w.Get(s.ID), "x")
		w.close(false)
		for path := range before {
			if _, err := os.Lstat(path); err != nil && path != filepath.Join(w.dir, "snapshots") {
				t.Errorf("%s: %v", filepath.Base(mark), err)
			}
		}
		if now, err := os.ReadFile(mark); err != nil || string(now) != string(right) {
			t.Errorf("%s says %s, %v", mark, now, err)
		}
	}
	// Whose this one is can't be known.
	shared := filepath.Join(w.dir, "sessions", "shared")
	if err := os.MkdirAll(filepath.Join(shared, "nobody"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "nobody~whole"), []byte("bUiltin"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.open(lasting)
	w.remembers("beside it", w.Get(s.ID), "x")
	w.close(false)
}
