package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// A change is one transaction, and what it changes in memory once it is written.
type change struct {
	store.AgentTx
	s      *Service
	now    time.Time
	after  []func() // with s.mu
	events []store.Event
}

// change runs one transaction. One is made at a time, so that what a change has read in
// the store is what memory says; callers that wait may give up, a change that has begun
// is finished.
func (s *Service) change(ctx context.Context, do func(c *change) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	c := &change{s: s, now: time.Now().UTC()}
	done := false
	err := s.o.Store.ChangeAgents(context.WithoutCancel(ctx), func(tx store.AgentTx) error {
		c.AgentTx = tx
		err := do(c)
		done = err == nil
		return err
	})
	s.mu.Lock()
	if err != nil {
		// A commit that failed may have been written. While the deadlines are looked at,
		// nothing has to hurry: that is asked at their end.
		if done {
			s.unsure = true
			if !s.next.IsZero() {
				s.hurry()
			}
		}
		s.mu.Unlock()
		return err
	}
	for _, f := range c.after {
		f()
	}
	s.mu.Unlock()
	if len(c.events) > 0 {
		s.o.Told(c.events)
	}
	return nil
}

// run reads a run that is to be changed.
func (c *change) run(id string) (*run, error) {
	r, ok, err := c.Run(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		c.after = append(c.after, func() { c.s.forget(id) })
		return nil, noRun(id)
	}
	return readRun(r), nil
}

func (c *change) session(id string) (*session, error) {
	s, ok, err := c.AgentSession(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, noSession(id)
	}
	return readSession(s), nil
}

// liveRun is the run of a session that has not ended; nil for none.
func (c *change) liveRun(s *session) (*run, error) {
	all, err := c.Runs(store.RunFilter{Session: s.ID, States: liveStates, Limit: 1})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return readRun(all[0]), nil
}

// put writes a run, and has memory know it.
func (c *change) put(r *run) error {
	data, err := json.Marshal(r.d)
	if err != nil {
		return fmt.Errorf("write run %s: %w", r.ID, err) // its blueprint has something that is no JSON
	}
	r.Changed, r.Data = c.now, data
	if err := c.PutRun(r.Run); err != nil {
		return err
	}
	was := *r
	c.after = append(c.after, func() { c.s.index(&was, c.now) })
	return nil
}

func (c *change) putSession(s *session) error {
	s.Changed, s.Data = c.now, encode(s.d)
	return c.PutAgentSession(s.AgentSession)
}

// liveStates are those of runs that have not ended.
var liveStates = []string{api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping}

// live is what memory has of a run that has not ended.
type live struct {
	id, session, agent, owner string
	state                     string
	claim                     int64
	runner, instance          string
	// until is when the claim ends. Renewals are not stored: every lease begins anew
	// with the coordinator.
	until    time.Time
	since    time.Time // when it became pending, or the coordinator began
	created  time.Time
	demands  api.Demands
	project  string
	executor string
	waits    string // the run that waits for it; empty for none
	stopping bool
	stop     chan struct{} // closed when it is to be stopped
	moved    chan struct{} // closed when its claim is over
	ended    chan struct{} // closed when it has ended
}

// index has memory know a run as it is in the store. It needs s.mu.
func (s *Service) index(r *run, now time.Time) {
	l := s.live[r.ID]
	if r.ended() {
		s.forget(r.ID)
		return
	}
	if l == nil {
		l = &live{id: r.ID, session: r.Session, agent: r.Agent, owner: r.Owner, created: r.Created, stop: make(chan struct{}), moved: make(chan struct{}), ended: make(chan struct{})}
		s.live[r.ID] = l
	}
	if l.claim != r.Claim || r.State == api.RunPending && l.state != r.State {
		close(l.moved)
		l.moved, l.stop, l.stopping = make(chan struct{}), make(chan struct{}), false
		l.until = now.Add(s.bounds.Load().Lease)
	}
	if r.State == api.RunStopping && !l.stopping {
		l.stopping = true
		close(l.stop)
	}
	if r.State == api.RunPending && l.state != r.State {
		l.since = now
		s.callWaiting()
	}
	s.going.Store(r.Session, going{r.ID, r.d.Trace.context()})
	l.state, l.claim, l.runner, l.instance = r.State, r.Claim, r.Runner, r.d.Instance
	if r.d.Mode == api.ModeSync || r.d.Mode == api.ModeAsyncPoll { // one that polls waits, too
		l.waits = r.d.ParentRun
	}
	l.demands, l.project, l.executor = r.d.Demands, r.d.Job.ProjectDir, r.d.Blueprint.Executor
	s.hurryTo(s.deadline(l))
}

// forget drops a run that has ended, or is gone. It needs s.mu.
func (s *Service) forget(id string) {
	l := s.live[id]
	if l == nil {
		return
	}
	delete(s.live, id)
	if now, ok := s.going.Load(l.session); ok && now.(going).run == id { // else it is of the next run
		s.going.Delete(l.session)
	}
	close(l.moved)
	close(l.ended)
	s.callWaiting() // there is a place
}

// callWaiting has the runners that wait look again. It needs s.mu.
func (s *Service) callWaiting() {
	close(s.waiting)
	s.waiting = make(chan struct{})
}

// claimed reports whether a runner has it.
func (l *live) claimed() bool { return l.state != api.RunPending }

// hurryTo has the deadlines looked at in time for one. It needs s.mu.
func (s *Service) hurryTo(at time.Time) {
	if s.next.IsZero() || at.Before(s.next) {
		s.hurry()
	}
}

// hurry has the deadlines looked at again.
func (s *Service) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
