//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// pool has sandboxes that were made ahead of time. A slot is one in which nothing
// runs yet, and fits every instance of a server; one that is ready was restored
// from a snapshot, is parked, and fits who begins from that one. Servers with
// directories of their own on the host have none: those are bound when a sandbox
// is made.
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
	busy   bool // one is being made
	failed int
	next   time.Time // no new attempt before this
	used   time.Time
}

const (
	slotsName = "slots"
	// shelfAge is how long slots of a server stand there that nobody starts.
	shelfAge = 10 * time.Minute
	// refillPause is for how long nothing must have been started before something
	// is made ahead of time: it would take the CPU from who waits for an instance.
	// Where there is always somebody, it is not put off for longer than refillWait.
	refillPause = 100 * time.Millisecond
	refillWait  = time.Second
	// maxSlots bounds the slots of all servers together, and maxShelf those of one,
	// which grow with what is wanted at once.
	maxSlots, maxShelf = 64, 16
)

func (p *pool) dir() string { return filepath.Join(p.d.opts.Dir, slotsName) }

// key is the same for sandboxes that can stand in for each other.
func (p *plan) key(d *Driver, runsc string) string {
	return digest(p.spec(d, "", ""), p.flags(d), runsc)
}

// apart reports whether a sandbox of the plan can be made before anybody knows
// whose it will be.
func (p *plan) apart() bool { return len(p.mounts) == 0 }

// take hands over what fits, or returns nil. What is ready comes first.
func (p *pool) take(plan *plan, spec driver.Spec, runsc string, st stateRecord) *making {
	if !plan.apart() {
		return nil
	}
	key := plan.key(p.d, runsc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if st.Image != nil {
		if m := p.from(p.shelves[readyKey(key, st.Image.ID)]); m != nil {
			p.stir()
			return m
		}
	}
	s := p.shelves[key]
	first := s == nil // nothing could be there yet
	if first && plan.box.Slots > 0 {
		s = &shelf{key: key, server: spec.Server, spec: blank(spec), plan: plan, runsc: runsc, want: plan.box.Slots}
		p.add(s)
	}
	m := p.from(s)
	if m == nil && s != nil && !first && s.want < maxShelf {
		s.want++ // so many were wanted at once, and will be again
	}
	p.stir()
	return m
}

func readyKey(key, image string) string { return key + " " + image }

// blank is a spec that is nobody's.
func blank(spec driver.Spec) driver.Spec {
	spec.Session, spec.Dir, spec.State, spec.Ordinal, spec.Log = "", "", "", 0, nil
	return spec
}

// from takes one of a shelf that still lives.
func (p *pool) from(s *shelf) *making {
	if s == nil {
		return nil
	}
	s.used = time.Now()
	for len(s.have) > 0 {
		m := s.have[0]
		s.have = slices.Delete(s.have, 0, 1)
		if m.rec.ID.Lives() {
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
		p.wake = make(chan struct{}, 1)
		p.work.Go(p.refill)
	}
}

// stir makes the refilling look again. p.mu is held.
func (p *pool) stir() {
	if p.wake == nil {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// starting counts who waits for an instance, until it is called again.
func (p *pool) starting() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starts--
		p.last = time.Now()
	}
}

// quiet waits until nobody waits for an instance; false when the driver closes.
func (p *pool) quiet() bool {
	look := time.NewTicker(refillPause / 4)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < refillWait; {
		select {
		case <-p.d.ctx.Done():
			return false
		case <-look.C:
		}
		p.mu.Lock()
		quiet := p.starts == 0 && time.Since(p.last) >= refillPause
		p.mu.Unlock()
		if quiet {
			break
		}
	}
	return true
}

// refill makes what is missing, one after the other, until the driver closes.
func (p *pool) refill() {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-p.d.ctx.Done():
			return
		case <-look.C:
		case <-p.wake:
		}
		if !p.quiet() {
			return
		}
		for {
			s := p.missing()
			if s == nil {
				break
			}
			p.fill(s)
		}
		look.Reset(5 * time.Second)
	}
}

// missing picks a shelf that is not full, and takes down those that nobody uses.
func (p *pool) missing() *shelf {
	spare := memoryToSpare()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.d.ctx.Err() != nil {
		return nil
	}
	slots := 0
	for _, s := range p.shelves {
		if s.image == "" {
			slots += len(s.have)
		}
	}
	var found *shelf
	for key, s := range p.shelves {
		if s.image == "" && time.Since(s.used) > shelfAge || !spare {
			p.empty(s)
			if s.image == "" && !s.busy {
				delete(p.shelves, key)
			}
			continue
		}
		if s.busy || len(s.have) >= s.want || time.Now().Before(s.next) || s.image == "" && slots >= maxSlots {
			continue
		}
		if found == nil || s.image != "" && found.image == "" {
			found = s
		}
	}
	if found != nil {
		found.busy = true
	}
	return found
}

// empty removes what stands on a shelf. p.mu is held.
func (p *pool) empty(s *shelf) {
	for _, m := range s.have {
		p.work.Go(func() { p.drop(m) })
	}
	s.have = nil
}

// fill makes one sandbox for a shelf.
func (p *pool) fill(s *shelf) {
	ctx, cancel := context.WithTimeout(p.d.ctx, time.Minute)
	defer cancel()
	m, err := p.make(ctx, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy = false
	switch {
	case err != nil:
		s.failed++
		s.next = time.Now().Add(min(time.Second<<min(s.failed, 8), time.Minute))
		if p.d.ctx.Err() == nil {
			p.d.opts.Log.Warn("no sandbox can be made ahead of time", "server", s.server, "error", err)
		}
	case p.closed || p.shelves[s.key] != s || len(s.have) >= s.want:
		p.work.Go(func() { p.drop(m) })
	default:
		s.failed = 0
		s.have = append(s.have, m)
	}
}

func (p *pool) make(ctx context.Context, s *shelf) (_ *making, err error) {
	m := &making{d: p.d, spec: s.spec, plan: s.plan, rec: record{Sandbox: newName(), Runsc: s.runsc, Flags: s.plan.flags(p.d), Root: s.plan.digest, Program: s.plan.program()}}
	m.dir = filepath.Join(p.dir(), m.rec.Sandbox)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo(ctx))
		}
	}()
	if err := m.create(ctx); err != nil {
		return nil, err
	}
	if s.image == "" {
		return m, nil
	}
	if err := m.restore(ctx, s.image); err != nil {
		return nil, err
	}
	m.restored = true
	return m, m.rec.ID.Signal(unix.SIGSTOP)
}

// drop removes a sandbox that nobody took.
func (p *pool) drop(m *making) {
	if err := m.undo(context.Background()); err != nil {
		p.d.opts.Log.Warn("a sandbox that was made ahead of time is not removed", "sandbox", m.rec.Sandbox, "error", err)
	}
}

// close removes everything. No take comes after it.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, s := range p.shelves {
		p.empty(s)
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
		rec, err := readRecord(dir)
		if err != nil {
			rec = record{} // nothing was made yet
		}
		if err := p.d.clear(ctx, dir, rec); err != nil {
			return err
		}
	}
	return nil
}

// rehome makes what was made ahead of time somebody's.
func (m *making) rehome(spec driver.Spec, dir string, rec record) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is something in the instance's folder: %w", err)
	}
	if err := os.Rename(m.dir, dir); err != nil {
		return err
	}
	m.dir, m.spec = dir, spec
	rec.Sandbox, rec.ID, rec.Gofer = m.rec.Sandbox, m.rec.ID, m.rec.Gofer
	m.rec = rec
	if err := m.rec.write(dir); err != nil {
		return err
	}
	log, err := lines.OpenLog(dir, m.d.opts.LogLimit)
	if err != nil {
		return err
	}
	m.stderr.Close()
	m.stderr = log
	return nil
}

var _ driver.Preparer = (*Driver)(nil)

// Ready implements driver.Preparer.
func (d *Driver) Ready(spec driver.Spec, from driver.Snapshot, count int) error {
	if from.Carries != driver.CarryMemory || from.Dir == "" {
		return nil
	}
	st, err := readState(from.Dir)
	if err != nil {
		return fmt.Errorf("server %q: %w", spec.Server, err)
	}
	if st.Image == nil {
		return nil
	}
	plan, err := d.plan(d.ctx, blank(spec))
	if err != nil {
		return fmt.Errorf("server %q: %w", spec.Server, err)
	}
	if !plan.apart() {
		return fmt.Errorf("server %q can't stand ready: it has directories of its own on the host", spec.Server)
	}
	runsc, err := d.helpers.reads(st.Image.Runsc, st.Image.GVisor)
	if err != nil {
		return fmt.Errorf("server %q: %w", spec.Server, err)
	}
	key := readyKey(plan.key(d, runsc), st.Image.ID)
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	s := d.pool.shelves[key]
	switch {
	case d.pool.closed:
		return nil
	case count <= 0:
		if s != nil {
			d.pool.empty(s)
			delete(d.pool.shelves, key)
		}
		return nil
	case s == nil:
		s = &shelf{key: key, server: spec.Server, spec: blank(spec), plan: plan, runsc: runsc, image: imageOf(from.Dir)}
		d.pool.add(s)
	}
	s.want = count
	d.pool.stir()
	return nil
}

// Pools implements driver.Preparer.
func (d *Driver) Pools() []driver.Pool {
	all := make(map[string]*driver.Pool)
	of := func(server string) *driver.Pool {
		if all[server] == nil {
			all[server] = &driver.Pool{Server: server}
		}
		return all[server]
	}
	d.pool.mu.Lock()
	for _, s := range d.pool.shelves {
		if s.image == "" {
			of(s.server).Slots += len(s.have)
		} else {
			of(s.server).Ready += len(s.have)
		}
	}
	d.pool.mu.Unlock()
	d.live.Range(func(k, _ any) bool {
		i := k.(*instance)
		of(i.h.Server).Live++
		if i.park.parked.Load() {
			of(i.h.Server).Parked++
		}
		return true
	})
	pools := make([]driver.Pool, 0, len(all))
	for _, p := range all {
		pools = append(pools, *p)
	}
	slices.SortFunc(pools, func(a, b driver.Pool) int {
		if a.Server < b.Server {
			return -1
		}
		return 1
	})
	return pools
}
