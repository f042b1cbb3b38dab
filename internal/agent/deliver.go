package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// Errands are what is to be done outside of a transaction after one was written. Telling
// a session is found in its callbacks; the others are stored beside those, without a
// parent, so that a restart loses none.
const (
	errandTell   = "tell"   // a session is told the callbacks that wait for it
	errandLeft   = "left"   // the stored ones are looked up
	errandFinish = "finish" // a run's hooks are run
	errandClose  = "close"  // a session's world is closed
)

type errand struct {
	kind    string
	session string
	run     string
	n       int64 // of its callback
}

func (e errand) key() string { return fmt.Sprintf("%s %s %d", e.kind, e.session, e.n) }

// A task is an errand that is planned or under way.
type task struct {
	errand
	at    time.Time
	tries int
	busy  bool
	again bool // something has come since it began
}

const (
	mostErrands = 8 // of one kind at once: hooks may take long
	// hookTries is how often the hooks of a run are begun. It is counted in the store: hooks
	// that bring down the gateway must end.
	hookTries    = 2
	longestPause = 5 * time.Minute
	errandTime   = 5 * time.Minute // of one that runs no hooks, which have a time of their own
	// deliverTries is how often a parent is resumed for a callback in vain, before the
	// callback waits for another run of the parent.
	deliverTries = 5
)

// pause is how long to wait before another try.
func pause(tries int) time.Duration {
	return min(time.Second<<min(tries-1, 20), longestPause)
}

// leave stores an errand.
func (c *change) leave(kind, session, run string) error {
	err := c.PutCallback(store.Callback{Child: session, Run: run, At: c.now, Data: encode(callbackData{Errand: kind})})
	c.after = append(c.after, func() { c.s.plan(errand{kind: errandLeft}, c.now) })
	return err
}

// poke has a session looked at that may have to be told something.
func (c *change) poke(id string, at time.Time) {
	c.after = append(c.after, func() { c.s.plan(errand{kind: errandTell, session: id}, at) })
}

// plan has an errand done at a time, or earlier. It needs s.mu.
func (s *Service) plan(e errand, at time.Time) {
	t := s.due[e.key()]
	switch {
	case t == nil:
		s.due[e.key()] = &task{errand: e, at: at}
	case t.busy:
		t.again, t.at = true, at
	case at.Before(t.at):
		t.at = at
	}
	s.hurryTo(at)
}

// runErrands begins those that are due, and returns when the next one is. It needs s.mu.
func (s *Service) runErrands(now time.Time) (next time.Time) {
	busy := make(map[string]int)
	for _, t := range s.due {
		if t.busy {
			busy[t.kind]++
		}
	}
	for _, t := range s.due {
		if t.busy {
			continue
		}
		if t.at.After(now) || busy[t.kind] == mostErrands {
			if t.at.After(now) && (next.IsZero() || t.at.Before(next)) {
				next = t.at
			}
			continue // one of those that are busy hurries when it is done
		}
		busy[t.kind]++
		t.busy = true
		s.work.Go(func() { s.finish(t, s.do(t.errand)) })
	}
	return next
}

func (s *Service) finish(t *task, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.busy = false
	switch {
	case err != nil:
		t.tries++
		t.at, t.again = time.Now().Add(pause(t.tries)), false
		if s.ctx.Err() == nil {
			s.o.Log.Warn("an agent's errand failed and is tried again", "errand", t.kind, "session", t.session, "run", t.run, "err", err)
		}
	case t.again:
		t.again = false
	default:
		delete(s.due, t.key())
	}
	s.hurry()
}

func (s *Service) do(e errand) error {
	switch e.kind {
	case errandTell:
		return s.deliver(s.ctx, e.session)
	case errandFinish:
		return s.runHooks(e)
	}
	ctx, cancel := context.WithTimeout(s.ctx, errandTime)
	defer cancel()
	if e.kind == errandLeft {
		return s.findErrands(ctx)
	}
	if e.kind == errandClose && s.o.Worlds != nil {
		if err := s.o.Worlds.CloseWorld(ctx, e.session); err != nil {
			return err
		}
	}
	return s.done(e)
}

// done forgets a stored errand.
func (s *Service) done(e errand) error {
	return s.change(s.ctx, func(c *change) error { return c.DeleteCallback(e.n) })
}

// runHooks runs the hooks after a run. That they begin is stored first.
func (s *Service) runHooks(e errand) error {
	row, ok, err := s.o.Store.Run(s.ctx, e.run)
	if err != nil {
		return err
	}
	if !ok {
		return s.done(e)
	}
	begun, there := 0, false
	err = s.change(s.ctx, func(c *change) error {
		all, err := c.Callbacks("")
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(cb store.Callback) bool { return cb.N == e.n })
		if there = i >= 0; !there {
			return nil // they were run since the errand was looked up
		}
		d := readCallback(all[i])
		begun = d.Attempts
		d.Attempts++
		all[i].Data = encode(d)
		return c.PutCallback(all[i])
	})
	switch {
	case err != nil || !there:
		return err
	case begun >= hookTries:
		s.o.Log.Warn("a run's hooks did not come to their end and are given up", "run", e.run, "begun", begun)
		return s.done(e)
	}
	r := readRun(row)
	told := r.api()
	told.Parameters = r.parameters()
	if err := s.o.Blueprints.Finished(s.ctx, r.d.Blueprint.Finish, told); err != nil {
		return err
	}
	return s.done(e)
}

// findErrands plans the stored ones.
func (s *Service) findErrands(ctx context.Context) error {
	all, err := s.o.Store.WaitingCallbacks(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, cb := range all {
		if cb.Parent != "" {
			continue
		}
		e := errand{kind: readCallback(cb).Errand, session: cb.Child, run: cb.Run, n: cb.N}
		if s.due[e.key()] == nil {
			s.plan(e, now)
		}
	}
	return nil
}

// errNothing says that there is nothing to tell a session, or that it can't be told now:
// the end of its next run has it looked at again.
var errNothing = errors.New("nothing to tell")

// deliver resumes a session with what waits for it.
func (s *Service) deliver(ctx context.Context, id string) error {
	var parent *session
	var waiting []store.Callback
	err := s.change(ctx, func(c *change) (err error) {
		parent, waiting, err = c.toTell(id)
		return err
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	if in, err := s.o.Admits(ctx, parent.Owner, parent.d.Pinned); err != nil {
		return err
	} else if !in {
		s.o.Log.Warn("an agent is not told how others ended, as its owner may not come in any more", "session", parent.ID, "owner", parent.Owner)
		return nil // until the owner may
	}
	parameters, err := s.told(ctx, parent, callbackPrompt(waiting))
	if err != nil {
		return err
	}
	o := order{callback: true, parameters: parameters}
	// What waits for the run that has started the child waits for this one, too.
	starter, ok, err := s.o.Store.Run(ctx, readCallback(waiting[0]).ParentRun)
	if err != nil {
		return err
	}
	if ok {
		from := readRun(starter)
		o.parent, o.parentRun, o.parentAgent, o.mode = from.Parent, from.d.ParentRun, from.d.ParentAgent, from.d.Mode
		o.trace = from.d.Trace.context()
	}
	_, err = s.resume(ctx, parent, o, func(c *change, r *run) error {
		_, now, err := c.toTell(id)
		if err != nil {
			return err
		}
		still := make(map[int64]bool, len(now))
		for _, cb := range now {
			still[cb.N] = true
		}
		for _, cb := range waiting {
			if !still[cb.N] {
				return errNothing
			}
			if starter := readCallback(cb).ParentRun; !slices.Contains(r.d.Tells, starter) {
				r.d.Tells = append(r.d.Tells, starter)
			}
			cb.Carrier = r.ID
			if err := c.PutCallback(cb); err != nil {
				return err
			}
		}
		r.d.Carries = true
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if no := (*refusal)(nil); errors.As(err, &no) {
		return s.refuse(ctx, parent, waiting, no)
	}
	return err
}

// refuse counts that a hook has refused a run that would tell a session something, which
// then waits for another run of the session.
func (s *Service) refuse(ctx context.Context, parent *session, waiting []store.Callback, why *refusal) error {
	s.o.Log.Warn("a hook refuses that an agent is told how others ended; it is told after another run of its session", "session", parent.ID, "agent", parent.Agent, "err", why)
	return s.change(ctx, func(c *change) error {
		for _, cb := range waiting {
			d := readCallback(cb)
			d.Attempts = deliverTries
			cb.Data = encode(d)
			if err := c.PutCallback(cb); err != nil {
				return err
			}
		}
		return nil
	})
}

// told are the parameters of a run that tells callbacks: a prompt, beside what the session
// was started with, which placeholders of its blueprint may want.
func (s *Service) told(ctx context.Context, parent *session, prompt string) (map[string]any, error) {
	first, _, err := s.o.Store.Run(ctx, parent.d.First)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(readRun(first).d.Job.Parameters)
	if all == nil {
		all = make(map[string]any)
	}
	all["prompt"] = prompt
	return all, nil
}

// toTell returns a session that can be resumed, and what it is to be told.
func (c *change) toTell(id string) (*session, []store.Callback, error) {
	row, ok, err := c.AgentSession(id)
	if err != nil {
		return nil, nil, err
	}
	s := readSession(row)
	if !ok || s.State != api.AgentIdle || s.d.Closing || s.d.Held || s.damaged || s.d.Procedural {
		return nil, nil, errNothing
	}
	if last, ok, err := c.Run(s.d.Run); err != nil {
		return nil, nil, err
	} else if ok && last.State == api.RunStopped {
		return nil, nil, errNothing
	}
	all, err := c.Callbacks(id)
	if err != nil {
		return nil, nil, err
	}
	var out []store.Callback
	size := 0
	for _, cb := range all {
		d := readCallback(cb)
		if cb.Carrier != "" || d.Attempts >= deliverTries {
			continue
		}
		size += min(len(d.Text)+len(d.Data), mostCallbackText)
		if len(out) == mostCallbacks || len(out) > 0 && size > mostCallbackTexts {
			break
		}
		out = append(out, cb)
	}
	if len(out) == 0 {
		return nil, nil, errNothing
	}
	return s, out, nil
}
