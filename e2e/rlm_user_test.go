//go:build linux && (amd64 || arm64)

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestRLMOfAUser has an ordinary user run tine rlm, which looks for a Python in a folder that
// the user may not enter: it is confined all the same, keeps its kernel, and bounds the
// memory of it.
func TestRLMOfAUser(t *testing.T) {
	t.Parallel()
	u := newOrdinary(t)
	w := rlmSandbox(t)
	w.state, w.home = filepath.Join(u.dir, "state"), u.home
	closed := filepath.Join(u.dir, "closed")
	project := filepath.Join(u.dir, "project")
	for _, dir := range []string{w.state, project, closed} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	u.own(t, w.state, project)
	w.env = append(w.env, u.env()...)
	w.env = append(w.env, "TINE_STATE="+w.state, "PYENV_ROOT="+filepath.Join(closed, "pyenv"), "PATH=/usr/local/bin:/usr/bin:/bin")
	open := func(args ...string) *rlmClient {
		cmd := w.command(project, args...)
		cmd.Path, cmd.Args[0] = u.tine, u.tine
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.as}
		return &rlmClient{pipeTo(t, cmd), w}
	}
	c := open()
	c.run(t, lively)
	confined(t, c.cmd)
	c.leave(t)
	c = open()
	c.goesOn(t)
	c.leave(t)

	c = open("--memory", "300MiB", "--session", "small")
	c.run(t, "x = 1")
	confined(t, c.cmd)
	if _, err := c.exec("y = b'y' * (700 << 20); import time; time.sleep(20)"); !failsAs(err, api.KindLost) || !strings.Contains(err.Error(), "--memory") {
		t.Errorf("a kernel that takes too much: %v", err)
	}
	for range 2 { // what is gone may be told
		if _, err := c.exec("1"); err != nil && !failsAs(err, api.KindLost) {
			t.Error(err)
		}
	}
	c.is(t, "1 + 1", "2")
	c.leave(t)
	w.nothing(t)
}

// confined holds that a process has filtered system calls, which it has last.
func confined(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(status), "Seccomp:\t2\n") {
		t.Errorf("tine rlm is not confined, %v:\n%s", err, status)
	}
}
