//go:build linux || darwin

package clone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// What was a directory, a file or a link at the first look and is another thing at
// the second.
func TestSwappedBetweenTwoLooks(t *testing.T) {
	src, dst := trees(t, map[string]string{"../outside/secret": "secret", "d/": "", "f": "f", "../dst/": ""})
	c := &copier{open: make(map[*dir]bool), p: &progress{}, pool: newPool(t.Context()), links: make(map[id]*original)}
	defer c.pool.cancel(nil)
	defer c.close()
	d := &dir{c: c, path: "."}
	c.open[d] = true
	var err error
	if d.src, err = openat(unix.AT_FDCWD, src, openDir); err != nil {
		t.Fatal(err)
	}
	if d.dst, err = openat(unix.AT_FDCWD, dst, openDir); err != nil {
		t.Fatal(err)
	}
	was, wasFile := stat(t, filepath.Join(src, "d")), stat(t, filepath.Join(src, "f"))
	for what, swap := range map[string]func(string) error{
		"link": func(name string) error { return os.Symlink("../outside", name) },
		"fifo": func(name string) error { return unix.Mkfifo(name, 0o600) },
	} {
		for _, name := range []string{"d", "f"} {
			if err := errors.Join(os.RemoveAll(filepath.Join(src, name)), swap(filepath.Join(src, name))); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.enter("d", was); !errors.Is(err, errChanged) {
			t.Errorf("a directory that became a %s: %v", what, err)
		}
		st := wasFile
		if _, err := d.file("f", &st); !errors.Is(err, errChanged) {
			t.Errorf("a file that became a %s: %v", what, err)
		}
	}
	put(t, src, map[string]string{"l": "no link any more"})
	if _, err := d.symlink("l", &wasFile); !errors.Is(err, errChanged) {
		t.Errorf("a link that became a file: %v", err)
	}
	alone(t, dst)
}

// A hostile program swaps a directory for a link that leads out, and back, while
// the tree is copied. Nothing from outside may be in the copy.
func TestSwappedForLinks(t *testing.T) {
	src, dst := trees(t, map[string]string{"../outside/secret": "secret", "keep": "k"})
	for n := range 40 {
		put(t, src, map[string]string{fmt.Sprintf("d%d/x/secret", n): "mine"})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			dir := filepath.Join(src, fmt.Sprintf("d%d", n%40))
			os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "y"))
			os.Symlink(filepath.Join(src, "..", "outside"), filepath.Join(dir, "x"))
			os.Symlink(filepath.Join(src, "..", "outside", "secret"), filepath.Join(dir, "z"))
			os.Remove(filepath.Join(dir, "x"))
			os.Rename(filepath.Join(dir, "y"), filepath.Join(dir, "x"))
			os.Remove(filepath.Join(dir, "z"))
		}
	})
	whole := 0
	for n := range 60 {
		to := fmt.Sprint(dst, n)
		if err := Tree(t.Context(), to, src, Options{Vanishing: true}); err != nil {
			if !errors.Is(err, errChanged) {
				t.Error(err)
			}
			continue
		}
		whole++
		filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if b, _ := os.ReadFile(path); string(b) == "secret" {
					t.Errorf("%s came from outside", path)
				}
			}
			return nil
		})
	}
	close(stop)
	wg.Wait()
	t.Logf("%d of 60 came through", whole)
	entries, _ := os.ReadDir(filepath.Dir(src))
	if len(entries) != whole+2 {
		t.Errorf("%d entries are there, want %d", len(entries), whole+2)
	}
}

// A program goes on making and removing files meanwhile.
func TestVanishing(t *testing.T) {
	src, dst := trees(t, map[string]string{"keep/k": "k"})
	var names []string
	for n := range 2000 {
		names = append(names, filepath.Join(src, fmt.Sprintf("d%d/f%d", n%20, n)))
	}
	for _, name := range names {
		put(t, "", map[string]string{name: "x"})
	}
	// Removed in the order in which the copy does not come to them.
	begun := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		<-begun
		for n := range 20 {
			os.RemoveAll(filepath.Join(src, fmt.Sprintf("d%d", n)))
		}
	})
	err := Tree(t.Context(), dst, src, Options{Vanishing: true, Workers: 1, Progress: func(int64, int64) { once.Do(func() { close(begun) }) }})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dst, "keep/k")); err != nil || string(b) != "k" {
		t.Errorf("%q, %v", b, err)
	}
	// Without it the error names the file.
	d := &dir{c: &copier{}, path: "d"}
	if err := d.fail("open", "f", unix.ENOENT); !strings.Contains(err.Error(), "d/f") || !strings.Contains(err.Error(), "removed meanwhile") {
		t.Errorf("got %v", err)
	}
}

// What is no directory, or lies in what is none, says so.
func TestRootOfAnotherKind(t *testing.T) {
	src, dst := trees(t, map[string]string{"f": "f"})
	for _, name := range []string{"f", "f/below"} {
		if err := Tree(t.Context(), dst, filepath.Join(src, name), Options{}); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone(t, filepath.Dir(src), "src")
}

// A program goes on replacing its files, as editors and databases do it: each is in the
// copy, also where a filesystem lists names in the order in which they were made, as tmpfs
// does.
func TestReplaced(t *testing.T) {
	parent, err := os.MkdirTemp("/dev/shm", "clone")
	if err != nil {
		parent = t.TempDir()
	}
	defer os.RemoveAll(parent)
	const files = 3000 // more than one reading of a directory brings
	src := filepath.Join(parent, "src")
	name := func(n int) string { return fmt.Sprintf("a-name-that-takes-room-%d", n) }
	for n := range files {
		put(t, src, map[string]string{name(n): "x"})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		temp := filepath.Join(parent, "new")
		for n := 0; ; n += 7 {
			select {
			case <-stop:
				return
			default:
			}
			os.WriteFile(temp, []byte("x"), 0o600)
			os.Rename(temp, filepath.Join(src, name(n%files)))
		}
	})
	for n := range 4 {
		to := filepath.Join(parent, fmt.Sprint("dst", n))
		if err := Tree(t.Context(), to, src, Options{}); err != nil {
			t.Error(err)
			continue
		}
		entries, err := os.ReadDir(to)
		if err != nil || len(entries) != files {
			t.Errorf("%d of %d files came, %v", len(entries), files, err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestGrowing(t *testing.T) {
	src, dst := trees(t, map[string]string{"log": strings.Repeat("x", 4<<20)})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		f, err := os.OpenFile(filepath.Join(src, "log"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for {
			select {
			case <-stop:
				return
			default:
				f.WriteString(strings.Repeat("y", 10_000))
			}
		}
	})
	err := Tree(t.Context(), dst, src, Options{})
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dst, "log"))
	if err != nil || len(b) < 4<<20 || strings.Trim(string(b), "xy") != "" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
