package docker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// door is a socket that leads to the engine's, and that can be shut as if the
// engine were stopped.
type door struct {
	path, to string

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]bool
	work  sync.WaitGroup
}

func newDoor(t *testing.T, to string) *door {
	d := &door{path: filepath.Join(t.TempDir(), "e.sock"), to: strings.TrimPrefix(to, "unix://"), conns: make(map[net.Conn]bool)}
	d.open(t)
	t.Cleanup(d.shut)
	return d
}

func (d *door) open(t *testing.T) {
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.l = l
	d.mu.Unlock()
	d.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", d.to)
			if err != nil {
				in.Close()
				continue
			}
			d.mu.Lock()
			d.conns[in], d.conns[out] = true, true
			d.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				d.work.Go(func() {
					io.Copy(pair[0], pair[1])
					pair[0].Close()
					pair[1].Close()
				})
			}
		}
	})
}

// shut ends all that goes through it.
func (d *door) shut() {
	d.mu.Lock()
	d.l.Close()
	for c := range d.conns {
		c.Close()
	}
	clear(d.conns)
	d.mu.Unlock()
	d.work.Wait()
}

// The engine goes away under an instance and comes back.
func testCut(t *testing.T, w *world) {
	e := newDoor(t, w.host)
	c := w.http() // which does not mind being detached, on any engine
	c.Host = "unix://" + e.path
	behind, err := w.d.engine(w.host)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range behind.ceilings() { // those of the door are not the engine's
		c.Ulimits = append(c.Ulimits, u.String())
	}
	var log testkit.Log
	spec := w.spec("a", c)
	spec.Log = log.Logger()
	inst := w.start(t, spec)
	const away, back = "the container engine does not answer", "the container engine answers again"
	settled := func() {
		testkit.Eventually(t, "the driver is done with what was before", func() bool { return log.Count(back) == log.Count(away) })
	}
	shut := func() {
		before := log.Count(away)
		e.shut()
		testkit.Eventually(t, "the driver has seen it", func() bool { return log.Count(away) > before })
	}
	shut()
	select {
	case <-inst.Done():
		t.Fatalf("it counts as ended while its state is unknown: %v", inst.Err())
	default:
	}
	if _, err := w.d.Start(t.Context(), w.spec("b", c)); err == nil {
		t.Error("a container was made by an engine that is away")
	}
	e.open(t)
	if got := drivertest.Dial(t, inst).Call(t, "echo", map[string]any{"text": "still"}); got != "still" {
		t.Errorf("echo said %q", got)
	}
	settled()
	// Unpause is retried until the engine answers.
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shut()
	released := make(chan struct{})
	go func() {
		defer close(released)
		release()
	}()
	time.Sleep(200 * time.Millisecond) // nothing tells that an attempt has failed
	e.open(t)
	<-released
	if got := drivertest.Dial(t, inst).Call(t, "echo", map[string]any{"text": "again"}); got != "again" {
		t.Errorf("echo said %q after it was held", got)
	}
	settled()
	// What ends meanwhile is lost, for nothing else has what it knew.
	shut()
	w.kill(t, inst)
	time.Sleep(100 * time.Millisecond) // nothing tells that the engine has seen it
	e.open(t)
	drivertest.Ended(t, inst)
	if !errors.Is(inst.Err(), driver.ErrLost) {
		t.Errorf("the end was reported as: %v", inst.Err())
	}
	if err := inst.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	// A stop while it is away is done when it is back.
	late := w.start(t, w.spec("late", c))
	e.shut()
	err = late.Stop(t.Context())
	says(t, err, "does not answer", "tried again")
	e.open(t)
	testkit.Eventually(t, "the container is gone", func() bool { return len(w.containers(t, labelInstance+"="+keyOf(late.Handle().Dir))) == 0 })
	drivertest.Ended(t, late)
	if err := late.Stop(t.Context()); err != nil {
		t.Errorf("the second stop: %v", err)
	}
	// So are the folders of both.
	testkit.Succeeds(t, "the folders are gone", func() error {
		if left, err := os.ReadDir(filepath.Join(w.dir, "instances")); len(left) > 0 {
			return fmt.Errorf("%v is left, %v", left, err)
		}
		return nil
	})
}
