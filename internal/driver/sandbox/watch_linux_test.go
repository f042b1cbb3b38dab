//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// newBarePrison is one without cgroups, for any user.
func newBarePrison(t *testing.T, o Options) *prison {
	p := newPrison(t, o)
	p.d.bare = true
	return p
}

// What a program takes is seen, wherever it takes it from, and what it gives back.
func TestWatchUsage(t *testing.T) {
	p := newBarePrison(t, Options{})
	c := p.enter(t)
	rec, err := records.Parse(c.inst.Handle().Data)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Limit != 512<<20 {
		t.Errorf("it may have %d bytes", rec.Limit)
	}
	var u Usage
	look := func() int64 {
		t.Helper()
		n, err := u.Look(rec.PID, rec.Gofer.PID)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const much, little = 64 << 20, 24 << 20
	before := look()
	if before < 1<<20 || before > 128<<20 {
		t.Errorf("it takes %d bytes for nothing", before)
	}
	for _, tt := range []struct {
		name, tool string
		args       []string
	}{{"memory", "eat", nil}, {"a file", "fill", []string{"path", "/tmp/file"}}, {"a file without a name", "memfd", nil}} {
		c.gets(t, tt.tool, append(tt.args, "bytes", fmt.Sprint(much))...)
		now := look()
		if took := now - before; took < much || took > much+little {
			t.Errorf("%s: %d bytes more are seen, want %d", tt.name, took, much)
		}
		before = now
	}
	c.gets(t, "unlink", "path", "/tmp/file")
	testkit.Eventually(t, "the file is gone", func() bool { return look() < before-much+little })
}

// The next gateway ends what the first one would have ended, and says what is lost.
func TestWatchAdopted(t *testing.T) {
	p := newBarePrison(t, Options{})
	spec := p.spec(t, func(s *driver.Spec) { options(*s).Memory = 192 << 20 })
	spec.State = filepath.Join(p.at("state"), "of-it")
	if err := p.d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	first, err := p.d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Leave(); err != nil {
		t.Fatal(err)
	}
	p.d.Close()
	next := p.driver(Options{Hide: []string{p.at("state")}})
	inst, err := next.Adopt(t.Context(), first.Handle(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCell(t, inst)
	c.works(t)
	c.dies(t, "eat", "bytes", fmt.Sprint(256<<20))
	if !errors.Is(inst.Err(), driver.ErrLost) {
		t.Errorf("it ended with %v, and its memory is lost", inst.Err())
	}
}

// The watch runs only while there is something to look at.
func TestWatchNeeded(t *testing.T) {
	var logs bytes.Buffer
	p := newBarePrison(t, Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
	for range 2 {
		c := p.enter(t, func(s *driver.Spec) { options(*s).Memory, options(*s).CPUs = 192<<20, 1 })
		c.dies(t, "eat", "bytes", fmt.Sprint(256<<20))
		p.d.work.Wait()
		if p.d.watch.looks {
			t.Error("it still looks")
		}
	}
	unlimited := p.enter(t, func(s *driver.Spec) { options(*s).Memory = 0 })
	p.d.work.Wait()
	unlimited.works(t)
	if n := strings.Count(logs.String(), "sandbox.cpus has no effect"); n != 1 {
		t.Errorf("it was logged %d times that CPUs are not counted: %s", n, &logs)
	}
}

// What is parked takes no more, and is not looked at.
func TestWatchParked(t *testing.T) {
	p := newBarePrison(t, Options{ParkAfter: -1})
	c := p.enter(t, func(s *driver.Spec) { options(*s).Memory = 0 }) // so that only we look
	i := c.inst.(*instance)
	i.rec.Limit = 1
	i.park.parked.Store(true)
	p.d.watch.round(p.d)
	c.works(t) // which wakes it
	if i.over.Load() != 0 || len(i.usage.files) > 0 {
		t.Error("it was looked at")
	}
	p.d.watch.round(p.d)
	drivertest.Ended(t, c.inst)
	if i.over.Load() == 0 || !strings.Contains(fmt.Sprint(i.Err()), "took more memory than servers.attacker.sandbox.memory lets it have") {
		t.Errorf("it ended with %v", i.Err())
	}
}
