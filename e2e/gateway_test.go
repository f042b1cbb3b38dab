//go:build unix

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything that should happen soon may take on a busy
// machine before a test gives up on it.
const patience = 60 * time.Second

// A gateway is one state folder and, while it runs, the process that owns it.
type gateway struct {
	dir  string   // config, state and log lie here
	args []string // after "serve", without --listen and --state
	env  []string // on top of the test's own environment
	// verb is what to run in the place of serve; nil for that.
	verb []string
	// program runs in the place of the binary under test; empty for that one.
	program string
	// as is the user who runs it; nil for the test's own.
	as *syscall.Credential

	url  string // without a path
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// startGateway runs a gateway on the config and ends it with the test.
func startGateway(t testing.TB, config string, env ...string) *gateway {
	t.Helper()
	g := newGateway(t, config, env...)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	return g
}

// newGateway prepares a gateway that the test starts itself.
func newGateway(t testing.TB, config string, env ...string) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := &gateway{dir: dir, env: env, args: []string{"--config", filepath.Join(dir, "tine.yaml")}}
	g.writeConfig(t, config)
	t.Cleanup(func() {
		if left := g.end(); len(left) > 0 && !t.Failed() {
			t.Errorf("the gateway ended and left the processes %v", left)
		}
		if t.Failed() {
			if log, err := os.ReadFile(g.logPath()); err == nil {
				t.Logf("gateway's log:\n%s", tail(string(log), 16<<10))
			}
		}
	})
	return g
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

func (g *gateway) state() string      { return filepath.Join(g.dir, "state") }
func (g *gateway) logPath() string    { return filepath.Join(g.dir, "gateway.log") }
func (g *gateway) configPath() string { return filepath.Join(g.dir, "tine.yaml") }

func (g *gateway) writeConfig(t testing.TB, config string) {
	t.Helper()
	// Written aside and renamed, so that a reload never sees half a file.
	tmp := g.configPath() + ".new"
	if err := os.WriteFile(tmp, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, g.configPath()); err != nil {
		t.Fatal(err)
	}
}

// record is the gateway.json of a running gateway.
type record struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	PID   int    `json:"pid"`
}

func (g *gateway) record() (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(g.state(), "gateway.json"))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

func (g *gateway) command() []string {
	if g.verb == nil {
		return []string{"serve"}
	}
	return g.verb
}

// start runs the process and returns when it serves. A gateway that ran before
// comes back at the same address. TINE_OLD_BIN runs the first time, so that what
// comes after a kill is an upgrade (make upgrade).
func (g *gateway) start() error {
	listen := "127.0.0.1:0"
	if g.url != "" {
		listen = strings.TrimPrefix(g.url, "http://")
	}
	log, err := os.OpenFile(g.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	program := cmp.Or(g.program, tineBinary)
	if g.cmd == nil {
		program = cmp.Or(g.program, os.Getenv("TINE_OLD_BIN"), tineBinary)
	}
	cmd := exec.Command(program, slices.Concat(g.command(), []string{"--listen", listen, "--state", g.state()}, g.args)...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), g.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: g.as}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	g.cmd, g.done = cmd, done
	go func() {
		defer close(done)
		cmd.Wait()
	}()
	return eventually(func() error {
		select {
		case <-done:
			out, _ := os.ReadFile(g.logPath())
			return final{fmt.Errorf("gateway ended: %s\n%s", cmd.ProcessState, tail(string(out), 4<<10))}
		default:
		}
		r, err := g.record()
		if err != nil {
			return err
		}
		if r.PID != cmd.Process.Pid {
			return fmt.Errorf("gateway.json is of process %d, not %d", r.PID, cmd.Process.Pid)
		}
		g.url = strings.TrimSuffix(r.URL, "/")
		resp, err := http.Get(g.url + "/readyz")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", resp.Status)
		}
		return nil
	})
}

// stop asks the gateway to end and returns its exit code.
func (g *gateway) stop() (int, error) {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-g.done:
		return g.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, errors.New("gateway did not end after SIGTERM")
	}
}

// kill ends the gateway without a warning.
func (g *gateway) kill() {
	g.cmd.Process.Kill()
	<-g.done
}

// end leaves nothing running, in any state of the gateway. It
// returns what a gateway that ended in good order should not have left.
func (g *gateway) end() (left []int) {
	clean := false
	if g.cmd != nil {
		select {
		case <-g.done:
		default:
			if _, err := g.stop(); err != nil {
				g.kill()
			} else {
				clean = true
			}
		}
	}
	for _, pid := range holders(g.state()) {
		syscall.Kill(pid, syscall.SIGKILL)
		if clean {
			left = append(left, pid)
		}
	}
	return left
}

// tine runs a subcommand against this gateway and returns its standard output.
func (g *gateway) tine(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, cmp.Or(g.program, tineBinary), append(args, "--state", g.state())...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), g.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: g.as}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("tine %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// final marks an error that no waiting will mend.
type final struct{ error }

// eventually tries until f succeeds, and gives back its last error.
func eventually(f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if errors.As(err, new(final)) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// holders finds the processes that have a file below dir open: servers keep
// their pipes in the state folder, so these are the children of a gateway, with any
// present parent.
func holders(dir string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	var pids []int
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		var pid int
		if fmt.Sscanf(link, "/proc/%d/fd/", &pid); pid != os.Getpid() && (len(pids) == 0 || pids[len(pids)-1] != pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
