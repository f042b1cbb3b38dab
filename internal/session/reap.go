package session

import (
	"context"
	"time"
)

const (
	reapEvery   = 10 * time.Second
	forgetEvery = 360 // ticks
)

// reap closes sessions whose time is over, forgets what can't be asked for any
// more, and keeps the record of use, now and then, so that none of it grows with
// calls. What takes long is done besides: a close that hangs holds up neither the
// next tick nor the other sessions.
func (r *Registry) reap() {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%forgetEvery == 0 {
			r.forget(r.life)
		}
		select {
		case <-r.life.Done():
			return
		case <-tick.C:
		}
		r.touch(r.life)
		r.endings(r.life)
		r.saveDamages(r.life)
		r.stock.fill()
		r.dropLearners(r.Catalog())
		now := time.Now()
		r.sweepMinted(r.life, now)
		for _, s := range r.Sessions() {
			switch why := r.over(s, now); {
			case s.isClosed(): // another close is about it
			case why != "":
				r.besides(func() { r.closeOver(s, why) })
			case r.rests(s) && s.running() && r.unused(s, now) > r.Catalog().Config.Limits.Idle:
				r.besides(func() {
					r.o.Log.Info("servers of an unused session ended", "session", s.ID)
					r.suspend(s)
				})
			}
		}
	}
}

// rests reports whether the servers of a session end while it is not used, and start again
// at the next call: those of a session that came by itself, and those of an agent's session
// while nothing has a token of it, as a run has.
func (r *Registry) rests(s *Session) bool {
	switch {
	case s.Kind == KindDefault:
		return true
	case !s.known().Listed:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(s.minted) == 0
}

// closeOver closes a session whose time is over.
func (r *Registry) closeOver(s *Session, why string) {
	r.o.Log.Info("session closed", "session", s.ID, "because", why)
	_ = r.closeSession(r.life, s, why)
}

// expireAt has a session that is there closed when its ttl is over, and not by the next
// tick.
func (s *Session) expireAt(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if at.IsZero() || s.closed {
		return
	}
	r := s.r
	s.expiry = time.AfterFunc(time.Until(at), func() {
		r.background(func() {
			select {
			case r.ends <- struct{}{}:
			case <-r.life.Done():
				return
			}
			defer func() { <-r.ends }()
			if why := r.over(s, time.Now()); why != "" && !s.isClosed() {
				r.closeOver(s, why)
			}
		})
	})
}

// EndPrograms ends the instances of a connection's session whose client has left. They
// start again should it come back.
func (r *Registry) EndPrograms(s *Session) {
	if s.Kind == KindClient && s.running() && s.gate.calls() == 0 {
		r.o.Log.Info("servers of a client that has left ended", "session", s.ID)
		r.suspend(s)
	}
}

// besides does something in the background if there is a place for it; if not,
// the next tick finds that it is still to be done.
func (r *Registry) besides(do func()) bool {
	select {
	case r.ends <- struct{}{}:
	default:
		return false
	}
	free := func() { <-r.ends }
	begun := r.background(func() {
		defer free()
		do()
	})
	if !begun {
		free()
	}
	return begun
}

// endings writes down the ends that could not be before, and removes what those
// sessions had.
func (r *Registry) endings(ctx context.Context) {
	r.mu.Lock()
	all := make([]*Session, 0, len(r.unrecorded))
	for _, s := range r.unrecorded {
		all = append(all, s)
	}
	r.mu.Unlock()
	for _, s := range all {
		if err := r.recordEnd(ctx, s); err != nil {
			r.o.Log.Warn("end of a session not recorded", "session", s.ID, "err", err)
			return
		}
		begun := r.besides(func() {
			ctx, cancel := afterwards(ctx)
			defer cancel()
			r.removeSession(ctx, s)
		})
		if !begun {
			return // it is written down once more then, which changes nothing
		}
		r.mu.Lock()
		delete(r.unrecorded, s.ID)
		r.mu.Unlock()
	}
}
