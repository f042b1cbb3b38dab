package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	// mostLost is how often a run whose runner was lost is done again: a run that brings
	// down each of its runners must end.
	mostLost = 3
	// retryStore is how soon a change is tried again that the store has refused.
	retryStore = time.Second
	dropEvery  = time.Hour
)

// keepTime ends what is over in time: claims, runs that no runner fits, ended sessions.
// It does errands when they are due.
func (s *Service) keepTime() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	drop := time.Now()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		s.mu.Lock()
		s.next = time.Time{}
		unsure := s.unsure
		s.mu.Unlock()
		var err error
		if unsure {
			err = s.reload(s.ctx)
		}
		now := time.Now()
		for _, id := range s.over(now) {
			err = errors.Join(err, s.expire(id))
		}
		if !now.Before(drop) {
			s.closeIdle(now)
			s.drop(now)
			drop = now.Add(dropEvery)
		}
		s.mu.Lock()
		next := s.runErrands(now)
		for _, at := range []time.Time{s.nextDeadline(), drop} {
			if next.IsZero() || !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		soon := now.Add(retryStore)
		switch {
		case err != nil:
			next = soon
			if s.ctx.Err() == nil {
				s.o.Log.Warn("the coordinator of agents can't write to its store and tries again", "err", err)
			}
		case s.unsure && soon.Before(next):
			next = soon
		}
		s.next = next
		timer.Reset(time.Until(next))
		s.mu.Unlock()
	}
}

// deadline is when a run has to be looked at again. It needs s.mu.
func (s *Service) deadline(l *live) time.Time {
	if l.claimed() {
		return l.until
	}
	from := l.since
	if last := s.there(l, time.Now()); last.After(from) {
		from = last
	}
	return from.Add(s.bounds.Load().Match)
}

// nextDeadline is the first of all. It needs s.mu.
func (s *Service) nextDeadline() (first time.Time) {
	for _, l := range s.live {
		if at := s.deadline(l); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// over returns the runs whose time is over, and forgets runners that have been gone for
// long.
func (s *Service) over(now time.Time) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.live {
		if !s.deadline(l).After(now) {
			ids = append(ids, id)
		}
	}
	for id, k := range s.runners {
		if k.waiting == 0 && now.Sub(k.seen) > 2*max(s.bounds.Load().Match, s.bounds.Load().Lease) {
			delete(s.runners, id)
		}
	}
	for owner := range s.served {
		if len(s.served) > len(s.live)+1000 {
			delete(s.served, owner)
		}
	}
	return ids
}

// expire ends a run, or has another runner do it again, unless its time is not over any
// more.
func (s *Service) expire(id string) error {
	return s.change(s.ctx, func(c *change) error {
		s.mu.Lock()
		l := s.live[id]
		if l == nil || s.deadline(l).After(c.now) {
			s.mu.Unlock()
			return nil
		}
		unmatched := s.unmatched(l)
		s.mu.Unlock()
		row, ok, err := c.Run(id)
		if err != nil {
			return err
		}
		r := readRun(row)
		switch {
		case !ok || r.ended():
			c.after = append(c.after, func() { s.forget(id) })
			return nil
		case r.State == api.RunPending:
			return c.fail(r, unmatched)
		}
		lost := &api.Error{Kind: api.KindLost, Message: fmt.Sprintf("its runner %s has not been heard of for %s; what it did until then may have taken effect", r.Runner, s.bounds.Load().Lease)}
		return c.lose(r, lost)
	})
}

// lose ends a run that its runner did not see to its end, or has another one do it again.
func (c *change) lose(r *run, why *api.Error) error {
	r.d.Lost++
	if r.State == api.RunStopping || !r.d.Blueprint.Retry || r.d.Lost > mostLost {
		if r.d.Lost > mostLost {
			told := *why
			told.Message += fmt.Sprintf("; it was begun %d times and is not done again", r.d.Lost)
			why = &told
		}
		return c.fail(r, why)
	}
	r.Until = c.now.Add(c.s.bounds.Load().Match)
	if err := c.move(r, api.RunPending); err != nil {
		return err
	}
	return c.put(r)
}

// closeIdle closes sessions that have been idle for long. What an agent waits for keeps
// its session.
func (s *Service) closeIdle(now time.Time) {
	f := store.AgentFilter{States: []string{api.AgentIdle}, Unchanged: now.Add(-s.bounds.Load().Idle), Limit: pageSize}
	for {
		page, err := s.o.Store.AgentSessions(s.ctx, f)
		for i := 0; i < len(page) && err == nil; i++ {
			err = s.change(s.ctx, func(c *change) error {
				sess, err := c.session(page[i].ID)
				if err != nil || sess.State != api.AgentIdle || !sess.Changed.Before(f.Unchanged) {
					return err
				}
				below, err := c.Runs(store.RunFilter{Parent: sess.ID, States: liveStates, Limit: 1})
				if err != nil || len(below) > 0 {
					return err
				}
				s.o.Log.Info("agent session closed", "session", sess.ID, "because", "it had no run for "+s.bounds.Load().Idle.String())
				_, err = c.closeSession(sess, "agents.idle")
				return err
			})
		}
		if err != nil && s.ctx.Err() == nil {
			s.o.Log.Warn("idle agent sessions not closed", "err", err)
		}
		if err != nil || len(page) < pageSize {
			return
		}
		f.Before = page[pageSize-1].ID
	}
}

// drop forgets sessions that have ended long ago.
func (s *Service) drop(now time.Time) {
	ids, err := s.o.Store.DropAgents(s.ctx, now.Add(-s.bounds.Load().Keep))
	if err != nil && s.ctx.Err() == nil {
		s.o.Log.Warn("ended agent sessions not forgotten", "err", err)
	}
	if len(ids) > 0 {
		s.o.Log.Info("forgot ended agent sessions", "count", len(ids))
	}
}

// recover brings back what is in the store.
func (s *Service) recover(ctx context.Context) error {
	if err := s.reload(ctx); err != nil {
		return fmt.Errorf("bring back the runs of agents: %w", err)
	}
	waiting, err := s.o.Store.WaitingCallbacks(ctx)
	if err != nil {
		return fmt.Errorf("bring back the callbacks of agents: %w", err)
	}
	s.mu.Lock()
	s.plan(errand{kind: errandLeft}, time.Now())
	s.mu.Unlock()
	s.tellAll(waiting)
	return nil
}
