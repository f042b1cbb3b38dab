package session_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// flipped changes one byte in the middle of a file, and returns what undoes it.
func flipped(t *testing.T, path string) (undo func()) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		t.Fatal(len(b), err)
	}
	damaged := bytes.Clone(b)
	damaged[len(b)/2] ^= 0x10
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(damaged)
	return func() { write(b) }
}

// A snapshot whose files are damaged can't be used, whatever for, and keeps its files;
// others are not touched by that.
func TestDamagedSnapshotIsLost(t *testing.T) {
	const yaml = "servers:\n  own: {command: own, args: ['${workspace}']}\n  tree: {builtin: files}\n"
	w := newWorld(t, yaml)
	s := w.opened(session.OpenOptions{})
	if got := do(context.Background(), t, s, "tree", "write", "path", "it", "text", "then"); got != `"ok"` {
		t.Fatal(got)
	}
	good, bad := w.frozen(s, "good"), w.frozen(s, "bad")
	w.opened(session.OpenOptions{From: bad.ID})
	w.crash(yaml)
	var file string
	home := filepath.Join(w.dir, "snapshots", bad.ID)
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "it" {
			file = path
		}
		return err
	})
	if err != nil || file == "" {
		t.Fatalf("no file in the snapshot: %v", err)
	}
	for name, damage := range map[string]func() (undo func()){
		"flipped": func() func() { return flipped(t, file) },
		"removed": func() func() {
			if err := os.Rename(file, file+".away"); err != nil {
				t.Fatal(err)
			}
			return func() { os.Rename(file+".away", file) }
		},
		"its list": func() func() { return flipped(t, filepath.Join(home, "~sums")) },
	} {
		undo := damage()
		s := w.Get(s.ID)
		_, _, open := w.OpenSession(context.Background(), session.OpenOptions{From: bad.ID})
		for what, err := range map[string]error{
			"open": open, "rewind": w.Rewind(context.Background(), s, bad.ID, 0), "export": w.Export(context.Background(), bad.ID, nil, new(bytes.Buffer)),
		} {
			if got := failure(err); !strings.HasPrefix(got, string(api.KindLost)) || !strings.Contains(got, bad.ID) || !strings.Contains(got, home) {
				t.Errorf("%s, %s: %s", name, what, got)
			}
		}
		w.opened(session.OpenOptions{From: good.ID})
		undo()
	}
	child := w.opened(session.OpenOptions{From: bad.ID})
	if got := do(context.Background(), t, child, "tree", "read", "path", "it"); got != `"then"` {
		t.Errorf("after all is well again: %s", got)
	}
}

// A workspace whose layers are damaged is lost to its session, which is marked once,
// and to no other.
func TestDamagedWorkspaceMarksTheSession(t *testing.T) {
	w := newWorld(t, lasting)
	o := session.OpenOptions{Servers: []string{"tree"}}
	s, other := w.opened(o), w.opened(o)
	w.remember(s, "then")
	w.remember(other, "then")
	home := filepath.Join(w.dir, "sessions", s.ID, "~workspace")
	w.close(true)
	undo := flipped(t, filepath.Join(home, "head"))
	w.open(lasting)
	s, other = w.Get(s.ID), w.Get(other.ID)
	for range 2 {
		got := do(context.Background(), t, s, "tree", "read", "path", "it")
		if !strings.Contains(got, "lost") || !strings.Contains(got, home) || !strings.Contains(got, s.ID) {
			t.Errorf("read: %s", got)
		}
	}
	if all := s.Damaged(); len(all) != 1 || all[0].Kept != api.KeptPart || all[0].Times > 1 || !strings.Contains(all[0].Why, home) {
		t.Errorf("the session is damaged by %q", damaged(all))
	}
	if _, err := w.Fork(context.Background(), s, session.ForkOptions{Count: 1}); !strings.HasPrefix(failure(err), string(api.KindLost)) {
		t.Errorf("fork: %s", failure(err))
	}
	w.remembers("the other", other, "then")
	wantDamage(t, "the other", other.Damaged(), "")
	w.close(true)
	undo()
	w.open(lasting)
	w.remembers("what is well again", w.Get(s.ID), "then")
}

// A snapshot whose layers are damaged can't be used either: what is made of it is
// refused as lost, which names it, and not begun on what is left.
func TestDamagedLayersOfASnapshotAreLost(t *testing.T) {
	const yaml = "servers:\n  tree: {builtin: files}\n"
	const template = yaml + "workspace: {template: 'snapshot:bad'}\n"
	w := newWorld(t, yaml)
	s := w.opened(session.OpenOptions{})
	if got := do(context.Background(), t, s, "tree", "write", "path", "it", "text", strings.Repeat("then", 10_000)); got != `"ok"` {
		t.Fatal(got)
	}
	bad := w.frozen(s, "bad")
	w.close(true)
	layers, err := filepath.Glob(filepath.Join(w.dir, "layers", "*.log"))
	if err != nil || len(layers) == 0 {
		t.Fatal(layers, err)
	}
	for name, change := range map[string]func(path string, b []byte) error{
		"gone":        func(path string, _ []byte) error { return os.Remove(path) },
		"empty":       func(path string, _ []byte) error { return os.Truncate(path, 0) },
		"its header":  func(path string, b []byte) error { b[9] ^= 1; return os.WriteFile(path, b, 0o600) },
		"its body":    func(path string, b []byte) error { return os.Truncate(path, int64(len(b)/2)) },
		"its end":     func(path string, b []byte) error { return os.Truncate(path, int64(len(b)-32)) },
		"a few bytes": func(path string, b []byte) error { return os.Truncate(path, int64(len(b)-3)) },
	} {
		var undo []func() error
		for _, path := range layers {
			b, err := os.ReadFile(path)
			if err == nil {
				err = change(path, bytes.Clone(b))
			}
			if err != nil {
				t.Fatal(err)
			}
			undo = append(undo, func() error { return os.WriteFile(path, b, 0o600) })
		}
		w.open(yaml)
		_, _, open := w.OpenSession(context.Background(), session.OpenOptions{From: bad.ID})
		for what, err := range map[string]error{
			"open": open, "rewind": w.Rewind(context.Background(), w.Get(s.ID), bad.ID, 0), "export": w.Export(context.Background(), bad.ID, nil, new(bytes.Buffer)),
		} {
			wantLostSnapshot(t, name+", "+what, err, bad.ID)
		}
		w.close(true)
		w.open(template)
		fresh := w.opened(session.OpenOptions{})
		if got := do(context.Background(), t, fresh, "tree", "read", "path", "it"); !strings.Contains(got, "lost") || !strings.Contains(got, bad.ID) {
			t.Errorf("%s, as a template: %s", name, got)
		}
		wantDamage(t, name+", one that would begin with it", fresh.Damaged(), "")
		w.CloseSession(t.Context(), fresh)
		w.close(true)
		for _, do := range undo {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.open(yaml)
	child := w.opened(session.OpenOptions{From: bad.ID})
	if got := do(context.Background(), t, child, "tree", "read", "path", "it"); !strings.Contains(got, "thenthen") {
		t.Errorf("after all is well again: %.80s", got)
	}
}

func wantLostSnapshot(t *testing.T, what string, err error, id string) {
	t.Helper()
	var ours *api.Error
	if !errors.As(err, &ours) || ours.Kind != api.KindLost || ours.Retryable || !strings.Contains(err.Error(), id) {
		t.Errorf("%s: %v", what, err)
	}
}

// What was added to the folder of a snapshot has to be removed, and not put back.
func TestAFileAddedToASnapshot(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "x")
	snap := w.frozen(s, "base")
	w.reopen(lasting)
	more := filepath.Join(w.dir, "snapshots", snap.ID, "more")
	write(t, more, "x")
	_, _, err := w.OpenSession(t.Context(), session.OpenOptions{From: snap.ID})
	wantLostSnapshot(t, "open", err, snap.ID)
	testkit.Has(t, "open", failure(err), more, "; remove it,")
	if err := os.Remove(more); err != nil {
		t.Fatal(err)
	}
	w.opened(session.OpenOptions{From: snap.ID})
}
