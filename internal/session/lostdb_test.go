package session_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
)

// filesBelow lists all files and folders of sessions, snapshots and layers.
func (w *world) filesBelow() map[string]bool {
	w.t.Helper()
	all := make(map[string]bool)
	for _, dir := range []string{"sessions", "snapshots", "layers"} {
		err := filepath.WalkDir(filepath.Join(w.dir, dir), func(path string, _ fs.DirEntry, err error) error {
			all[path] = true
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
	return all
}

// swapDB lets a gateway die and puts another database in the place of its own.
func (w *world) swapDB(yaml string, db []byte) {
	w.t.Helper()
	w.close(false)
	for _, name := range []string{"tine.db", "tine.db-wal", "tine.db-shm"} {
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
	if db != nil {
		if err := os.WriteFile(filepath.Join(w.dir, "tine.db"), db, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	w.open(yaml)
}

// A registry on a database that knows nothing removes nothing, and has all
// sessions and snapshots back from their folders.
func TestLostDatabase(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{Labels: map[string]string{"a": "b"}, Servers: []string{"own", "mem", "tree"}})
	w.remember(s, "then")
	snap := w.frozen(s, "base")
	child := w.fork(s, 1)[0]
	w.remember(s, "now")
	own := w.session("ada")
	w.remember(own, "hers")
	before := w.filesBelow()
	w.swapDB(lasting, nil)
	after := w.filesBelow()
	for path := range before {
		if !after[path] {
			t.Errorf("%s is gone", path)
		}
	}
	w.remembers("the session", w.Get(s.ID), "now")
	w.remembers("its fork", w.Get(child.ID), "then")
	w.remembers("a principal's own", w.session("ada"), "hers")
	if got := w.Describe(w.Get(s.ID), false); got.Labels["a"] != "b" {
		t.Error("its labels are lost")
	}
	if got := w.Get(child.ID); got.Parent != s.ID {
		t.Errorf("its parent is %q", got.Parent)
	}
	back := w.opened(session.OpenOptions{From: snap.ID})
	wantDump(t, "from the snapshot", back, "own", `{"it":"then"}`)
	w.sound()
}

// A database that is older than the folders takes nothing back: sessions that
// were opened, rewound, closed or deleted since are as they were.
func TestOlderDatabase(t *testing.T) {
	w := newWorld(t, lasting)
	rewound := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
	w.remember(rewound, "first")
	first := w.frozen(rewound, "")
	w.remember(rewound, "second")
	closed := w.opened(session.OpenOptions{})
	w.remember(closed, "x")
	w.close(false)
	old, err := os.ReadFile(filepath.Join(w.dir, "tine.db"))
	if err != nil {
		t.Fatal(err)
	}
	w.open(lasting)
	rewound, closed = w.Get(rewound.ID), w.Get(closed.ID)
	if err := w.Rewind(t.Context(), rewound, first.ID, 0); err != nil {
		t.Fatal(err)
	}
	token, _, err := w.NewToken(t.Context(), rewound)
	if err != nil {
		t.Fatal(err)
	}
	later := w.opened(session.OpenOptions{})
	w.remember(later, "newer")
	w.CloseSession(t.Context(), closed)
	before := w.filesBelow()
	w.swapDB(lasting, old)
	after := w.filesBelow()
	for path := range before {
		if !after[path] {
			t.Errorf("%s is gone", path)
		}
	}
	w.remembers("what was rewound since", w.Get(rewound.ID), "first")
	w.remembers("what was opened since", w.Get(later.ID), "newer")
	sum := sha256.Sum256([]byte(token))
	if s, _, _ := w.ByToken(hex.EncodeToString(sum[:])); s == nil || s.ID != rewound.ID {
		t.Error("the token that was made since is not known")
	}
	if w.Get(closed.ID) != nil {
		t.Error("what was closed since is served, without what it knew")
	}
}

// What a restore of an older database does besides: what has no folder any more
// is closed and forgotten, unless it never had one.
func TestReconcileAfterARestore(t *testing.T) {
	w := newWorld(t, lasting)
	stays, closed := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	w.remember(stays, "x")
	w.remember(closed, "x")
	unused, emptied := w.session("ada"), w.session("bob")
	w.remember(emptied, "x")
	named, err := w.Named(t.Context(), "ada", "work")
	if err != nil {
		t.Fatal(err)
	}
	gone := w.frozen(stays, "gone")
	kept := w.frozen(stays, "kept")
	w.close(false)
	path := filepath.Join(w.dir, "tine.db")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.open(lasting)
	w.CloseSession(t.Context(), w.Get(closed.ID))
	w.CloseSession(t.Context(), w.Get(emptied.ID))
	if err := w.DeleteSnapshot(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	later := w.opened(session.OpenOptions{})
	w.close(false)
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	db := sqlitetest.Open(t, w.dir)
	ended := []string{closed.ID, emptied.ID}
	slices.Sort(ended)
	for _, dry := range []bool{true, false} {
		got, err := session.Reconcile(t.Context(), db, w.dir, true, dry)
		slices.Sort(got.Closed)
		if err != nil || !slices.Equal(got.Back, []string{later.ID}) || !slices.Equal(got.Closed, ended) || !slices.Equal(got.SnapshotsGone, []string{gone.ID}) {
			t.Errorf("dry is %v: %+v, %v", dry, got, err)
		}
	}
	if again, err := session.Reconcile(t.Context(), db, w.dir, true, false); err != nil || !again.Empty() {
		t.Errorf("it found %+v once more, %v", again, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(lasting)
	w.remembers("what stays", w.Get(stays.ID), "x")
	if w.Get(unused.ID) == nil || w.session("ada").ID != unused.ID {
		t.Error("a default session that never had a folder is not back")
	}
	if back, err := w.Named(t.Context(), "ada", "work"); err != nil || back.ID != named.ID {
		t.Errorf("a session of a name that never had a folder is back as %v, %v", back, err)
	}
	if w.Get(emptied.ID) != nil || w.Get(closed.ID) != nil || w.Get(later.ID) == nil || len(w.Snapshots()) != 1 || w.Snapshots()[0].ID != kept.ID {
		t.Errorf("there are %v and %v", w.Sessions(), w.Snapshots())
	}
	w.sound()
}

// Folders without a record, which can't say what they are, stay; and as it is
// not known what they need, so do all layers.
func TestUnknownFolders(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "x")
	snap := w.frozen(s, "base")
	w.close(false)
	for _, name := range []string{"sessions/" + s.ID + "/~session", "snapshots/" + snap.ID + "/~snapshot"} {
		path := filepath.Join(w.dir, filepath.FromSlash(name))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b = []byte(strings.Replace(string(b), "own", "0wn", 1))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	before := w.filesBelow()
	w.open(lasting)
	w.swapDB(lasting, nil)
	for range 2 {
		for path := range before {
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("%s is gone: %v", path, err)
			}
		}
		w.crash(lasting)
	}
}

// A close that hangs holds up neither the reaper nor other sessions.
func TestReaperDoesNotWaitForAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, lasting)
		slow, quick := w.opened(session.OpenOptions{TTL: time.Minute}), w.opened(session.OpenOptions{TTL: 2 * time.Minute})
		w.remember(slow, "x")
		w.remember(quick, "x")
		there, letOn := w.m.block("erase mem", 0)
		time.Sleep(90 * time.Second)
		<-there
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.Get(quick.ID) != nil {
			t.Error("the other session is not closed")
		}
		letOn()
		synctest.Wait()
		w.sound()
	})
}
