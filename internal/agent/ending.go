package agent

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// end ends a run, and does in the same transaction all that follows from it: the session
// is idle or ends, callbacks that the run carried wait again where it never began, and
// its parent is called back. A run that is being stopped was stopped, whatever it came to.
func (c *change) end(r *run, state string, result *api.RunResult, failure *api.Error) error {
	if r.State == api.RunStopping {
		state = api.RunStopped
	}
	r.d.Result, r.d.Error = result, failure
	if state == api.RunStopped && failure == nil && result == nil {
		r.d.Error = &api.Error{Kind: api.KindRefused, Message: "it was stopped by " + cmp.Or(r.d.Stopped, "the coordinator")}
	}
	if err := c.move(r, state); err != nil {
		return err
	}
	if len(r.d.Blueprint.Finish) > 0 {
		if err := c.leave(errandFinish, r.Session, r.ID); err != nil {
			return err
		}
	}
	if err := c.callBack(r); err != nil {
		return err
	}
	if err := c.put(r); err != nil {
		return err
	}
	s, ok, err := c.AgentSession(r.Session)
	if err != nil || !ok {
		return err
	}
	return c.settle(readSession(s), r)
}

// settle has a session go on after one of its runs.
func (c *change) settle(s *session, r *run) error {
	if err := c.returned(s, r); err != nil {
		return err
	}
	var err error
	switch {
	case s.State == api.AgentPending:
		err = c.moveSession(s, endState(r.State))
	case s.State == api.AgentRunning:
		if err = c.moveSession(s, api.AgentIdle); err == nil && s.d.Closing {
			err = c.moveSession(s, endState(r.State))
		}
	}
	if err != nil {
		return err
	}
	return c.putSession(s)
}

// began marks the first moment of a run in which its executor runs. What the run carries
// has been told by then.
func (c *change) began(r *run, s *session) error {
	if err := c.move(r, api.RunRunning); err != nil {
		return err
	}
	if s.State == api.AgentPending {
		if err := c.moveSession(s, api.AgentRunning); err != nil {
			return err
		}
	}
	if !r.d.Carries {
		return nil
	}
	all, err := c.Callbacks(r.Session)
	if err != nil {
		return err
	}
	for _, cb := range all {
		if cb.Carrier == r.ID {
			if err := c.DeleteCallback(cb.N); err != nil {
				return err
			}
		}
	}
	return nil
}

// returned looks at the callbacks of a session after one of its runs: those that the run
// carried, and did not come to tell, wait again, and what waits is delivered.
func (c *change) returned(s *session, r *run) error {
	all, err := c.Callbacks(s.ID)
	if err != nil || len(all) == 0 {
		return err
	}
	tries := 0
	for _, cb := range all {
		d := readCallback(cb)
		switch {
		case cb.Carrier == r.ID:
			cb.Carrier = ""
			d.Attempts++
		case !r.d.Carries && d.Attempts > 0:
			d.Attempts = 0 // another run went between: it may work now
		default:
			continue
		}
		tries = max(tries, d.Attempts)
		cb.Data = encode(d)
		if err := c.PutCallback(cb); err != nil {
			return err
		}
	}
	at := c.now
	if tries > 0 {
		at = at.Add(pause(tries))
	}
	c.poke(s.ID, at)
	return nil
}

// callBack leaves a callback for the parent of a run.
func (c *change) callBack(r *run) error {
	if r.Parent == "" || r.d.Mode != api.ModeAsyncCallback {
		return nil
	}
	parent, ok, err := c.AgentSession(r.Parent)
	if err != nil || !ok || readSession(parent).ended() {
		return err
	}
	d := callbackData{ParentRun: r.d.ParentRun, Status: api.RunFailed}
	if r.State == api.RunCompleted {
		d.Status = api.RunCompleted
	}
	if r.State != api.RunFailed && r.d.Result != nil {
		d.Text, d.Data = r.d.Result.Text, r.d.Result.Data
	}
	by := cmp.Or(r.d.Stopped, "the coordinator")
	switch {
	case r.State == api.RunStopped && r.d.Result != nil:
		d.Text = strings.TrimSpace(fmt.Sprintf("The run was stopped by %s, and has this result all the same:\n%s", by, d.Text))
	case r.State == api.RunStopped:
		d.Text = fmt.Sprintf("The run was stopped by %s before it had a result.", by)
	case r.State == api.RunFailed && r.d.Error != nil:
		d.Text = r.d.Error.Message
	}
	if err := c.PutCallback(store.Callback{Parent: r.Parent, Child: r.Session, Run: r.ID, At: c.now, Data: encode(d)}); err != nil {
		return err
	}
	c.poke(r.Parent, c.now)
	return nil
}
