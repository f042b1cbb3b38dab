package layer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// forest is a world with a sealed base, states a and b on it with changes of
// their own, one without changes, and one that stands alone.
type forest struct {
	*world
	base  Ref
	names []string
	want  map[string]map[string]string
	files map[string][]byte // all files by path, undamaged
}

func newForest(t *testing.T) *forest {
	t.Helper()
	w := newWorld(t)
	f := &forest{world: w, names: []string{"a", "b", "unchanged", "alone"}}
	base := map[string]string{
		"small": "s", "empty": "",
		"large": strings.Repeat("0123456789abcde\n", chunk/16+900), // several blocks, the last one short
	}
	w.create("base", Ref{})
	h := w.open("base")
	for _, key := range []string{"large", "small", "empty"} {
		must(t, put(h, key, base[key]))
	}
	f.base = w.seal("base")
	must(t, w.Remove(w.dir("base")))
	for _, name := range f.names[:3] {
		w.create(name, f.base)
	}
	w.create("alone", Ref{})
	must(t, put(w.open("a"), "a", "only in a"))
	h = w.open("b")
	must(t, put(h, "b", "only in b"))
	must(t, drop(h, "small"))
	must(t, put(w.open("alone"), "x", "y"))

	b := with(base, "b", "only in b")
	delete(b, "small")
	f.want = map[string]map[string]string{
		"a": with(base, "a", "only in a"), "b": b, "unchanged": base, "alone": {"x": "y"},
	}
	must(t, w.Close())
	f.readFiles()
	return f
}

func (f *forest) readFiles() {
	f.t.Helper()
	f.files = map[string][]byte{}
	must(f.t, filepath.WalkDir(f.root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			f.files[path], err = os.ReadFile(path)
		}
		return err
	}))
}

// unchanged checks that all files but one are as they were.
func (f *forest) unchanged(damaged string) {
	f.t.Helper()
	for path, b := range f.files {
		if now, err := os.ReadFile(path); path != damaged && (err != nil || string(now) != string(b)) {
			f.t.Fatalf("%s was changed after damage in %s: %v", path, damaged, err)
		}
	}
}

// read opens a state as the next run would and reads everything in it. What it
// returns is all that could be read, and the errors of the rest.
func (f *forest) read(name string) (got map[string]string, errs []error) {
	h, err := Open(f.Store, f.dir(name), dictMachine())
	if err != nil {
		return nil, []error{err}
	}
	defer h.Close()
	got = map[string]string{}
	for it := h.Value().Iterator(); !it.Done(); {
		key, e, _ := it.Next()
		b, err := io.ReadAll(e.Reader())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		got[key] = string(b)
	}
	return got, errs
}

// check reads every state after one file was damaged: what is read equals the
// original, and where anything is missing an error says so and names the file.
func (f *forest) check(damaged string) error {
	f.start()
	defer f.Close()
	dirs := make([]string, len(f.names))
	for i, name := range f.names {
		dirs[i] = f.dir(name)
	}
	if err := f.Recover(dirs, []Ref{f.base}); err != nil {
		return err
	}
	onBase := strings.Contains(damaged, f.base.ID)
	for _, name := range f.names {
		got, errs := f.read(name)
		want := f.want[name]
		for key, content := range got {
			if w, ok := want[key]; !ok || w != content {
				return fmt.Errorf("%s: %s reads %.40q, want %.40q, and no error", name, key, content, w)
			}
		}
		if len(errs) == 0 && len(got) != len(want) {
			return fmt.Errorf("%s: %d of %d keys are there, and no error", name, len(got), len(want))
		}
		var names string
		for _, err := range errs {
			var d *Damage
			if errors.As(err, &d) {
				names = d.File
			}
			if !IsLost(err) {
				return fmt.Errorf("%s: not reported as lost: %w", name, err)
			}
			if !strings.Contains(err.Error(), filepath.Base(damaged)) && !strings.Contains(err.Error(), filepath.Dir(damaged)) {
				return fmt.Errorf("%s: the error does not name %s: %w", name, damaged, err)
			}
		}
		own := names == damaged || strings.HasPrefix(damaged, f.dir(name)+string(filepath.Separator))
		if len(errs) > 0 && !own && !(onBase && name != "alone") {
			return fmt.Errorf("%s: touched by damage in %s: %v", name, damaged, errs[0])
		}
	}
	return nil
}

// positions are offsets in a file of n bytes, close to each other at both ends.
func positions(n int) []int {
	var all []int
	for i := 0; i < n; i++ {
		if i%7 == 0 && (i < 200 || i >= n-200) || i%16_411 == 0 || i == n-1 {
			all = append(all, i)
		}
	}
	return all
}

func TestFlippedBytesAreNeverServed(t *testing.T) {
	f := newForest(t)
	for path, whole := range f.files {
		for _, i := range positions(len(whole)) {
			damaged := flip(whole, i)
			must(t, os.WriteFile(path, damaged, 0o600))
			if err := f.check(path); err != nil {
				t.Fatalf("byte %d of %s (%d bytes): %v", i, path, len(whole), err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != string(damaged) {
				t.Fatalf("byte %d of %s: the damaged file was changed (%v)", i, path, err)
			}
		}
		f.unchanged(path)
		must(t, os.WriteFile(path, whole, 0o600))
	}
}

func TestCutFilesAreNeverServed(t *testing.T) {
	f := newForest(t)
	for path, whole := range f.files {
		for _, n := range positions(len(whole)) {
			must(t, os.WriteFile(path, whole[:n], 0o600))
			if err := f.check(path); err != nil {
				t.Fatalf("%s cut to %d of %d bytes: %v", path, n, len(whole), err)
			}
		}
		must(t, os.Remove(path))
		if err := f.check(path); err != nil {
			t.Fatalf("%s removed: %v", path, err)
		}
		f.unchanged(path)
		must(t, os.WriteFile(path, whole, 0o600))
	}
}

// version1 is a world that an earlier version of the format left.
func version1(t *testing.T) *forest {
	t.Helper()
	f := &forest{world: &world{t: t, root: t.TempDir()}, base: Ref{"lyr_e84fd3e8ae10fc1e"}, names: []string{"a", "unchanged"}}
	must(t, os.CopyFS(f.root, os.DirFS(filepath.Join("testdata", "version1"))))
	base := map[string]string{"small": "s", "large": strings.Repeat("0123456789abcde\n", 70<<10/16)}
	f.want = map[string]map[string]string{"a": with(base, "a", "only in a"), "unchanged": base}
	f.readFiles()
	return f
}

func TestVersion1IsReadAndContinued(t *testing.T) {
	f := version1(t)
	f.start()
	t.Cleanup(func() { f.Close() })
	must(t, f.Recover([]string{f.dir("a"), f.dir("unchanged")}, []Ref{f.base}))
	expect(t, f.open("unchanged"), f.want["unchanged"])
	h := f.open("a")
	expect(t, h, f.want["a"])
	want := with(f.want["a"], "new", "one more in the old layer")
	must(t, put(h, "new", want["new"]))
	f.restart([]string{"a"}, f.base)
	h = f.open("a")
	expect(t, h, want)
	ref := f.seal("a")
	want = with(want, "newer", "in a layer of the new version")
	must(t, put(h, "newer", want["newer"]))
	f.restart([]string{"a"}, f.base, ref)
	expect(t, f.open("a"), want)
	other := newWorld(t)
	got, err := other.Import(bytes.NewReader(export(t, f.Store, f.seal("a"))))
	must(t, err)
	other.create("b", got)
	expect(t, other.open("b"), want)
	other.restart([]string{"b"})
	expect(t, other.open("b"), want)
}

// TestVersion1FlippedBytes: what has no end marker and no tables is verified just
// the same.
func TestVersion1FlippedBytes(t *testing.T) {
	f := version1(t)
	for path, whole := range f.files {
		for _, i := range positions(len(whole)) {
			must(t, os.WriteFile(path, flip(whole, i), 0o600))
			if err := f.check(path); err != nil {
				t.Fatalf("byte %d of %s (%d bytes): %v", i, path, len(whole), err)
			}
		}
		must(t, os.WriteFile(path, whole, 0o600))
	}
}

// TestDamageIsNotCopied: writing layers anew fails on damage, and leaves all files.
func TestDamageIsNotCopied(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("known=", known), func(t *testing.T) {
			w := newWorld(t)
			w.create("a", Ref{})
			must(t, put(w.open("a"), "x", strings.Repeat("x", 1000)))
			must(t, w.Close())
			path := filepath.Join(w.root, "layers", w.ids()[0]+fileSuffix)
			b, err := os.ReadFile(path)
			must(t, err)
			damaged := flip(b, headerSize+recordSize+500)
			must(t, os.WriteFile(path, damaged, 0o600))

			w.start()
			must(t, w.Recover([]string{w.dir("a")}, nil))
			w.rewriteFrom, w.mergeFrom = 1, 2
			h := w.open("a")
			e, _ := h.Value().Get("x")
			if known {
				_, err := io.ReadAll(e.Reader())
				wantError(t, err, path)
			}
			for range 200 {
				must(t, put(h, "y", strings.Repeat("y", 1000)))
				must(t, w.Release(w.seal("a")))
			}
			if _, err := io.ReadAll(e.Reader()); !IsLost(err) {
				t.Fatalf("read after much was written: %v", err)
			}
			now, _ := h.Value().Get("x")
			if _, err := io.ReadAll(now.Reader()); !IsLost(err) {
				t.Fatalf("the damaged body was copied: %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(got, damaged[:len(damaged)-recordSize]) {
				t.Fatalf("the damaged file was changed: %v", err)
			}
		})
	}
}

// TestVerifiedOnce: a block is verified when it is first read, and no more.
func TestVerifiedOnce(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	must(t, put(w.open("a"), "x", strings.Repeat("x", 4*blockSize)))
	must(t, w.Close())
	w.start()
	read := 0
	open := w.files.open
	w.files.open = func(path string, flag int) (handle, error) {
		f, err := open(path, flag)
		return metered{f, &read}, err
	}
	must(t, w.Recover([]string{w.dir("a")}, nil))
	e, _ := w.open("a").Value().Get("x")
	p := make([]byte, 100)
	for i, want := range []int{blockSize + 4*4, 100, 100} { // the block and the table, then what is asked for
		before := read
		_, err := e.ReadAt(p, 70_000)
		must(t, err)
		if read-before != want {
			t.Errorf("read %d: %d bytes, want %d", i, read-before, want)
		}
	}
}

type metered struct {
	handle
	read *int
}

func (f metered) ReadAt(p []byte, off int64) (int, error) {
	*f.read += len(p)
	return f.handle.ReadAt(p, off)
}

func TestDamageSince(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.create(name, Ref{})
		must(t, put(w.open(name), "x", name))
	}
	own := w.states[w.dir("a")].own.id
	must(t, w.Close())
	path := w.files.path(own)
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, flip(b, headerSize+recordSize+2), 0o600))
	w.start()
	must(t, w.Recover([]string{w.dir("a"), w.dir("b")}, nil))
	n := w.Damages()
	e, _ := w.open("a").Value().Get("x")
	if _, err := io.ReadAll(e.Reader()); !IsLost(err) {
		t.Fatal(err)
	}
	expect(t, w.open("b"), map[string]string{"x": "b"})
	if w.Damages() == n {
		t.Error("not counted")
	}
	if d := w.DamageSince(w.dir("a"), n); d == nil || d.File != path {
		t.Errorf("a: %v", d)
	}
	if d := w.DamageSince(w.dir("b"), n); d != nil {
		t.Errorf("b: %v", d)
	}
	if d := w.DamageSince(w.dir("a"), w.Damages()); d != nil {
		t.Errorf("since then: %v", d)
	}
}
