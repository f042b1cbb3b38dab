package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

// watched is the suite with commands that are watched over by another process.
func watched() *drivertest.Suite {
	return &drivertest.Suite{
		New:  func(maxFrame int) driver.Driver { return New(Options{MaxFrame: maxFrame, Self: "/proc/self/exe"}) },
		Spec: suite.Spec, Kill: suite.Kill, Left: suite.Left,
		Only: func(test string) bool { return strings.Contains(test, "command") },
		Env:  []string{watchedVar + "=1"},
	}
}

// watchedVar is set in the process that plays the gateway of the watched suite.
const watchedVar = "TINE_TEST_WATCHED"

func TestWatchedCommands(t *testing.T) { watched().Run(t) }

// TestCommandDiesWithGateway holds that a command ends when the gateway is killed, and not
// only when the next one comes.
func TestCommandDiesWithGateway(t *testing.T) {
	s := watched()
	mark := "mark-" + rand.Text()
	h := s.OrphanCommand(t, mark)
	testkit.Eventually(t, "the end of the command", func() bool { return drivertest.HostRunning(mark) == 0 })
	inst, err := s.New(0).Adopt(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Stop(t, inst)
}

// sh runs a script beside a server that sleeps.
func sh(t *testing.T, ctx context.Context, script string, c driver.Command) (string, driver.Exit, error) {
	t.Helper()
	d := New(Options{Self: "/proc/self/exe"})
	spec := suite.Spec(t, "sleep", "1000")
	inst := suite.StartSpec(t, d, spec)
	var out bytes.Buffer
	c.Argv, c.Stdout, c.Stderr = []string{"sh", "-c", script}, &out, &out
	exit, err := inst.(driver.Execer).Exec(ctx, spec, c)
	return out.String(), exit, err
}

// TestCommandDaemons holds that what left the command's group, its session and its
// environment is ended with it.
func TestCommandDaemons(t *testing.T) {
	mark := "1" + time.Now().Format("150405") + ".5"
	out, exit, err := sh(t, t.Context(), `
(setsid env -i sleep `+mark+` >/dev/null 2>&1 </dev/null & ) &
setsid sh -c 'sleep `+mark+` & sleep `+mark+`' >/dev/null 2>&1 &
while ! pgrep -f "sleep `+mark+`" >/dev/null; do :; done; echo made`, driver.Command{})
	if err != nil || exit.Code != 0 || out != "made\n" {
		t.Fatalf("exit %+v, %v, %q", exit, err, out)
	}
	if n := drivertest.HostRunning("sleep\x00" + mark); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestCommandGuardKilled holds that a command dies with the process that watches over it.
func TestCommandGuardKilled(t *testing.T) {
	_, _, err := sh(t, t.Context(), `kill -9 $PPID; sleep 1000`, driver.Command{})
	if err == nil || !strings.Contains(err.Error(), "watched over") {
		t.Errorf("error %v", err)
	}
}

func TestCommandUser(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("run the tests as root: only root may run a command as another user")
		}
		t.Skip("only root may run a command as another user")
	}
	for user, want := range map[string]string{"": "0:0", "0": "0:0", "65534": "65534:65534", "65534:7": "65534:7", "nobody": "65534:65534"} {
		out, exit, err := sh(t, t.Context(), `echo $(id -u):$(id -g)`, driver.Command{User: user})
		if err != nil || exit.Code != 0 || strings.TrimSpace(out) != want {
			t.Errorf("user %q: %q, exit %+v, %v; want %s", user, out, exit, err, want)
		}
	}
}

// TestCommandSeesWorkspace holds that a command sees the workspace where the server does.
func TestCommandSeesWorkspace(t *testing.T) {
	d, point := mounting(t)
	ws := drivertest.Workspace(t)
	write(t, ws, "name", "mine")
	at, _ := d.Place(point)
	spec := suite.Spec(t, "sh", "-c", "sleep 1000")
	spec.Workspace, spec.WorkspacePath, spec.Cwd = ws, at, "${workspace}"
	inst := suite.StartSpec(t, d, spec)
	var out bytes.Buffer
	exit, err := inst.(driver.Execer).Exec(t.Context(), spec, driver.Command{Argv: []string{"sh", "-c", "pwd; cat name; echo made > new"}, Stdout: &out})
	if err != nil || exit.Code != 0 || out.String() != at+"\nmine" {
		t.Errorf("exit %+v, %v, %q", exit, err, out.String())
	}
	mounts(t, point)
}

// TestCommandEndsWithAdoption holds that a command that no process watched over is ended
// by the gateway that adopts the instance.
func TestCommandEndsWithAdoption(t *testing.T) {
	mark := "mark-" + rand.Text()
	h := suite.OrphanCommand(t, mark)
	if drivertest.HostRunning(mark) == 0 {
		t.Fatal("the command ended with its gateway, which this test is not about")
	}
	inst, err := suite.New(0).Adopt(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := drivertest.HostRunning(mark); n != 0 {
		t.Errorf("%d processes of the command are left", n)
	}
	rec, err := records.Parse(h.Data)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := procid.Look(rec.PID); err != nil || s.Dead {
		t.Errorf("the server has ended, too: %v", err)
	}
	suite.Stop(t, inst)
}
