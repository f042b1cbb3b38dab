package agent

import (
	"context"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// admitted refuses a run for an owner that may not come in any more.
func (s *Service) admitted(ctx context.Context, sess *session) error {
	ok, err := s.o.Admits(ctx, sess.Owner, sess.d.Pinned)
	if err == nil && !ok {
		err = refused(http.StatusForbidden, false, "the owner of session "+sess.ID+" is refused: its token was revoked, has expired or is unconfirmed, and its agents do nothing as long as that is so")
	}
	return err
}

// Readmit has agents follow who may come in by now: runs are stopped whose owner may not,
// and sessions that are to be told something are looked at again.
func (s *Service) Readmit(ctx context.Context) error {
	s.mu.Lock()
	runs := make(map[string]string, len(s.live)) // their sessions
	for id, l := range s.live {
		runs[id] = l.session
	}
	s.mu.Unlock()
	for id, session := range runs {
		row, ok, err := s.o.Store.AgentSession(ctx, session)
		if err != nil {
			return err
		}
		sess := readSession(row)
		if !ok || sess.damaged {
			continue
		}
		if in, err := s.o.Admits(ctx, sess.Owner, sess.d.Pinned); err != nil {
			return err
		} else if in {
			continue
		}
		s.o.Log.Warn("a run is stopped, as its owner may not come in any more", "run", id, "owner", sess.Owner)
		err = s.change(ctx, func(c *change) error {
			r, err := c.run(id)
			if err != nil {
				return err
			}
			return c.stop(r, "the end of its owner's access")
		})
		if err != nil {
			return err
		}
	}
	waiting, err := s.o.Store.WaitingCallbacks(ctx)
	if err != nil {
		return err
	}
	s.tellAll(waiting)
	return nil
}

// tellAll has the sessions looked at that callbacks wait for.
func (s *Service) tellAll(waiting []store.Callback) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cb := range waiting {
		if cb.Parent != "" {
			s.plan(errand{kind: errandTell, session: cb.Parent}, time.Now())
		}
	}
}
