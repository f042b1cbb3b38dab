//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

// stands reports whether a process is stopped.
func stands(pid int) bool {
	s, err := procid.Look(pid)
	return err == nil && s.Stands()
}

// all reports whether every process of a family stands, or none does.
func all(t *testing.T, kin map[string]int, standing bool) {
	t.Helper()
	for how, pid := range kin {
		if !runs(pid) {
			t.Errorf("%s: process %d is gone", how, pid)
		} else if stands(pid) != standing {
			t.Errorf("%s: process %d: stopped %v, want %v", how, pid, !standing, standing)
		}
	}
}

func TestHoldStopsTheFamily(t *testing.T) {
	inst := suite.Start(t, New(Options{}))
	p := drivertest.Dial(t, inst)
	kin := spawned(t, p)
	for range 3 {
		release, err := inst.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all(t, kin, true)
		release()
		all(t, kin, false)
		p.Call(t, "echo", map[string]any{"text": "on"})
	}
	suite.Stop(t, inst)
	wantGone(t, kin)
}

// A gateway that was killed while it held an instance leaves it stopped.
func TestAdoptWakesTheFamily(t *testing.T) {
	d := New(Options{})
	inst := suite.Start(t, d)
	kin := spawned(t, drivertest.Dial(t, inst))
	inst.Leave()
	for _, pid := range kin {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range kin {
		testkit.Eventually(t, "it is stopped", func() bool { return stands(pid) })
	}
	again, err := d.Adopt(t.Context(), inst.Handle(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all(t, kin, false)
	drivertest.Dial(t, again).Call(t, "echo", map[string]any{"text": "on"})
	suite.Stop(t, again)
	wantGone(t, kin)
}

// A held instance is asked to stop like any other, and has time to do so.
func TestStopOfTheHeldIsPolite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "goodbye")
	script := `trap 'echo bye >"$1"; exit' TERM; echo '{}'; while :; do sleep 0.01; done`
	for name, end := range map[string]func(t *testing.T, d *Driver, inst driver.Instance){
		"stop": func(t *testing.T, _ *Driver, inst driver.Instance) { suite.Stop(t, inst) },
		"leave, adopt and stop": func(t *testing.T, d *Driver, inst driver.Instance) {
			inst.Leave()
			again, err := d.Adopt(t.Context(), inst.Handle(), nil)
			if err != nil {
				t.Fatal(err)
			}
			suite.Stop(t, again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(file)
			d := New(Options{})
			inst := suite.StartSpec(t, d, suite.Spec(t, "sh", "-c", script, "sh", file))
			link, err := inst.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := link.Stream.ReadFrame(); err != nil {
				t.Fatal(err)
			}
			if _, err := inst.Hold(t.Context()); err != nil {
				t.Fatal(err)
			}
			end(t, d, inst)
			if b, err := os.ReadFile(file); err != nil || string(b) != "bye\n" {
				t.Errorf("it had no time to say goodbye: %q, %v", b, err)
			}
		})
	}
}

// A message that is half sent because the server does not read it does not keep a hold
// from succeeding, nor what waits behind it.
func TestHoldWhileAWriteWaits(t *testing.T) {
	inst := suite.StartSpec(t, New(Options{}), suite.Spec(t, "sleep", "1000"))
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 2)
	for range 2 {
		go func() { failed <- link.Stream.WriteFrame(ctx, message(1<<20)) }()
	}
	testkit.Eventually(t, "a write is running", inst.(*instance).conn.Writing)
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 2 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	release()
	suite.Stop(t, inst)
}

// A server that starts others all the time is caught between two of them.
func TestHoldOfOneThatStartsOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "count")
	script := `n=0; echo '{}'; while :; do n=$((n+1)); /bin/echo $n >"$1"; done`
	inst := suite.StartSpec(t, New(Options{}), suite.Spec(t, "sh", "-c", script, "sh", file))
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Stream.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		release, err := inst.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before, _ := os.Stat(file)
		time.Sleep(2 * time.Millisecond) // it would write hundreds of times a second
		after, _ := os.Stat(file)
		if before != nil && after != nil && !before.ModTime().Equal(after.ModTime()) {
			t.Error("it wrote while it was held")
		}
		release()
	}
	suite.Stop(t, inst)
}

func BenchmarkHold(b *testing.B) {
	inst := suite.Start(b, New(Options{}))
	for b.Loop() {
		release, err := inst.Hold(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}
