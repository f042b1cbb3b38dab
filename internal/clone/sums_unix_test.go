//go:build unix

package clone

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSums(t *testing.T) {
	make := func(t *testing.T) (dir, sum string) {
		dir = t.TempDir()
		for name, content := range map[string]string{
			"a.txt": "a", "~own.txt": "may change", "empty": "", "sub/deep/big": strings.Repeat("0123456789", 100_000), "sub/b": "b",
		} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("a.txt", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		sum, err := Sum(t.Context(), dir, "~own")
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(t.Context(), dir, "~own", sum); err != nil {
			t.Fatal(err)
		}
		return dir, sum
	}
	flip := func(path string, at int) error {
		b, err := os.ReadFile(path)
		if err == nil {
			b[at] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	}
	for name, c := range map[string]struct {
		file string
		do   func(path string) error
	}{
		"flipped":           {"sub/deep/big", func(p string) error { return flip(p, 765_432) }},
		"cut":               {"sub/b", func(p string) error { return os.Truncate(p, 0) }},
		"removed":           {"a.txt", os.Remove},
		"folder removed":    {"sub", os.RemoveAll},
		"added":             {"c.txt", func(p string) error { return os.WriteFile(p, nil, 0o600) }},
		"grown":             {"empty", func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) }},
		"mode":              {"a.txt", func(p string) error { return os.Chmod(p, 0o700) }},
		"link":              {"link", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("b", p)) }},
		"the list":          {SumsName, func(p string) error { return flip(p, 20) }},
		"the list, cut":     {SumsName, func(p string) error { return os.Truncate(p, 30) }},
		"the list, removed": {SumsName, os.Remove},
	} {
		t.Run(name, func(t *testing.T) {
			dir, sum := make(t)
			path := filepath.Join(dir, c.file)
			if err := c.do(path); err != nil {
				t.Fatal(err)
			}
			var d *Damage
			if err := Verify(t.Context(), dir, "~own", sum); !errors.As(err, &d) || d.Path != path {
				t.Errorf("got %v, want the damage of %s", err, path)
			}
		})
	}
}
