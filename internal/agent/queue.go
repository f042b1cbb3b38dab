package agent

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
)

// Claim implements runner.Queue.
//
// A runner has places for the runs that it works at. A run that waits for one that it has
// started lends its place to that one: otherwise agents that wait could fill all places,
// and what they wait for would never be claimed.
//
// What is claimed next is such a run, or else the oldest run of the owner who has the
// fewest at work, and of several such owners the one that has waited longest for a turn.
// So every owner gets on, however many runs another one has queued.
func (s *Service) Claim(ctx context.Context, me runner.Description) (runner.Claim, error) {
	left, err := s.arrive(me)
	if err != nil {
		return runner.Claim{}, err
	}
	defer left()
	for {
		id, more, err := s.candidate(me)
		if err != nil {
			return runner.Claim{}, err
		}
		if id == "" {
			select {
			case <-more:
			case <-ctx.Done():
				return runner.Claim{}, ctx.Err()
			case <-s.ctx.Done():
				return runner.Claim{}, ErrClosed
			}
			continue
		}
		if claim, ok, err := s.take(ctx, id, me); ok || err != nil {
			return claim, err
		}
	}
}

// candidate is the run that a runner is to have next; empty for none, until more is
// closed.
func (s *Service) candidate(me runner.Description) (id string, more <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.runners[me.ID]; k == nil || k.Instance != me.Instance {
		return "", nil, replaced(me.ID)
	}
	lent := s.lent()
	var had, lends *live // the oldest that it had before, and that a place is lent to
	working := 0
	busy := make(map[string]int)
	first := make(map[string]*live)
	for _, l := range s.live {
		switch {
		case l.claimed():
			busy[l.owner]++
			if l.had(me) {
				had = older(had, l)
			} else if l.runner == me.ID && !lent[l.id] {
				working++
			}
		case !l.fits(me):
		case !lent[l.waits] && s.has(me, l.waits):
			lends = older(lends, l)
		default:
			first[l.owner] = older(first[l.owner], l)
		}
	}
	if next := cmp.Or(had, lends); next != nil {
		return next.id, nil, nil
	}
	if me.Places > 0 && working >= me.Places {
		return "", s.waiting, nil
	}
	var next *live
	for owner, l := range first {
		if next == nil || cmp.Or(
			cmp.Compare(busy[owner], busy[next.owner]),
			cmp.Compare(s.served[owner], s.served[next.owner]),
			l.created.Compare(next.created)) < 0 {
			next = l
		}
	}
	if next == nil {
		return "", s.waiting, nil
	}
	return next.id, nil, nil
}

func older(a, b *live) *live {
	if a == nil || b.created.Before(a.created) {
		return b
	}
	return a
}

// lent are the runs whose place another one has. It needs s.mu.
func (s *Service) lent() map[string]bool {
	all := make(map[string]bool)
	for _, l := range s.live {
		if l.waits != "" && l.claimed() {
			all[l.waits] = true
		}
	}
	return all
}

// has reports whether a runner works at a run. It needs s.mu.
func (s *Service) has(me runner.Description, id string) bool {
	l := s.live[id]
	return l != nil && l.claimed() && l.runner == me.ID
}

// had reports whether an earlier start of a runner has claimed the run.
func (l *live) had(me runner.Description) bool {
	return l.claimed() && l.runner == me.ID && l.instance != me.Instance
}

// take gives a run to a runner; ok is false where it can't have it any more.
func (s *Service) take(ctx context.Context, id string, me runner.Description) (claim runner.Claim, ok bool, err error) {
	err = s.change(ctx, func(c *change) error {
		row, found, err := c.Run(id)
		if err != nil {
			return err
		}
		if !found {
			c.after = append(c.after, func() { s.forget(id) })
			return nil
		}
		r := readRun(row)
		adopted := r.claimed() && r.Runner == me.ID && r.d.Instance != me.Instance
		if r.State != api.RunPending && !adopted {
			c.after = append(c.after, func() { s.index(r, c.now) })
			return nil
		}
		if r.damaged {
			return c.condemn(r)
		}
		sess, err := c.session(r.Session)
		if err != nil {
			return err
		}
		r.Claim++
		r.Runner, r.d.Instance, r.Until = me.ID, me.Instance, c.now.Add(s.bounds.Load().Lease)
		if adopted {
			err = c.tellState(r)
		} else {
			r.d.Events = 0
			err = c.move(r, api.RunClaimed)
		}
		if err == nil {
			err = c.put(r)
		}
		if err != nil {
			return err
		}
		claim, ok = claimOf(r, sess, me, adopted), true
		c.after = append(c.after, func() {
			if !adopted {
				s.serving++
				s.served[r.Owner] = s.serving
			}
		})
		return nil
	})
	if err != nil {
		return runner.Claim{}, false, err
	}
	return claim, ok, nil
}

func claimOf(r *run, sess *session, me runner.Description, adopted bool) runner.Claim {
	job := r.d.Job
	job.ExecutorSession = sess.d.Executor
	job.Metadata = maps.Clone(job.Metadata)
	if job.Metadata == nil {
		job.Metadata = make(map[string]any)
	}
	job.Metadata["runner_id"] = me.ID
	if len(me.Tags) > 0 {
		job.Metadata["capability_tags"] = strings.Join(me.Tags, ",")
	}
	return runner.Claim{
		Run: r.ID, Number: r.Claim, Until: r.Until, Blueprint: r.d.Blueprint, Job: job, World: r.d.World,
		Time: r.d.Limits.Time, Began: r.d.Started,
		Adopted: adopted, Running: r.State == api.RunRunning, Events: r.d.Events, Trace: r.d.Trace.context(),
	}
}

// Claimed implements runner.Queue.
func (s *Service) Claimed(_ context.Context, id string) (ids []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.live {
		if l.claimed() && l.runner == id {
			ids = append(ids, l.id)
		}
	}
	return ids, nil
}

// Renew implements runner.Queue. Renewals are in memory alone: a coordinator that starts
// gives every claim a new lease.
func (s *Service) Renew(_ context.Context, id string, number int64) (runner.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renew(id, number)
}

// renew needs s.mu.
func (s *Service) renew(id string, number int64) (runner.Answer, error) {
	l := s.live[id]
	if l == nil || !l.claimed() || l.claim != number {
		return runner.Answer{}, runner.ErrStale
	}
	now := time.Now()
	s.saw(l, now)
	l.until = now.Add(s.bounds.Load().Lease)
	return runner.Answer{Until: l.until, Stop: l.stopping}, nil
}

// Stopping implements runner.Queue.
func (s *Service) Stopping(ctx context.Context, id string, number int64) error {
	s.mu.Lock()
	l := s.live[id]
	if l == nil || !l.claimed() || l.claim != number {
		s.mu.Unlock()
		return runner.ErrStale
	}
	stop, moved := l.stop, l.moved
	s.mu.Unlock()
	select {
	case <-stop:
		return nil
	case <-moved:
		return runner.ErrStale
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return ErrClosed
	}
}

// Report implements runner.Queue.
func (s *Service) Report(ctx context.Context, id string, number int64, rep runner.Report) (runner.Answer, error) {
	if !rep.Running && !rep.Ended && len(rep.Events) == 0 {
		return s.Renew(ctx, id, number)
	}
	err := s.change(ctx, func(c *change) error {
		row, ok, err := c.Run(id)
		if err != nil {
			return err
		}
		r := readRun(row)
		if !ok || !r.claimed() || r.Claim != number {
			return runner.ErrStale
		}
		if r.damaged {
			return c.condemn(r)
		}
		sess, err := c.session(r.Session)
		if err != nil {
			return err
		}
		// A result says that the executor ran, also where nothing said so before.
		if r.State == api.RunClaimed && (rep.Running || len(rep.Events) > 0 || rep.Ended && rep.Error == nil) {
			if err := c.began(r, sess); err != nil {
				return err
			}
		}
		if err := c.report(r, sess, rep.Events); err != nil {
			return err
		}
		if err := c.putSession(sess); err != nil {
			return err
		}
		if !rep.Ended {
			return c.put(r)
		}
		if rep.Error != nil && rep.Error.Kind == api.KindLost {
			return c.lose(r, rep.Error)
		}
		state, result, failure := outcome(r, rep)
		return c.end(r, state, result, failure)
	})
	if err != nil {
		return runner.Answer{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rep.Ended {
		return runner.Answer{}, nil
	}
	return s.renew(id, number)
}

// fail ends a run that its runner, or the coordinator, can't go on with.
func (c *change) fail(r *run, why *api.Error) error {
	return c.end(r, api.RunFailed, r.d.Result, why)
}
