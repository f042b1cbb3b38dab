//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// sight is what was found of a program and what it may see. To look takes tens of
// milliseconds, and a fork of many asks for the same.
type sight struct {
	run    *command
	layout *layout.Layout
}

// sights remembers them for a while. One that is not new any more is looked for
// again in the background when it is used. One that is out of date is not used: see
// layout.Layout.Stale.
type sights struct {
	work  *sync.WaitGroup
	blind func() bool // what was found is all that can be; nil for never

	mu  sync.Mutex
	all map[string]*looking
}

type looking struct {
	done  chan struct{} // the first look is over
	sight *sight
	err   error
	at    time.Time
	again bool // a look runs
}

const (
	sightNew  = 10 * time.Second
	sightOld  = 5 * time.Minute
	maxSights = 256
)

// get returns what look finds, or what it found lately under the key.
func (s *sights) get(ctx context.Context, key string, look func(context.Context) (*sight, error)) (*sight, error) {
	s.mu.Lock()
	l := s.all[key]
	if l != nil && !l.at.IsZero() && time.Since(l.at) > sightOld && !s.fixed() {
		l = nil
	}
	if l == nil {
		l = &looking{done: make(chan struct{})}
		if s.all == nil || len(s.all) >= maxSights {
			s.all = make(map[string]*looking)
		}
		s.all[key] = l
		s.mu.Unlock()
		l.sight, l.err = look(ctx)
		s.mu.Lock()
		l.at = time.Now()
		if l.err != nil && s.all[key] == l {
			delete(s.all, key)
		}
		s.mu.Unlock()
		close(l.done)
		return l.sight, l.err
	}
	s.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.err != nil {
		// The first caller's context may have ended early.
		if ctx.Err() == nil && (l.err == context.Canceled || l.err == context.DeadlineExceeded) {
			s.mu.Unlock()
			found, err := s.get(ctx, key, look)
			s.mu.Lock()
			return found, err
		}
		return nil, l.err
	}
	found := l.sight
	if !l.again && time.Since(l.at) > sightNew && !s.fixed() {
		l.again = true
		s.work.Go(func() { s.renew(key, l, look) })
	}
	return found, nil
}

// fresh is get, without what is known to be out of date.
func (s *sights) fresh(ctx context.Context, key string, look func(context.Context) (*sight, error)) (*sight, error) {
	found, err := s.get(ctx, key, look)
	if err != nil || s.fixed() || !found.layout.Stale() {
		return found, err
	}
	s.mu.Lock()
	if l := s.all[key]; l != nil && l.sight == found {
		delete(s.all, key)
	}
	s.mu.Unlock()
	return s.get(ctx, key, look)
}

// fixed reports whether none can be looked for again.
func (s *sights) fixed() bool { return s.blind != nil && s.blind() }

// forget has all of them looked for again.
func (s *sights) forget() {
	if s.fixed() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}

// renew looks again. Where that fails, the next one to ask hears why.
func (s *sights) renew(key string, l *looking, look func(context.Context) (*sight, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := look(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.again = false
	if err != nil {
		if s.all[key] == l && !s.fixed() { // which it may be since the look began
			delete(s.all, key)
		}
		return
	}
	l.sight, l.at = found, time.Now()
}

// Look implements driver.Looker.
func (d *Driver) Look(ctx context.Context, spec driver.Spec) {
	if d.opts.Blind != nil && !d.opts.Blind() {
		_, _ = d.helpers.ours() // what fails a start says
		_, _ = d.plan(ctx, spec)
	}
}

// see finds the program of a spec and what it may see.
func (d *Driver) see(ctx context.Context, spec driver.Spec, w layout.Wanted) (*sight, error) {
	key := digest(spec.Server, spec.Command, spec.Args, spec.Env, spec.Cwd, options(spec), w)
	return d.sights.fresh(ctx, key, func(ctx context.Context) (*sight, error) {
		run, err := d.resolve(ctx, spec)
		if err != nil {
			return nil, err
		}
		return d.look(spec, run, w)
	})
}

// look finds what a program may see.
func (d *Driver) look(spec driver.Spec, run *command, w layout.Wanted) (*sight, error) {
	w.Sums = &d.sums
	w.Mode, w.Dir, w.Image, w.Reads, w.Moves = run.mode, run.dir, run.image, run.reads, run.moves
	w.Command, w.Args, w.Env = run.path, run.args[1:], d.env(spec, run)
	w.Homes = layout.Homes(lookupEnv(d.opts.Environ, "HOME"))
	l, err := layout.Plan(w)
	if err != nil {
		return nil, err
	}
	return &sight{run, l}, nil
}
