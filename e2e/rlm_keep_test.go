//go:build linux && (amd64 || arm64)

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// A kernel with what a file of variables can't hold: a thread and an open file.
const (
	lively = `
import threading, time
x, ticks = [1, 2], 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.01)
thread = threading.Thread(target=tick, daemon=True, name="ticker")
thread.start()
notes = open("/tmp/notes", "w+")
notes.write("begun")
`
	alive = `
seen = ticks
while ticks == seen: time.sleep(0.01)
notes.write(", gone on")
_ = notes.seek(0)
x, [t.name for t in threading.enumerate() if t.name == "ticker"], notes.read()
`
)

// goesOn holds that a kernel is as lively left it.
func (c *rlmClient) goesOn(t *testing.T) {
	t.Helper()
	c.is(t, alive, "([1, 2], ['ticker'], 'begun, gone on')")
}

// TestRLMKeeps has clients leave and come back.
func TestRLMKeeps(t *testing.T) {
	t.Parallel()
	onRLM(t, func(t *testing.T, w *rlmWorld) {
		project := w.project(t, nil)
		c := w.open(t, project)
		c.run(t, lively)
		c.leave(t)
		w.nothing(t)
		c = w.open(t, project)
		if w.engine == nil {
			c.goesOn(t)
			// It is the kernel of that folder, wherever it is named from.
			c.leave(t)
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(project, link); err != nil {
				t.Fatal(err)
			}
			c = w.open(t, w.home, "--project", link)
			c.is(t, "x", "[1, 2]")
		} else {
			c.loses(t, "thread", "notes")
			c.is(t, "x, ticks > 0, tick.__name__", "([1, 2], True, 'tick')")
			c.run(t, "y = 'new'")
			c.kill(t) // the helper saves what there is
			w.nothing(t)
			c = w.open(t, project)
			c.is(t, "x, y", "([1, 2], 'new')")
		}
		// What was kept when the client left is there when the kernel dies later on.
		c.run(t, "x.append(3)")
		w.killKernel(t)
		c.loses(t, "gone", "x")
		c.is(t, "x", "[1, 2]")
		c.leave(t)
		w.nothing(t)
		if rooms := w.rooms(t); len(rooms) != 1 {
			t.Errorf("there are %v", rooms)
		}
	})
}

// TestRLMKilled kills tine rlm in the midst of a call: its helper keeps the kernel as
// it was, and ends it.
func TestRLMKilled(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	project := w.project(t, nil)
	c := w.open(t, project)
	c.run(t, lively)
	for _, code := range []string{"", "n = 0\nwhile True: n += 1"} {
		if code != "" {
			answered := make(chan error, 1)
			go func() {
				_, err := c.exec(code)
				answered <- err
			}()
			time.Sleep(200 * time.Millisecond) // killed at any moment
			c.cmd.Process.Kill()
			if err := testkit.Within(t, "the end of the call", answered); err == nil {
				t.Error("a call is answered that can't be")
			}
			c.drain()
		} else {
			c.kill(t)
		}
		w.nothing(t)
		c = w.open(t, project)
		if code != "" {
			// The code is interrupted; a call may say so.
			if got, err := c.exec("n > 0"); err == nil && got != "True" {
				t.Errorf("the code counted: %s", got)
			}
			c.is(t, "a = n; time.sleep(0.05); a == n and a > 0", "True")
		}
		c.is(t, "x, thread.is_alive(), notes.closed", "([1, 2], True, False)")
	}
	c.goesOn(t)
	c.leave(t)
	w.nothing(t)
}

// TestRLMKilledWithHelper kills tine rlm and its helper at once, so that nothing ends the
// kernel: the next tine rlm in the folder goes on with it, and one in another folder
// ends it.
func TestRLMKilledWithHelper(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	project, other := w.project(t, nil), w.project(t, nil)
	c := w.open(t, project)
	c.run(t, lively)
	c.kill(t, roleHelper)
	c = w.open(t, project)
	c.goesOn(t)

	c.kill(t, roleHelper)
	next := w.open(t, other)
	next.is(t, "'x' in globals()", "False")
	testkit.Eventually(t, "the end of the kernel that was left", func() bool { return len(w.kernels(t)) == 1 })
	next.leave(t)
	w.nothing(t)
	c = w.open(t, project)
	if got, err := c.exec("x"); err != nil {
		if !failsAs(err, api.KindLost) {
			t.Errorf("what was left is neither there nor told: %q, %v", got, err)
		}
		c.is(t, "1 + 1", "2")
	} else if got != "[1, 2]" {
		t.Errorf("x is %s", got)
	}
	c.leave(t)
	w.nothing(t)
}

// TestRLMTwoWindows has two clients in one folder: the second has a kernel of its own that
// is not kept, and is told.
func TestRLMTwoWindows(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	project := w.project(t, nil)
	first := w.open(t, project)
	first.run(t, "x = 1")
	second := w.open(t, project)
	if got := second.run(t, "'x' in globals()"); !strings.Contains(got, "False") || got == "False" {
		t.Errorf("the second window is told %q", got)
	} else {
		testkit.Has(t, "the first result", got, "another client", "gone when the client leaves")
	}
	second.is(t, "x = 2; x", "2")
	first.is(t, "x", "1")
	second.leave(t)
	first.is(t, "x", "1")
	if rooms := w.rooms(t); len(rooms) != 1 {
		t.Errorf("after the second window left there are %v", rooms)
	}

	// Killed, the second leaves as little; and the first may leave before it.
	second = w.open(t, project)
	second.run(t, "x = 3")
	first.leave(t)
	third := w.open(t, project)
	third.is(t, "x", "1")
	second.is(t, "x", "3")
	second.kill(t)
	third.is(t, "x", "1")
	third.leave(t)
	w.nothing(t)
	if rooms := w.rooms(t); len(rooms) != 1 {
		t.Errorf("in the end there are %v", rooms)
	}
}

// TestRLMSessions gives a project several kernels, which are all kept and run at once.
func TestRLMSessions(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	project := w.project(t, nil)
	sessions := [][]string{nil, {"--session", "one"}, {"--session", "two"}}
	for round := range 2 {
		var open []*rlmClient
		for i, args := range sessions {
			c := w.open(t, project, args...)
			open = append(open, c)
			if round == 0 {
				c.is(t, "'name' in globals()", "False")
				c.run(t, "name = "+strings.Repeat("1+", i)+"0")
			}
		}
		for i, c := range open {
			c.is(t, "name", string(rune('0'+i)))
			c.leave(t)
		}
		w.nothing(t)
	}
	if rooms := w.rooms(t); len(rooms) != len(sessions) {
		t.Errorf("there are %v", rooms)
	}
}

// TestRLMChangesItsWay runs the kernel of a folder in a sandbox, then in a container, and
// back: each is there again.
func TestRLMChangesItsWay(t *testing.T) {
	t.Parallel()
	box := rlmSandbox(t)
	container := rlmDocker(t, needEngine(t, "docker"))
	container.env = append(container.env, "TINE_STATE="+box.state)
	container.state = box.state
	project := box.project(t, nil)
	for n, w := range []*rlmWorld{box, container, box, container} {
		c := w.open(t, project)
		if n > 1 {
			c.is(t, "x", fmt.Sprintf("'in a %s'", w.way))
		}
		c.run(t, fmt.Sprintf("x = 'in a %s'", w.way))
		c.leave(t)
		w.nothing(t)
	}
}

// TestRLMDamaged damages the memory that was kept: that is told, and a kernel starts from
// the variables that were saved beside it.
func TestRLMDamaged(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	damages := map[string]func(path string, size int64) error{
		"cut":     func(path string, size int64) error { return os.Truncate(path, size/2) },
		"removed": func(path string, _ int64) error { return os.Remove(path) },
		"other":   func(path string, size int64) error { return os.WriteFile(path, make([]byte, size), 0o600) },
	}
	for name, damage := range damages {
		if name != "cut" && torture.Or(true, false) {
			continue
		}
		project := w.project(t, nil)
		c := w.open(t, project, "--session", name)
		c.run(t, "x = 1")
		c.leave(t)
		var biggest string
		var most int64
		if err := filepath.WalkDir(filepath.Join(w.state, "rlm"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.Contains(path, "/sessions/") {
				return err
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() > most {
				biggest, most = path, info.Size()
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := damage(biggest, most); err != nil {
			t.Fatal(err)
		}
		c = w.open(t, project, "--session", name)
		c.loses(t, filepath.Base(filepath.Dir(biggest)), "memory is damaged", "begins anew")
		c.is(t, "y = 2; x, y", "(1, 2)")
		c.leave(t)
		c = w.open(t, project, "--session", name)
		c.is(t, "y", "2")
		c.leave(t)
		if err := os.RemoveAll(filepath.Join(w.state, "rlm")); err != nil {
			t.Fatal(err)
		}
	}
	w.nothing(t)
}

// TestRLMAnotherPython gives a kernel another Python, which can't use its memory: the
// variables come from what was saved, and what is not there is told, once.
func TestRLMAnotherPython(t *testing.T) {
	t.Parallel()
	w := rlmSandbox(t)
	project := w.project(t, nil)
	venv := filepath.Join(project, ".venv")
	if out, err := exec.Command("python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("make a venv: %v\n%s", err, out)
	}
	c := w.open(t, project)
	c.run(t, "x = [1, 2]")
	c.leave(t)
	const changed = "its Python, its packages or this system have changed"
	c = w.open(t, project, "--python", ".venv/bin/python")
	testkit.Has(t, "the first result", c.run(t, "x"), "[1, 2]", changed, "all variables are back")
	c.is(t, "import sys; sys.prefix != sys.base_prefix", "True")
	c.run(t, "pair = (1, (i for i in range(2)))")
	c.leave(t)
	c = w.open(t, project)
	c.loses(t, changed, "pair (TypeError")
	c.is(t, "x, 'pair' in globals()", "([1, 2], False)")
	c.leave(t)
	w.nothing(t)

	// A program that is no Python costs nothing.
	c = w.open(t, project)
	c.is(t, "x", "[1, 2]")
	c.run(t, "pair = (1, (i for i in range(2)))")
	c.leave(t)
	var said strings.Builder
	cmd := w.command(project, "--python", "/bin/ls")
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "/bin/ls does not run as Python") {
		t.Errorf("a Python that is none: %v, %s", err, said.String())
	}
	c = w.open(t, project)
	c.is(t, "list(pair[1])", "[0, 1]")
	c.leave(t)
	w.nothing(t)
}
