package drivertest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/workspace"
)

// Write makes a file, and the directories above it.
func Write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Reads looks what is in a file.
func Reads(t testing.TB, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s: %q, %v, want %q", path, b, err, want)
	}
}

// Absent looks that nothing is at a path.
func Absent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left (%v)", path, err)
	}
}

// Empty looks that a folder has nothing in it.
func Empty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", filepath.Join(dir, e.Name()))
	}
}

// Workspace returns a workspace that a program can see.
func Workspace(t testing.TB) *workspace.Workspace {
	t.Helper()
	s := workspace.NewStore(nil, workspace.Options{Dir: t.TempDir()})
	dir := filepath.Join(t.TempDir(), "workspace")
	if err := s.Seed(t.Context(), dir, workspace.Seed{Folder: true}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}
