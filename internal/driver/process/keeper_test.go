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
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// What is in the directories is tested where they are made.
func TestSeed(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	drivertest.Write(t, filepath.Join(dir, "template/x/y"), "of the template")
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "deep/er/state"), Dirs: []driver.StateDir{{Name: "a", Template: filepath.Join(dir, "template")}}}
	var last, total int64
	if err := d.Seed(t.Context(), spec, driver.Source{Progress: func(done, of int64) { last, total = done, of }}); err != nil {
		t.Fatal(err)
	}
	if want := int64(len("of the template")); last != want || total != want {
		t.Errorf("the last progress was %d of %d", last, total)
	}
	if st, err := os.Lstat(spec.State); err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 && os.PathSeparator == '/' {
		t.Errorf("its folder: %v, %v", st.Mode(), err)
	}
	// A state is made once.
	if err := d.Seed(t.Context(), spec, driver.Source{}); err == nil || !strings.Contains(err.Error(), "something in its place") {
		t.Errorf("seeded twice: %v", err)
	}
	drivertest.Reads(t, filepath.Join(spec.State, "a/x/y"), "of the template")

	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snaps/1"))
	if err != nil {
		t.Fatal(err)
	}
	if snap.Size != last || snap.Carries != driver.CarryFiles {
		t.Errorf("snapshot %+v", snap)
	}
	child := spec
	child.State = filepath.Join(dir, "child")
	if err := d.Seed(t.Context(), child, driver.Source{From: &snap}); err != nil {
		t.Fatal(err)
	}
	drivertest.Reads(t, filepath.Join(child.State, "a/x/y"), "of the template")
}

func TestSeedErrors(t *testing.T) {
	for name, test := range map[string]struct {
		dirs []driver.StateDir
		from *driver.Snapshot
		want string
	}{
		"a file":             {[]driver.StateDir{{Name: "a", Template: os.Args[0]}}, nil, "is not a directory; mend its template in servers.db.state"},
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
			drivertest.Empty(t, dir)
		})
	}
}

// What fails after a part was moved gives it back.
func TestTakeGivesBack(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: []driver.StateDir{{Name: "a"}, {Name: "b"}}}
	snap := driver.Snapshot{Driver: "process", Dir: filepath.Join(dir, "snap"), Data: []byte(`{"dirs":{"a":true,"b":true}}`)}
	drivertest.Write(t, filepath.Join(snap.Dir, "a/x"), "x")
	if err := d.Seed(t.Context(), spec, driver.Source{From: &snap, Take: true}); err == nil {
		t.Error("it has no b, and was taken")
	}
	drivertest.Reads(t, filepath.Join(snap.Dir, "a/x"), "x")
	drivertest.Absent(t, spec.State)
}

func TestServersWithoutState(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state")}
	const why = `what server "db" remembers is not known; set servers.db.sandbox to true, and a fork carries all of it (on Linux), or name its directories with servers.db.state: [NAME] and ${state.NAME} in its args or env`
	if got, reason := d.Carries(spec); got != driver.CarryNone || reason != why {
		t.Errorf("carries %q: %s", got, reason)
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
	drivertest.Empty(t, dir)
}

func TestRecover(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: []driver.StateDir{{Name: "a"}}}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	drivertest.Write(t, filepath.Join(spec.State, "a/x"), "x")
	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap"))
	if err != nil {
		t.Fatal(err)
	}
	half := halfMade(t, spec.State)
	states := []string{spec.State, filepath.Join(dir, "none")}
	if err := d.Recover(t.Context(), states, []driver.Snapshot{snap, {Driver: "process"}}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left", half)
	}
	drivertest.Reads(t, filepath.Join(spec.State, "a/x"), "x")
	drivertest.Reads(t, filepath.Join(snap.Dir, "a/x"), "x")
}

// halfMade leaves in a folder what a copy is before it is whole.
func halfMade(t *testing.T, dir string) (path string) {
	t.Helper()
	src := t.TempDir()
	drivertest.Write(t, filepath.Join(src, "x"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = clone.Tree(ctx, filepath.Join(dir, "never"), src, clone.Options{Progress: func(int64, int64) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") && e.IsDir() {
				path = filepath.Join(dir, e.Name())
			}
		}
		cancel()
	}})
	if path == "" {
		t.Fatal("a running copy was not seen")
	}
	drivertest.Write(t, filepath.Join(path, "d/x"), "half")
	return path
}
