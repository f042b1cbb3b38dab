package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put writes files, by their names in a folder; those that end with a slash are
// directories.
func put(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// describe tells a tree, one line an entry.
func describe(t testing.TB, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		fmt.Fprintf(&out, "%s %v %v", filepath.ToSlash(name), st.Mode(), st.ModTime().UnixNano())
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", b)
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " -> %s", target)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// alone looks that a folder has these entries and no other, such as one that is
// half made.
func alone(t testing.TB, parent string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", parent, got, want)
	}
}

func TestTree(t *testing.T) {
	parent := t.TempDir()
	src, dst := filepath.Join(parent, "src"), filepath.Join(parent, "dst")
	put(t, src, map[string]string{
		"a": "A", "empty": "", "d/e/f": "F", "d/e/large": strings.Repeat("L", 3<<20), "none/": "",
		"d/big": strings.Repeat("b", 100<<10), "name with \u00fcber spaces": "x",
	})
	old := time.Unix(1_000_000_000, 0)
	for _, name := range []string{"a", "d/e/f", "d/e", "d", "none", "."} {
		if err := os.Chtimes(filepath.Join(src, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := Tree(t.Context(), dst, src, Options{}); err != nil {
		t.Fatal(err)
	}
	if got, want := describe(t, dst), describe(t, src); got != want {
		t.Errorf("got\n%.2000s\nwant\n%.2000s", got, want)
	}
	alone(t, parent, "dst", "src")

	// Neither sees what the other does from here on.
	put(t, dst, map[string]string{"a": "of the copy"})
	if b, _ := os.ReadFile(filepath.Join(src, "a")); string(b) != "A" {
		t.Errorf("the source says %q", b)
	}
}

func TestProgress(t *testing.T) {
	parent := t.TempDir()
	src := filepath.Join(parent, "src")
	put(t, src, map[string]string{"a": "four", "d/b": strings.Repeat("b", 20<<20), "d/c": strings.Repeat("c", 5<<20), "e": ""})
	bytes, files, err := Size(src)
	if err != nil || bytes != 4+25<<20 || files != 4 {
		t.Fatalf("size %d in %d files, %v", bytes, files, err)
	}
	var last, calls, copied, many int64
	var busy sync.Mutex
	err = Tree(t.Context(), filepath.Join(parent, "dst"), src, Options{
		Progress: func(done, total int64) {
			if !busy.TryLock() {
				t.Error("two calls at once")
			}
			defer busy.Unlock()
			if done < last || total != bytes || done > total {
				t.Errorf("%d of %d after %d", done, total, last)
			}
			last = done
			calls++
		},
		Copied: func(bytes, files int64) { copied, many = bytes, files },
	})
	if err != nil || last != bytes || calls < 3 {
		t.Errorf("%v; %d calls, the last with %d of %d", err, calls, last, bytes)
	}
	if copied != bytes || many != 4 {
		t.Errorf("copied %d in %d files", copied, many)
	}
	put(t, parent, map[string]string{"nothing/": ""})
	calls = 0
	if err := Tree(t.Context(), filepath.Join(parent, "nothing2"), filepath.Join(parent, "nothing"), Options{Progress: func(done, total int64) {
		calls++
		if done != 0 || total != 0 {
			t.Errorf("%d of %d", done, total)
		}
	}}); err != nil || calls != 1 {
		t.Errorf("%v; %d calls", err, calls)
	}
}

func TestRefused(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, parent string) (dst, src, want string){
		"there is something": func(t *testing.T, parent string) (string, string, string) {
			put(t, parent, map[string]string{"src/a": "a", "dst": "x"})
			return "dst", "src", "exists"
		},
		"there is an empty directory": func(t *testing.T, parent string) (string, string, string) {
			put(t, parent, map[string]string{"src/a": "a", "dst/": ""})
			return "dst", "src", "exists"
		},
		"no source": func(t *testing.T, parent string) (string, string, string) {
			return "dst", "src", "src"
		},
		"a source that is a file": func(t *testing.T, parent string) (string, string, string) {
			put(t, parent, map[string]string{"src": "a"})
			return "dst", "src", "src"
		},
		"a source that is a link": func(t *testing.T, parent string) (string, string, string) {
			put(t, parent, map[string]string{"real/a": "a"})
			if err := os.Symlink("real", filepath.Join(parent, "src")); err != nil {
				t.Fatal(err)
			}
			return "dst", "src", "symbolic link"
		},
		"no parent": func(t *testing.T, parent string) (string, string, string) {
			put(t, parent, map[string]string{"src/a": "a"})
			return "none/dst", "src", "none"
		},
		"into itself": func(t *testing.T, parent string) (string, string, string) {
			put(t, parent, map[string]string{"src/a": "a", "src/d/": ""})
			return "src/d/dst", "src", "into itself"
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dst, src, want := make(t, parent)
			for _, o := range []Options{{}, {Progress: func(int64, int64) {}}} {
				err := Tree(t.Context(), filepath.Join(parent, dst), filepath.Join(parent, src), o)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if got := describe(t, parent); strings.Contains(got, tempPrefix) || strings.Contains(got, "dst/") {
				t.Errorf("left\n%s", got)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	parent := t.TempDir()
	src, dst := filepath.Join(parent, "src"), filepath.Join(parent, "dst")
	files := map[string]string{}
	for n := range 50 {
		files[fmt.Sprintf("d%d/e/f%d", n%7, n)] = strings.Repeat("x", 1000)
		files[fmt.Sprintf("l%d", n)] = strings.Repeat("x", 2<<20)
	}
	put(t, src, files)
	cause := errors.New("changed my mind")
	for _, at := range []int64{0, 1, 100_000, 50 << 20} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if at == 0 {
			cancel(cause)
		}
		err := Tree(ctx, dst, src, Options{Progress: func(done, _ int64) {
			if done >= at {
				cancel(cause)
			}
		}})
		if !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
			t.Errorf("at %d: %v", at, err)
		}
		alone(t, parent, "src")
		cancel(nil)
	}
}

func TestManyAtOnce(t *testing.T) {
	parent := t.TempDir()
	src := filepath.Join(parent, "src")
	put(t, src, map[string]string{"a": "a", "d/e/f": "f", "d/l": strings.Repeat("l", 2<<20)})
	want := describe(t, src)
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			dst := filepath.Join(parent, fmt.Sprint("dst", n))
			if err := Tree(t.Context(), dst, src, Options{}); err != nil {
				t.Error(err)
			} else if got := describe(t, dst); got != want {
				t.Errorf("got %.200s", got)
			}
		})
	}
	wg.Wait()
	// Of several copies to the same place one gets it.
	var won, lost int
	var mu sync.Mutex
	for range 10 {
		wg.Go(func() {
			err := Tree(t.Context(), filepath.Join(parent, "one"), src, Options{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, fs.ErrExist):
				lost++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || lost != 9 {
		t.Errorf("%d won, %d lost", won, lost)
	}
	entries, _ := os.ReadDir(parent)
	if len(entries) != 22 {
		t.Errorf("%d entries are there", len(entries))
	}
}

func TestSweep(t *testing.T) {
	parent := t.TempDir()
	put(t, parent, map[string]string{"kept/a": "a", tempPrefix + "X/d/a": "half", "file": "x"})
	if err := os.Chmod(filepath.Join(parent, tempPrefix+"X", "d"), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(parent); err != nil {
		t.Fatal(err)
	}
	alone(t, parent, "file", "kept")
	if err := Sweep(filepath.Join(parent, "none")); err != nil {
		t.Errorf("nothing to sweep: %v", err)
	}
}

func TestRemove(t *testing.T) {
	parent := t.TempDir()
	put(t, parent, map[string]string{"x/d/e/f": "f", "x/g/": ""})
	for _, lock := range []struct {
		name string
		mode os.FileMode
	}{{"x/d/e/f", 0o400}, {"x/d/e", 0o500}, {"x/d", 0}, {"x/g", 0o400}, {"x", 0o500}} {
		if err := os.Chmod(filepath.Join(parent, lock.name), lock.mode); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(filepath.Join(parent, "x")); err != nil {
			t.Fatal(err)
		}
	}
	alone(t, parent)
}
