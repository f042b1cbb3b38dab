package agent

import (
	"context"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// A StopRun names the run to stop. Below stops what agents have started below its
// session as well, and has none of them resumed by callbacks.
type StopRun struct {
	Run   string
	Below bool
}

// Stop stops a run: one that no runner has at once, another one as soon as its runner has
// ended its program. One that is stopping or has ended stays as it is.
func (s *Service) Stop(ctx context.Context, who identity.Principal, in StopRun) (api.StoppedRun, error) {
	r, l, err := s.runAt(ctx, who, in.Run)
	if err != nil {
		return api.StoppedRun{}, err
	}
	if err := s.mayAct(ctx, who, l); err != nil {
		return api.StoppedRun{}, err
	}
	err = s.change(ctx, func(c *change) (err error) {
		if r, err = c.run(in.Run); err != nil {
			return err
		}
		if in.Below {
			sess, err := c.session(r.Session)
			if err != nil {
				return err
			}
			if err := c.hold(sess); err != nil {
				return err
			}
		}
		return c.stop(r, by(who))
	})
	if err != nil {
		return api.StoppedRun{}, err
	}
	out := api.StoppedRun{Run: r.api()}
	if in.Below {
		err = s.eachBelow(ctx, r.Session, func(c *change, child *session) error {
			if err := c.hold(child); err != nil {
				return err
			}
			r, err := c.liveRun(child)
			if err != nil || r == nil {
				return err
			}
			c.after = append(c.after, func() { out.Below = append(out.Below, r.api()) })
			return c.stop(r, by(who))
		})
	}
	return out, err
}

// hold has a session told nothing until it is resumed.
func (c *change) hold(sess *session) error {
	if sess.damaged || sess.ended() {
		return nil
	}
	sess.d.Held = true
	return c.putSession(sess)
}

// by names a caller to those who read what has stopped a run.
func by(who identity.Principal) string {
	switch {
	case who.Run != "":
		return "run " + who.Run
	case who.Name != "":
		return who.Name
	}
	return "a caller without a name"
}

func (c *change) stop(r *run, by string) error {
	if r.ended() || r.State == api.RunStopping {
		return nil
	}
	r.d.Stopped = by
	if r.State == api.RunPending {
		return c.end(r, api.RunStopped, nil, nil)
	}
	if err := c.move(r, api.RunStopping); err != nil {
		return err
	}
	return c.put(r)
}

// eachBelow changes the sessions below one that have not ended, the nearest first. Those
// below a session are looked up after it was changed, so that it has started no other one
// since.
func (s *Service) eachBelow(ctx context.Context, id string, do func(*change, *session) error) error {
	for queue := []string{id}; len(queue) > 0; queue = queue[1:] {
		f := store.AgentFilter{Parent: queue[0], Limit: pageSize}
		for {
			page, err := s.o.Store.AgentSessions(ctx, f)
			if err != nil {
				return err
			}
			for _, row := range page {
				queue = append(queue, row.ID)
				if readSession(row).ended() {
					continue
				}
				err := s.change(ctx, func(c *change) error {
					child, err := c.session(row.ID)
					if err != nil {
						return err
					}
					return do(c, child)
				})
				if err != nil {
					return err
				}
			}
			if len(page) < pageSize {
				break
			}
			f.Before = page[pageSize-1].ID
		}
	}
	return nil
}

// A CloseSession names the agent session to close. Below closes those below it as well.
type CloseSession struct {
	Session string
	Below   bool
}

// Shut ends an agent session, and closes the session that is its world. A run in it is
// stopped first; the session ends with that.
func (s *Service) Shut(ctx context.Context, who identity.Principal, in CloseSession) (api.AgentSession, error) {
	sess, l, err := s.sessionAt(ctx, who, in.Session)
	if err != nil {
		return api.AgentSession{}, err
	}
	if err := s.mayAct(ctx, who, l); err != nil {
		return api.AgentSession{}, err
	}
	err = s.change(ctx, func(c *change) (err error) {
		if sess, err = c.session(in.Session); err != nil {
			return err
		}
		sess, err = c.closeSession(sess, by(who))
		return err
	})
	if err != nil {
		return api.AgentSession{}, err
	}
	if in.Below {
		err = s.eachBelow(ctx, sess.ID, func(c *change, child *session) error {
			_, err := c.closeSession(child, by(who))
			return err
		})
	}
	return sess.api(), err
}

// WorldClosed has an agent session end whose world was closed by other means. A session
// that is no agent's is no error.
func (s *Service) WorldClosed(ctx context.Context, id string) error {
	if _, ok, err := s.o.Store.AgentSession(ctx, id); err != nil || !ok {
		return err
	}
	return s.change(ctx, func(c *change) error {
		sess, err := c.session(id)
		if err == nil {
			_, err = c.closeSession(sess, "the end of its session")
		}
		return err
	})
}

// closeSession ends a session, or has it end with its run. It returns the session as it
// is then.
func (c *change) closeSession(sess *session, by string) (*session, error) {
	if sess.ended() {
		return sess, nil
	}
	sess.d.Closing = true
	r, err := c.liveRun(sess)
	if err != nil {
		return nil, err
	}
	if r != nil {
		if err := c.putSession(sess); err != nil {
			return nil, err
		}
		if err := c.stop(r, by); err != nil {
			return nil, err
		}
		return c.session(sess.ID)
	}
	state := api.RunCompleted
	last, ok, err := c.Run(sess.d.Run)
	if err != nil {
		return nil, err
	}
	if ok {
		state = last.State
	}
	if err := c.moveSession(sess, endState(state)); err != nil {
		return nil, err
	}
	return sess, c.putSession(sess)
}
