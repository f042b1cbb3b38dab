//go:build amd64 || arm64

package sandbox

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// TestHeldGoesOnLate lets go of a sandbox whose helper has died, while the next helper
// can't be started for longer than any caller waits. It goes on all the same.
func TestHeldGoesOnLate(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	d.beside = false // a helper waits until the one before it has finished
	inst := builder.StartSpec(t, d, b.spec(t, builder.Program(t))).(*instance)
	p := drivertest.Dial(t, inst)
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := d.helpers.live(inst.rec.Runsc)
	run.run.Kill()
	<-run.done
	unfinished, err := os.Open(d.helpers.path(inst.rec.Runsc))
	if err != nil {
		t.Fatal(err)
	}
	defer unfinished.Close()
	if err := unix.Flock(int(unfinished.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	release()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if again, err := inst.Hold(over); err == nil {
		again()
		t.Error("it may be held again while it is still paused")
	}
	unfinished.Close()
	if got := p.Call(t, "echo", map[string]any{"text": "awake"}); got != "awake" {
		t.Errorf("it says %q", got)
	}
	if again, err := inst.Hold(t.Context()); err != nil {
		t.Error(err)
	} else {
		again()
	}
}
