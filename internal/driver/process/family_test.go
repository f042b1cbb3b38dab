//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

// runs reports whether a process is there and not just waited for.
func runs(pid int) bool {
	s, err := procid.Look(pid)
	return err == nil && !s.Dead
}

func pidOf(t testing.TB, text string) int {
	t.Helper()
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("not a pid: %q", text)
	}
	return pid
}

func spawned(t testing.TB, p *drivertest.Peer) map[string]int {
	t.Helper()
	kin := map[string]int{"itself": pidOf(t, p.Call(t, "pid", nil))}
	hows := []string{"child", "detached"}
	if runtime.GOOS == "linux" {
		hows = append(hows, "cleared")
	}
	for _, how := range hows {
		kin[how] = pidOf(t, p.Call(t, "spawn", map[string]any{"how": how}))
	}
	for how, pid := range kin {
		if !runs(pid) {
			t.Fatalf("%s: process %d does not run", how, pid)
		}
	}
	return kin
}

func wantGone(t testing.TB, kin map[string]int) {
	t.Helper()
	for how, pid := range kin {
		if runs(pid) {
			t.Errorf("%s: process %d is left", how, pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestNothingIsLeftOver(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, d *Driver, inst driver.Instance, p *drivertest.Peer){
		"after a stop": func(t *testing.T, _ *Driver, inst driver.Instance, _ *drivertest.Peer) {
			suite.Stop(t, inst)
		},
		"after a crash": func(t *testing.T, _ *Driver, inst driver.Instance, p *drivertest.Peer) {
			p.TryCall(t.Context(), "exit", map[string]any{"code": 1})
			drivertest.Ended(t, inst) // before any Stop
		},
		"after stopping what was adopted": func(t *testing.T, d *Driver, inst driver.Instance, _ *drivertest.Peer) {
			inst.Leave()
			inst, err := d.Adopt(t.Context(), inst.Handle(), nil)
			if err != nil {
				t.Fatal(err)
			}
			suite.Stop(t, inst)
		},
		"after a crash without a gateway": func(t *testing.T, d *Driver, inst driver.Instance, p *drivertest.Peer) {
			pid := pidOf(t, p.Call(t, "pid", nil))
			inst.Leave()
			syscall.Kill(pid, syscall.SIGKILL)
			testkit.Eventually(t, "it is dead", func() bool { return !runs(pid) })
			if _, err := d.Adopt(t.Context(), inst.Handle(), nil); !errors.Is(err, driver.ErrGone) {
				t.Errorf("adopt: %v", err)
			}
		},
		"when the pipes are gone": func(t *testing.T, d *Driver, inst driver.Instance, _ *drivertest.Peer) {
			inst.Leave()
			if err := os.Remove(filepath.Join(inst.Handle().Dir, fifo.In)); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Adopt(t.Context(), inst.Handle(), nil); !errors.Is(err, driver.ErrGone) {
				t.Errorf("adopt: %v", err)
			}
		},
		"when the folder is gone": func(t *testing.T, d *Driver, inst driver.Instance, _ *drivertest.Peer) {
			inst.Leave()
			if err := os.RemoveAll(inst.Handle().Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Adopt(t.Context(), inst.Handle(), nil); !errors.Is(err, driver.ErrGone) {
				t.Errorf("adopt: %v", err)
			}
		},
		"after a sweep": func(t *testing.T, d *Driver, inst driver.Instance, _ *drivertest.Peer) {
			inst.Leave()
			gone, err := d.Sweep(t.Context(), filepath.Dir(inst.Handle().Dir), nil)
			if err != nil || !slices.Equal(gone, []string{inst.Handle().Dir}) {
				t.Errorf("swept %v, %v", gone, err)
			}
		},
		"after a sweep that knows only the token": func(t *testing.T, d *Driver, inst driver.Instance, _ *drivertest.Peer) {
			inst.Leave()
			rec, err := records.Read(inst.Handle().Dir)
			if err != nil {
				t.Fatal(err)
			}
			rec.ID = procid.ID{}
			if err := rec.write(inst.Handle().Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Sweep(t.Context(), filepath.Dir(inst.Handle().Dir), nil); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Options{})
			inst := suite.Start(t, d)
			p := drivertest.Dial(t, inst)
			kin := spawned(t, p)
			end(t, d, inst, p)
			wantGone(t, kin)
		})
	}
}

// A server may have its own way to end: the processes in its group are given the grace
// too, though their leader is gone.
func TestGroupGetsTheGrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "goodbye")
	script := `sh -c 'trap "sleep 0.2; echo bye >'"$1"'; exit" TERM; echo "{}"; while :; do sleep 0.01; done' & wait`
	inst := suite.StartSpec(t, New(Options{}), suite.Spec(t, "sh", "-c", script, "sh", file))
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Stream.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	suite.Stop(t, inst)
	if b, err := os.ReadFile(file); err != nil || string(b) != "bye\n" {
		t.Errorf("it had no time to say goodbye: %q, %v", b, err)
	}
}

// A stop that has no time does not wait for the stubborn in a group whose leader
// is gone either.
func TestGroupOfTheStubborn(t *testing.T) {
	spec := suite.Spec(t, "sh", "-c", `sh -c 'trap "" TERM; echo "{}"; while :; do sleep 0.01; done' & wait`)
	spec.StopGrace = time.Hour
	inst := suite.StartSpec(t, New(Options{}), spec)
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Stream.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-inst.(*instance).Exited() // the leader is gone
		cancel()
	}()
	if err := inst.Stop(ctx); err != nil {
		t.Error(err)
	}
	if left := left(t, inst.Handle()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestChildLeadsItsOwnSession(t *testing.T) {
	inst := suite.Start(t, New(Options{}))
	pid := pidOf(t, drivertest.Dial(t, inst).Call(t, "pid", nil))
	pgid, err := syscall.Getpgid(pid)
	if err != nil || pgid != pid {
		t.Errorf("group %d, %v, want %d", pgid, err, pid)
	}
	if runtime.GOOS == "linux" {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if fields[3] != strconv.Itoa(pid) || fields[4] != "0" {
			t.Errorf("session %s, terminal %s", fields[3], fields[4])
		}
	}
}

func TestFolderIsPrivate(t *testing.T) {
	inst := suite.Start(t, New(Options{}))
	dir := inst.Handle().Dir
	for name, want := range map[string]os.FileMode{
		"": os.ModeDir | 0o700, fifo.In: os.ModeNamedPipe | 0o600, fifo.Out: os.ModeNamedPipe | 0o600,
		recordName: 0o600, lines.LogName: 0o600,
	} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || st.Mode() != want {
			t.Errorf("%q: mode %v, %v, want %v", name, st.Mode(), err, want)
		}
	}
}
