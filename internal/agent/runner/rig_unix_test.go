//go:build linux || darwin

package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

// victimVar makes the test binary a gateway that starts a program and waits to be killed.
const victimVar = "TINE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if root := os.Getenv(victimVar); root != "" {
		victim(root)
	}
	goleak.VerifyTestMain(m)
}

// newHost makes the programs of a folder, as another gateway does for one that is there.
func newHost(t *testing.T, root string) *programs {
	t.Helper()
	h, err := newPrograms(root, append(os.Environ(), "GATEWAY_SECRET=hidden"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// script is a plan that runs a shell script.
func script(t *testing.T, text string, args ...string) executor.Plan {
	t.Helper()
	return executor.Plan{Command: "sh", Args: append([]string{"-c", text, "script"}, args...), Dir: t.TempDir()}
}

// begin starts a program, which the test ends.
func begin(t *testing.T, h *programs, run string, plan executor.Plan) *program {
	t.Helper()
	p, err := h.start(run, pass{}, plan)
	if err != nil {
		t.Fatal(err)
	}
	finally(t, p)
	return p
}

func finally(t *testing.T, p *program) {
	t.Cleanup(func() {
		p.kill()
		<-p.tended
		p.leave()
	})
}

func adopted(t *testing.T, h *programs, run string) *program {
	t.Helper()
	p, err := h.adopt(run)
	if err != nil {
		t.Fatal(err)
	}
	finally(t, p)
	return p
}

// listener is a Reader whose events are the lines and whose result is how the program
// ended. A line "turn" ends a turn.
type listener struct{ turned bool }

func (l *listener) Line(line []byte) []executor.Event {
	l.turned = string(line) == "turn"
	return []executor.Event{executor.Text(string(line))}
}

func (l *listener) End(exit executor.Exit) (api.RunResult, error) {
	raw, err := json.Marshal(exit)
	return api.RunResult{Text: string(exit.Stdout), Data: raw}, err
}

func (l *listener) Turn() (api.RunResult, error, bool) {
	return api.RunResult{Text: "turned"}, nil, l.turned
}
func (l *listener) Next(executor.Job) ([]byte, error) { return nil, nil }
func (l *listener) Shutdown() []byte                  { return []byte("shutdown\n") }

// heard is what following a program told.
type heard struct {
	lines []string // text as it is, standard error behind "! "
	end   ending
	exit  executor.Exit
}

var errEnough = errors.New("enough")

// hear follows a program until it ends, or has told so many events.
func hear(t *testing.T, p *program, told, enough int) (h heard) {
	t.Helper()
	end, err := p.follow(t.Context(), &listener{}, told, func(events []executor.Event) error {
		for _, e := range events {
			var data struct{ Text string }
			if err := json.Unmarshal(e.Data, &data); err != nil || e.At.IsZero() {
				t.Errorf("event %+v, %v", e, err)
			}
			if e.Type == api.RunEventStderr {
				data.Text = "! " + data.Text
			}
			if h.lines = append(h.lines, data.Text); len(h.lines) == enough {
				return errEnough
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	h.end = end
	if end.Result.Data != nil {
		if err := json.Unmarshal(end.Result.Data, &h.exit); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

const all = 1 << 30

// pidIn waits for the number of a process in a file.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	testkit.Eventually(t, "a number in "+path, func() bool {
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		_, err = fmt.Sscan(string(text), &pid)
		return err == nil
	})
	return pid
}

func wantGone(t *testing.T, pid int) {
	t.Helper()
	if s, err := procid.Look(pid); err == nil && !s.Dead {
		t.Errorf("process %d is left", pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// victim is the gateway that is killed: it starts the plan in a file, and says so.
func victim(root string) {
	h, err := newPrograms(root, os.Environ(), slog.Default())
	var plan executor.Plan
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(root, "..", "plan")); err == nil {
			err = json.Unmarshal(text, &plan)
		}
	}
	if err == nil {
		fmt.Println("starting")
		_, err = h.start("run_1", pass{}, plan)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	select {}
}

// gateway is a victim that has said as much as is waited for, and what kills it.
func gateway(t *testing.T, top string, plan executor.Plan, said ...string) (root string, kill func()) {
	t.Helper()
	root = filepath.Join(top, "runs")
	text, err := json.Marshal(plan)
	if err == nil {
		err = os.WriteFile(filepath.Join(top, "plan"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVar+"="+root)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	lines := bufio.NewReader(out)
	for _, want := range said {
		if line, err := lines.ReadString('\n'); line != want+"\n" {
			kill()
			t.Fatalf("the gateway said %q, %v", line, err)
		}
	}
	return root, kill
}
