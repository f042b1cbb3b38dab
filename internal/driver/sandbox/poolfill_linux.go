//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// starting counts a start that waits for an instance, until done is called.
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

// quiet waits until no start waits for an instance; false when the driver closes.
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

// missing picks a shelf that is not full, and takes down unused ones.
func (p *pool) missing() *shelf {
	spare := memoryToSpare()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.d.ctx.Err() != nil {
		return nil
	}
	slots := p.count()
	var found *shelf
	for key, s := range p.shelves {
		if s.image == "" && time.Since(s.used) > shelfAge || !spare {
			p.empty(s)
			if s.image == "" && s.making == 0 && s.workers == 0 && len(s.expected) == 0 {
				delete(p.shelves, key)
			}
			continue
		}
		if s.image == "" && s.want > s.plan.box.Slots && time.Since(s.crowd) > crowdAge {
			s.want = s.plan.box.Slots
			p.trim(s)
		}
		if s.making > 0 || len(s.have) >= s.want || time.Now().Before(s.next) || s.image == "" && slots >= maxSlots {
			continue
		}
		if found == nil || s.image != "" && found.image == "" {
			found = s
		}
	}
	if found != nil {
		found.making++
	}
	return found
}

// trim removes what is neither wanted nor expected. p.mu is held.
func (p *pool) trim(s *shelf) {
	for most := max(s.want, s.coming()); len(s.have) > most && !p.closed; {
		m := s.have[len(s.have)-1]
		s.have = s.have[:len(s.have)-1]
		p.work.Go(func() { p.drop(m) })
	}
}

// count is how many slots there are. p.mu is held.
func (p *pool) count() int {
	n := 0
	for _, s := range p.shelves {
		if s.image == "" {
			n += len(s.have)
		}
	}
	return n
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
	s.making--
	switch {
	case err != nil:
		s.failed++
		s.next = time.Now().Add(min(time.Second<<min(s.failed, 8), time.Minute))
		s.refuse() // a start that makes its own gets the error
		if p.d.ctx.Err() == nil {
			p.d.opts.Log.Warn("no sandbox can be made ahead of time", "server", s.server, "error", err)
		}
	default:
		s.failed = 0
		p.put(s, m)
	}
	if s.workers == 0 && s.making == 0 {
		s.refuse()
	}
}

// put gives a sandbox to a start that waits for one, or to the shelf. p.mu is held.
func (p *pool) put(s *shelf, m *making) {
	switch {
	case p.closed || p.shelves[s.key] != s:
		p.work.Go(func() { p.drop(m) })
	case len(s.waiting) > 0:
		s.waiting[0] <- m
		s.waiting = s.waiting[1:]
	case len(s.have) >= max(s.want, s.coming()):
		p.work.Go(func() { p.drop(m) })
	default:
		// It would take some of a CPU while it waits. A dead one is found out when it is
		// taken.
		_ = m.rec.ID.Signal(unix.SIGSTOP)
		s.have = append(s.have, m)
	}
}

func (p *pool) make(ctx context.Context, s *shelf) (_ *making, err error) {
	m := &making{d: p.d, spec: s.spec, plan: s.plan, open: !s.plan.bare(), rec: record{Sandbox: newName(), Runsc: s.runsc, Flags: s.plan.flags(p.d), Base: s.plan.base, Needs: s.plan.needs, Program: s.plan.program()}}
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
	return m, nil
}

// drop removes a sandbox that no start took.
func (p *pool) drop(m *making) {
	if err := m.undo(context.Background()); err != nil {
		p.d.opts.Log.Warn("a sandbox that was made ahead of time is not removed", "sandbox", m.rec.Sandbox, "error", err)
	}
}
