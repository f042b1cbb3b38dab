package dirs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// sow seeds a folder, as a driver does.
func sow(t testing.TB, declared []driver.StateDir, folder string, from From, progress func(done, total int64)) error {
	t.Helper()
	plan, err := Plan("db", declared, folder, from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := plan.Make(t.Context(), progress); err != nil {
		plan.GiveBack()
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		return err
	}
	return nil
}

func TestPlanAndMake(t *testing.T) {
	dir := t.TempDir()
	template := filepath.Join(dir, "template")
	drivertest.Write(t, filepath.Join(template, "x/y"), "of the template")
	if err := os.Chmod(template, 0o755); err != nil {
		t.Fatal(err)
	}
	linked := template
	if err := os.Symlink("template", filepath.Join(dir, "link")); err == nil {
		linked = filepath.Join(dir, "link")
	}
	declared := []driver.StateDir{{Name: "a", Template: template}, {Name: "b"}, {Name: "c", Template: linked}}
	state := filepath.Join(dir, "state")
	var last, total int64
	err := sow(t, declared, state, From{}, func(done, of int64) {
		if done < last || done > of {
			t.Errorf("%d of %d after %d", done, of, last)
		}
		last, total = done, of
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(2 * len("of the template")); last != want || total != want {
		t.Errorf("the last progress was %d of %d", last, total)
	}
	drivertest.Reads(t, filepath.Join(state, "a/x/y"), "of the template")
	drivertest.Reads(t, filepath.Join(state, "c/x/y"), "of the template")
	for _, name := range []string{"a", "b", "c"} {
		if st, err := os.Lstat(filepath.Join(state, name)); err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 && os.PathSeparator == '/' {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}

	// A directory that was declared since begins like any other.
	snap := filepath.Join(dir, "snap")
	if err := os.Mkdir(snap, 0o700); err != nil {
		t.Fatal(err)
	}
	set, size, err := Freeze(t.Context(), declared, snap, state, false)
	if err != nil || size != last || len(set) != 3 || !set["b"] {
		t.Fatalf("frozen %v with %d bytes: %v", set, size, err)
	}
	more := append(declared, driver.StateDir{Name: "new", Template: template})
	if err := sow(t, more, filepath.Join(dir, "more"), From{Dirs: set, Folder: snap}, nil); err != nil {
		t.Fatal(err)
	}
	drivertest.Reads(t, filepath.Join(dir, "more/new/x/y"), "of the template")
	drivertest.Reads(t, filepath.Join(dir, "more/a/x/y"), "of the template")

	if plan, err := Plan("db", nil, dir, From{}); err != nil || !plan.Empty() {
		t.Errorf("of nothing there is something: %v", err)
	}
}

func TestPlanErrors(t *testing.T) {
	for name, test := range map[string]struct {
		dirs []driver.StateDir
		from From
		want string
	}{
		"no template":         {[]driver.StateDir{{Name: "a"}, {Name: "b", Template: "/no/such"}}, From{}, `directory "b": template "/no/such"`},
		"a file":              {[]driver.StateDir{{Name: "a", Template: os.Args[0]}}, From{}, "is not a directory; mend its template in servers.db.state"},
		"an escape":           {[]driver.StateDir{{Name: "../a"}}, From{}, "can't be called"},
		"itself":              {[]driver.StateDir{{Name: "."}}, From{}, "can't be called"},
		"deep":                {[]driver.StateDir{{Name: "a/b"}}, From{}, "can't be called"},
		"no name":             {[]driver.StateDir{{}}, From{}, "can't be called"},
		"would be lost":       {[]driver.StateDir{{Name: "a"}}, From{Dirs: Set{"a": false, "old": true}}, `the directory "old", which would be lost; add it to servers.db.state`},
		"nothing to be taken": {nil, From{Dirs: Set{"a": true}}, "would be lost"},
		"no snapshot":         {[]driver.StateDir{{Name: "a"}}, From{Dirs: Set{"a": true}, Folder: "/no/such"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, take := range []bool{false, true} {
				test.from.Take = take
				err := sow(t, test.dirs, filepath.Join(dir, "state"), test.from, nil)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
			}
			drivertest.Empty(t, dir)
		})
	}
	if err := (Set{"a": true, "../x": true}).Check(); err == nil {
		t.Error("a set that leads out is fine")
	}
}

// What fails after a part was moved gives it back.
func TestTakeGivesBack(t *testing.T) {
	dir := t.TempDir()
	declared := []driver.StateDir{{Name: "a"}, {Name: "b"}}
	state, snap := filepath.Join(dir, "state"), filepath.Join(dir, "snap")
	from := From{Dirs: Set{"a": true, "b": true}, Folder: snap, Take: true}
	drivertest.Write(t, filepath.Join(snap, "a/x"), "x")
	if err := sow(t, declared, state, from, nil); err == nil {
		t.Error("it has no b, and was taken")
	}
	drivertest.Reads(t, filepath.Join(snap, "a/x"), "x")
	drivertest.Write(t, filepath.Join(snap, "b/y"), "y")
	if err := sow(t, declared, state, from, nil); err != nil {
		t.Fatal(err)
	}
	drivertest.Reads(t, filepath.Join(state, "a/x"), "x")
	drivertest.Reads(t, filepath.Join(state, "b/y"), "y")
	drivertest.Empty(t, snap)
}

// A server may remove its own directory, or put something else in its place.
func TestFreezeOfWhatTheServerChanged(t *testing.T) {
	dir := t.TempDir()
	declared := []driver.StateDir{{Name: "a", Template: t.TempDir()}, {Name: "b"}}
	state, snap := filepath.Join(dir, "state"), filepath.Join(dir, "snap")
	drivertest.Write(t, filepath.Join(state, "b/x"), "x")
	if err := os.Mkdir(snap, 0o700); err != nil {
		t.Fatal(err)
	}
	set, _, err := Freeze(t.Context(), declared, snap, state, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := sow(t, declared, filepath.Join(dir, "child"), From{Dirs: set, Folder: snap}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "child/a")); !os.IsNotExist(err) {
		t.Errorf("it is there again: %v", err)
	}
	drivertest.Reads(t, filepath.Join(dir, "child/b/x"), "x")
	if err := os.Symlink(t.TempDir(), filepath.Join(state, "a")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Freeze(t.Context(), declared, t.TempDir(), state, false); err == nil || !strings.Contains(err.Error(), `directory "a"`) {
		t.Errorf("a link was followed: %v", err)
	}
}
