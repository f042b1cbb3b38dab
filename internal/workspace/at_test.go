package workspace

import (
	"path/filepath"
	"testing"
)

// A workspace is called by the path at which its members see it: in what it shows,
// in links, and beside the other names of its root.
func TestAt(t *testing.T) {
	for _, kind := range []string{KindTree, KindFolder} {
		t.Run(kind, func(t *testing.T) {
			s := newStore(t, t.TempDir(), Options{})
			dir := filepath.Join(t.TempDir(), "w")
			if err := s.Seed(t.Context(), dir, Seed{Folder: kind == KindFolder}); err != nil {
				t.Fatal(err)
			}
			w, err := s.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			f := w.At("/data", "/workspace")
			if f.Root() != "/data" {
				t.Errorf("it is called %s", f.Root())
			}
			mustWrite(t, f, "a", "text")
			for link, target := range map[string]string{"new": "/data/a", "old": "/workspace/a"} {
				if err := f.Symlink(target, link); err != nil {
					t.Fatal(err)
				}
				if got, err := read(f, link); err != nil || got != "text" {
					t.Errorf("%s: %q, %v", link, got, err)
				}
				if err := write(f, link, "text"); err != nil {
					t.Errorf("%s: %v", link, err)
				}
			}
			if err := f.Symlink("/database/a", "out"); err != nil {
				t.Fatal(err)
			}
			if _, err := read(f, "out"); class(err) != class(ErrEscape) {
				t.Errorf("a link out of it: %v", err)
			}
			paths := map[string]string{"/data/a/b": "a/b", "/data": "", "/workspace/a": "a"}
			if w.Dir() != "" {
				paths[w.Dir()+"/x"] = "x"
			}
			for path, want := range paths {
				if rest, ok := Inside(f, path); !ok || rest != want {
					t.Errorf("%s is %q, %v", path, rest, ok)
				}
			}
			for _, path := range []string{"/database", "/", "/dat"} {
				if rest, ok := Inside(f, path); ok {
					t.Errorf("%s is inside, as %q", path, rest)
				}
			}
		})
	}
}
