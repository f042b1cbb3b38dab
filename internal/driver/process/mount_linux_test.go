package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/workspace"
)

// mounting is a driver whose children see workspaces at a path of the test.
func mounting(t *testing.T) (*Driver, string) {
	t.Helper()
	d := New(Options{Self: "/proc/self/exe", Place: filepath.Join(t.TempDir(), "other")})
	if _, err := probe(d.opts.Self); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("nothing can be mounted here: %v", err)
		}
		t.Skipf("nothing can be mounted here: %v", err)
	}
	point := filepath.Join(t.TempDir(), "seen")
	return d, point
}

// output runs a script as a server and returns the lines that it writes.
func output(t *testing.T, d *Driver, spec driver.Spec, script string) (driver.Instance, []string) {
	t.Helper()
	spec.Server, spec.Dir, spec.Command, spec.Args = "fs", filepath.Join(t.TempDir(), "instance"), "sh", []string{"-c", script, "sh", "${workspace}"}
	inst, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inst.Stop(context.Background()) })
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Stream.Close()
	var lines []string
	for {
		frame, err := link.Stream.ReadFrame()
		if err != nil {
			break
		}
		if strings.Contains(string(frame), "end") {
			break
		}
		lines = append(lines, string(frame))
	}
	return inst, lines
}

// A child sees the workspace at the same path in every session, and so do its
// own children; outside nothing is mounted.
func TestWorkspaceIsMounted(t *testing.T) {
	d, point := mounting(t)
	const script = `
json() { printf '{"m":"%s"}\n' "$1"; }
json "$1"; json "$(pwd)"; json "$PWD"; json "$(cat "$1/name")"; json "$(sh -c 'cat name')"
echo new > "$1/made"; json end; sleep 1000`
	for _, name := range []string{"parent", "child"} {
		ws := drivertest.Workspace(t)
		write(t, ws, "name", name)
		at, why := d.Place(point)
		if at != point || why != "" {
			t.Fatalf("it is seen at %q: %s", at, why)
		}
		inst, got := output(t, d, driver.Spec{Workspace: ws, WorkspacePath: at}, script)
		want := fmt.Sprintf(`{"m":"%s"} {"m":"%s"} {"m":"%s"} {"m":"%s"} {"m":"%s"}`, point, point, point, name, name)
		if strings.Join(got, " ") != want {
			t.Errorf("%s tells %q", name, got)
		}
		if made, err := os.ReadFile(filepath.Join(ws.Dir(), "made")); err != nil || string(made) != "new\n" {
			t.Errorf("%s made %q, %v", name, made, err)
		}
		if list, err := os.ReadDir(point); err != nil || len(list) > 0 {
			t.Errorf("outside there is %v, %v", list, err)
		}
		mounts(t, point)
		// What is removed on the host while a child sees it is gone, mount or not.
		if err := inst.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if still := left(t, inst.Handle()); len(still) > 0 {
			t.Errorf("left is %v", still)
		}
		if err := os.RemoveAll(ws.Dir()); err != nil {
			t.Error(err)
		}
	}
}

// mounts fails where something is mounted at a path, here.
func mounts(t *testing.T, point string) {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.Contains(s.Text(), point) {
			t.Errorf("it is mounted: %s", s.Text())
		}
	}
}

func write(t *testing.T, ws *workspace.Workspace, name, text string) {
	t.Helper()
	if err := ws.FS().Write(name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

// A child that is mounted is adopted like any other.
func TestMountedIsAdopted(t *testing.T) {
	d, point := mounting(t)
	ws := drivertest.Workspace(t)
	write(t, ws, "name", "x")
	inst, _ := output(t, d, driver.Spec{Workspace: ws, WorkspacePath: point}, `echo '{"m":"end"}'; while read line; do printf '{"m":"%s"}\n' "$(cat "$1/name")"; done`)
	if err := inst.Leave(); err != nil {
		t.Fatal(err)
	}
	next := New(Options{Self: "/proc/self/exe"})
	again, err := next.Adopt(t.Context(), inst.Handle(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop(context.Background()) })
	link, err := again.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Stream.WriteFrame(t.Context(), []byte(`{"q":1}`)); err != nil {
		t.Fatal(err)
	}
	if got, err := link.Stream.ReadFrame(); err != nil || string(got) != `{"m":"x"}` {
		t.Errorf("it answers %s, %v", got, err)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if still := left(t, inst.Handle()); len(still) > 0 {
		t.Errorf("left is %v", still)
	}
}

// A path that is taken is left alone, and another one is used for all.
func TestPlaceIsTaken(t *testing.T) {
	d, point := mounting(t)
	full := filepath.Join(t.TempDir(), "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for path, word := range map[string]string{full: "something in it", link: "is a link", "/proc/nowhere": "/proc/nowhere"} {
		for range 2 {
			if at, why := d.Place(path); at != d.opts.Place || !strings.Contains(why, word) {
				t.Errorf("%s is seen at %q: %q", path, at, why)
			}
		}
	}
	ws := drivertest.Workspace(t)
	_, got := output(t, d, driver.Spec{Workspace: ws, WorkspacePath: full}, `printf '{"m":"%s"}\n{"m":"end"}\n' "$1"; sleep 1000`)
	if len(got) != 1 || !strings.Contains(got[0], d.opts.Place) {
		t.Errorf("it sees %q", got)
	}
	// Where nothing can be mounted a child sees the folder where it lies.
	plain := New(Options{})
	if at, why := plain.Place(point); at != "" || why == "" {
		t.Errorf("without mounts it is seen at %q: %q", at, why)
	}
	_, got = output(t, plain, driver.Spec{Workspace: ws, WorkspacePath: point}, `printf '{"m":"%s"}\n{"m":"end"}\n' "$1"; sleep 1000`)
	if len(got) != 1 || !strings.Contains(got[0], ws.Dir()) {
		t.Errorf("it sees %q", got)
	}
}
