package workspace

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/layer"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("WORKSPACE_TEST_WRITER"); dir != "" {
		writeUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// newStore is a Store in a folder, as a gateway that starts there has it.
func newStore(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers")})
	if err != nil {
		t.Fatal(err)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(dir, "tmp")
	}
	s := NewStore(layers, o)
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), layers.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// open seeds a workspace where there is none and opens it.
func open(t testing.TB, s *Store, dir string, seed Seed) FS {
	t.Helper()
	if _, err := kindOf(dir); missing(err) {
		if err := s.Seed(t.Context(), dir, seed); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w.FS()
}

// eachKind runs a test on an empty workspace of either kind.
func eachKind(t *testing.T, test func(t *testing.T, f FS)) {
	for _, kind := range []string{KindTree, KindFolder} {
		t.Run(kind, func(t *testing.T) { test(t, newFS(t, kind)) })
	}
}

func newFS(t testing.TB, kind string) FS {
	dir := t.TempDir()
	return open(t, newStore(t, dir, Options{}), filepath.Join(dir, "w"), Seed{Folder: kind == KindFolder})
}

// class is what kind of error it is, the same for trees and folders.
func class(err error) string {
	if err == nil {
		return "ok"
	}
	for _, c := range []struct {
		name string
		err  error
	}{
		{"escape", ErrEscape},
		{"not empty", syscall.ENOTEMPTY},
		{"not a directory", syscall.ENOTDIR},
		{"is a directory", syscall.EISDIR},
		{"loop", syscall.ELOOP},
		{"too long", syscall.ENAMETOOLONG},
		{"full", ErrFull},
		{"missing", fs.ErrNotExist},
		{"exists", fs.ErrExist},
		{"invalid", fs.ErrInvalid},
		{"short", io.ErrUnexpectedEOF},
		{"closed", fs.ErrClosed},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return "other: " + err.Error()
}

func write(f FS, name, content string) error {
	return f.Write(name, strings.NewReader(content), int64(len(content)))
}

func mustWrite(t testing.TB, f FS, name, content string) {
	t.Helper()
	if err := write(f, name, content); err != nil {
		t.Fatal(err)
	}
}

func read(f FS, name string) (string, error) {
	h, err := f.Open(name)
	if err != nil {
		return "", err
	}
	defer h.Close()
	b, err := io.ReadAll(contentOf(h, h.Info().Size))
	return string(b), err
}

// contents is all that is in an FS, without times.
func contents(t testing.TB, f FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := walkFS(t.Context(), f, func(name string, info Info) error {
		text := (info.Mode &^ 0o022).String()
		if info.Mode.IsRegular() {
			content, err := read(f, name)
			if err != nil {
				return err
			}
			text += " " + content
		}
		if info.Target != "" {
			text += " -> " + strings.Replace(info.Target, f.Root(), "ROOT", 1)
		}
		all[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sameContents(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s is %.200q, want %.200q", what, name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is %.200q and should not be", what, name, got[name])
		}
	}
	t.FailNow()
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
