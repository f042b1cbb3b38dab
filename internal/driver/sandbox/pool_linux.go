//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
)

// pool has sandboxes that were made ahead of time. A slot is one in which nothing runs
// yet, and fits every instance of a server, which shows it its directories of the host;
// a ready one was restored from a snapshot, is parked, and fits an instance that begins
// from that snapshot. Servers with directories of the host have no ready ones: nothing
// can run before they are there.
type pool struct {
	d *Driver

	mu      sync.Mutex
	closed  bool
	shelves map[string]*shelf
	wake    chan struct{} // something is missing on a shelf
	work    sync.WaitGroup
	begun   bool

	starts int       // instances that are being started
	last   time.Time // when the last of them was done
}

// shelf holds what is alike.
type shelf struct {
	key    string
	server string
	spec   driver.Spec
	plan   *plan
	runsc  string
	image  string // the folder of the memory that they were restored from; empty for slots
	want   int
	have   []*making
	making int // are being made
	failed int
	next   time.Time // no new attempt before this
	used   time.Time
	crowd  time.Time // when more slots than the config asks for were needed at once

	expected []*expectation
	workers  int            // goroutines that make what is expected
	waiting  []chan *making // each takes the next one made; nil says that none comes
}

const (
	slotsName = "slots"
	// shelfAge is how long slots of a server that is not started are kept.
	shelfAge = 10 * time.Minute
	// refillPause is for how long nothing must have been started before something
	// is made ahead of time: it would take the CPU from starts that wait for an
	// instance. Where one always waits, it is not put off for longer than refillWait.
	refillPause = 100 * time.Millisecond
	refillWait  = time.Second
	// maxSlots bounds the slots of all servers together, and maxShelf those of one,
	// which grow with what is wanted at once. For crowdAge there are so many, since it
	// may be wanted again.
	maxSlots, maxShelf = 64, 16
	crowdAge           = time.Minute
)

func (p *pool) dir() string { return filepath.Join(p.d.opts.Dir, slotsName) }

// key is the same for sandboxes that can stand in for each other.
func (p *plan) key(d *Driver, runsc string) string {
	return digest(p.spec(d, "", ""), p.flags(d), runsc)
}

// apart reports whether a sandbox of the plan can be made before its instance is known.
// What is masked must be there when it is made.
func (p *plan) apart() bool {
	return !slices.ContainsFunc(p.mounts, func(m mount) bool { return len(m.masks) > 0 })
}

// bare reports whether nothing of the host is missing in what is made apart.
func (p *plan) bare() bool { return len(p.mounts) == 0 }

// unowned is the plan without what belongs to one instance.
func (p *plan) unowned() *plan {
	q := *p
	q.mounts = slices.Clone(p.mounts)
	for i := range q.mounts {
		q.mounts[i].source = ""
	}
	return &q
}

// slots returns the shelf with the slots that fit a plan, and whether it was there
// before; nil where there are to be none. p.mu is held.
func (p *pool) slots(plan *plan, spec driver.Spec, runsc, ours string) (s *shelf, there bool) {
	key := plan.key(p.d, runsc)
	if s := p.shelves[key]; s != nil {
		return s, true
	}
	// A helper of an earlier build may not know how to show directories.
	if plan.box.Slots <= 0 || !plan.bare() && runsc != ours {
		return nil, false
	}
	s = &shelf{key: key, server: spec.Server, spec: blank(spec), plan: plan.unowned(), runsc: runsc, want: plan.box.Slots}
	p.add(s)
	return s, false
}

// take hands over what fits, or returns nil. What is ready comes first. It waits
// only for what is being made because it was expected.
func (p *pool) take(ctx context.Context, plan *plan, spec driver.Spec, runsc, ours string, st stateRecord) *making {
	if !plan.apart() {
		return nil
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	defer p.stir()
	key := plan.key(p.d, runsc)
	if st.Image != nil {
		if m := p.from(p.shelves[readyKey(key, st.Image.ID)]); m != nil {
			p.shelves[key].arrive()
			p.mu.Unlock()
			return m
		}
	}
	s, there := p.slots(plan, spec, runsc, ours)
	s.arrive()
	m := p.from(s)
	if m == nil && there && s.want < maxShelf {
		s.want++
	}
	if s != nil && s.want-len(s.have) > s.plan.box.Slots {
		s.crowd = time.Now()
	}
	if m != nil || s == nil {
		p.mu.Unlock()
		return m
	}
	if len(s.expected) > 0 {
		// Each is some processes that wait for one another.
		p.hire(s, 2*runtime.NumCPU())
	}
	if s.workers == 0 {
		p.mu.Unlock()
		return nil
	}
	next := make(chan *making, 1)
	s.waiting = append(s.waiting, next)
	p.mu.Unlock()
	return p.await(ctx, s, next)
}

func readyKey(key, image string) string { return key + " " + image }

// blank is a spec that belongs to no instance.
func blank(spec driver.Spec) driver.Spec {
	spec.Session, spec.Dir, spec.State, spec.Ordinal, spec.Workspace, spec.Log, spec.Shared = "", "", "", 0, nil, nil, false
	return spec
}

// from takes one of a shelf that still lives. What is ready stays parked.
func (p *pool) from(s *shelf) *making {
	if s == nil {
		return nil
	}
	s.used = time.Now()
	for len(s.have) > 0 {
		m := s.have[0]
		s.have = slices.Delete(s.have, 0, 1)
		if m.rec.ID.Lives() && m.rec.Gofer.Lives() && (m.restored || m.rec.ID.Signal(unix.SIGCONT) == nil) {
			return m
		}
		p.work.Go(func() { p.drop(m) })
	}
	return nil
}

// add puts up a shelf. p.mu is held.
func (p *pool) add(s *shelf) {
	if p.shelves == nil {
		p.shelves = make(map[string]*shelf)
	}
	s.used = time.Now()
	p.shelves[s.key] = s
	if !p.begun {
		p.begun = true
		p.work.Go(p.refill)
	}
}

// stir makes the refilling look again.
func (p *pool) stir() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close removes everything. No take comes after it.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, s := range p.shelves {
		p.empty(s)
		s.refuse()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// sweep removes what a gateway that was killed had made ahead of time.
func (p *pool) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(p.dir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(p.dir(), e.Name())
		rec, err := records.Read(dir)
		if err != nil {
			rec = record{} // nothing was made yet
		}
		if err := p.d.clear(ctx, dir, rec); err != nil {
			return err
		}
	}
	return nil
}
