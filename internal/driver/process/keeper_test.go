package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func reads(t testing.TB, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s: %q, %v, want %q", path, b, err, want)
	}
}

func wantEmpty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", e.Name())
	}
}

func TestSeedFromTemplates(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	write(t, filepath.Join(dir, "template/x/y"), "of the template")
	if err := os.Chmod(filepath.Join(dir, "template"), 0o755); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(dir, "template")
	if err := os.Symlink("template", filepath.Join(dir, "link")); err == nil {
		linked = filepath.Join(dir, "link")
	}
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "deep/er/state"), Dirs: []driver.StateDir{
		{Name: "a", Template: filepath.Join(dir, "template")}, {Name: "b"}, {Name: "c", Template: linked},
	}}
	var last, total int64
	if err := d.Seed(t.Context(), spec, driver.Source{Progress: func(done, of int64) {
		if done < last || done > of {
			t.Errorf("%d of %d after %d", done, of, last)
		}
		last, total = done, of
	}}); err != nil {
		t.Fatal(err)
	}
	if want := int64(2 * len("of the template")); last != want || total != want {
		t.Errorf("the last progress was %d of %d", last, total)
	}
	reads(t, filepath.Join(spec.State, "a/x/y"), "of the template")
	reads(t, filepath.Join(spec.State, "c/x/y"), "of the template")
	for _, name := range []string{".", "a", "b", "c"} {
		if st, err := os.Lstat(filepath.Join(spec.State, name)); err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 && os.PathSeparator == '/' {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	// A state is made once.
	if err := d.Seed(t.Context(), spec, driver.Source{}); err == nil || !strings.Contains(err.Error(), "something in its place") {
		t.Errorf("seeded twice: %v", err)
	}
	reads(t, filepath.Join(spec.State, "a/x/y"), "of the template")

	// A directory that was declared since the snapshot begins like any other.
	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snaps/1"))
	if err != nil {
		t.Fatal(err)
	}
	if snap.Size != last || snap.Carries != driver.CarryFiles {
		t.Errorf("snapshot %+v", snap)
	}
	more := spec
	more.State = filepath.Join(dir, "more")
	more.Dirs = append(more.Dirs, driver.StateDir{Name: "new", Template: filepath.Join(dir, "template")})
	if err := d.Seed(t.Context(), more, driver.Source{From: &snap}); err != nil {
		t.Fatal(err)
	}
	reads(t, filepath.Join(more.State, "new/x/y"), "of the template")
}

func TestSeedErrors(t *testing.T) {
	for name, test := range map[string]struct {
		dirs []driver.StateDir
		from *driver.Snapshot
		want string
	}{
		"a file":             {[]driver.StateDir{{Name: "a", Template: os.Args[0]}}, nil, "is not a directory; mend its template in servers.db.state"},
		"an escape":          {[]driver.StateDir{{Name: "../a"}}, nil, "can't be called"},
		"would be lost":      {[]driver.StateDir{{Name: "a"}}, &driver.Snapshot{Driver: "process", Data: []byte(`{"dirs":{"a":false,"old":true}}`)}, `the directory "old", which would be lost; add it to servers.db.state`},
		"of another":         {[]driver.StateDir{{Name: "a"}}, &driver.Snapshot{Driver: "builtin"}, `of the driver "builtin"`},
		"an evil snapshot":   {[]driver.StateDir{{Name: "a"}}, &driver.Snapshot{Driver: "process", Data: []byte(`{"dirs":{"../x":true}}`)}, "can't be called"},
		"a damaged snapshot": {[]driver.StateDir{{Name: "a"}}, &driver.Snapshot{Driver: "process", Data: []byte(`{`)}, "read the snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: test.dirs}
			for _, take := range []bool{false, true} {
				err := New(Options{}).Seed(t.Context(), spec, driver.Source{From: test.from, Take: take})
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `server "db"`) {
					t.Errorf("got %v, want %q", err, test.want)
				}
			}
			wantEmpty(t, dir)
		})
	}
}

// What fails after a part was moved gives it back.
func TestTakeGivesBack(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: []driver.StateDir{{Name: "a"}, {Name: "b"}}}
	snap := driver.Snapshot{Driver: "process", Dir: filepath.Join(dir, "snap"), Data: []byte(`{"dirs":{"a":true,"b":true}}`)}
	write(t, filepath.Join(snap.Dir, "a/x"), "x")
	if err := d.Seed(t.Context(), spec, driver.Source{From: &snap, Take: true}); err == nil {
		t.Error("it has no b, and was taken")
	}
	reads(t, filepath.Join(snap.Dir, "a/x"), "x")
	if _, err := os.Lstat(spec.State); !errors.Is(err, os.ErrNotExist) {
		t.Error("the state is left")
	}
	write(t, filepath.Join(snap.Dir, "b/y"), "y")
	if err := d.Seed(t.Context(), spec, driver.Source{From: &snap, Take: true}); err != nil {
		t.Fatal(err)
	}
	reads(t, filepath.Join(spec.State, "a/x"), "x")
	reads(t, filepath.Join(spec.State, "b/y"), "y")
	wantEmpty(t, snap.Dir)
}

func TestServersWithoutState(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state")}
	if got := d.Carries(spec); got != driver.CarryNone {
		t.Errorf("carries %q", got)
	}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Seed(t.Context(), spec, driver.Source{From: &snap, Take: true}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(d.Discard(t.Context(), snap), d.Erase(t.Context(), spec), d.Erase(t.Context(), driver.Spec{})); err != nil {
		t.Error(err)
	}
	wantEmpty(t, dir)
}

func TestRecover(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: []driver.StateDir{{Name: "a"}}}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(spec.State, "a/x"), "x")
	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap"))
	if err != nil {
		t.Fatal(err)
	}
	half := halfMade(t, spec.State)
	states := []string{spec.State, filepath.Join(dir, "none")}
	if err := d.Recover(t.Context(), states, []driver.Snapshot{snap, {Driver: "process"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left", half)
	}
	reads(t, filepath.Join(spec.State, "a/x"), "x")
	reads(t, filepath.Join(snap.Dir, "a/x"), "x")
}

// halfMade leaves in a folder what a copy is before it is whole.
func halfMade(t *testing.T, dir string) (path string) {
	t.Helper()
	src := t.TempDir()
	write(t, filepath.Join(src, "x"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = clone.Tree(ctx, filepath.Join(dir, "never"), src, clone.Options{Progress: func(int64, int64) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				path = filepath.Join(dir, e.Name())
			}
		}
		cancel()
	}})
	if path == "" {
		t.Fatal("a copy under way was not seen")
	}
	write(t, filepath.Join(path, "d/x"), "half")
	return path
}
