package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// NewRun is a request for a run.
type NewRun struct {
	api.NewRun
	// Key makes a repeated request give the same run; empty for none.
	Key string
	// Trace is what the request is part of; empty for nothing.
	Trace telemetry.Parent
}

// Start accepts a run of a new agent session, or of the one that the request names. What
// it returns is in the store.
func (s *Service) Start(ctx context.Context, who identity.Principal, in NewRun) (api.Run, error) {
	if in.Session != "" {
		return s.Resume(ctx, who, in)
	}
	o, parent, err := s.order(ctx, who, in)
	if err != nil {
		return api.Run{}, err
	}
	if err := mayStart(parent, in.Agent); err != nil {
		return api.Run{}, err
	}
	id, old, err := s.runID(ctx, o)
	if err != nil || old != nil {
		return shown(old), err
	}
	sess := &session{AgentSession: store.AgentSession{ID: newID("ses_"), Agent: in.Agent, Owner: who.Name}}
	if parent == nil {
		sess.d.Pinned = identity.Pin(who)
	} else if err := s.inherit(ctx, sess, parent, &o); err != nil {
		return api.Run{}, err
	}
	sess.d.Labels = o.labels
	r, res, err := s.prepare(ctx, o, id, sess, false)
	if err != nil {
		return api.Run{}, err
	}
	sess.Agent, r.Agent = res.Name, res.Name
	err = s.change(ctx, func(c *change) error {
		if old, err = c.keyed(o); err != nil || old != nil {
			return err
		}
		if parent != nil {
			if err := c.admitChild(parent.ID); err != nil {
				return err
			}
		}
		if err := c.moveSession(sess, api.AgentPending); err != nil {
			return err
		}
		sess.Created = c.born()
		return c.accept(sess, r, res)
	})
	if err != nil {
		return api.Run{}, err
	}
	if old != nil {
		return shown(old), nil
	}
	return r.api(), nil
}

// Resume accepts a run of an agent session that is idle.
func (s *Service) Resume(ctx context.Context, who identity.Principal, in NewRun) (api.Run, error) {
	sess, l, err := s.sessionAt(ctx, who, in.Session)
	if err != nil {
		return api.Run{}, err
	}
	if err := s.mayAct(ctx, who, l); err != nil {
		return api.Run{}, err
	}
	if in.Agent != "" && in.Agent != sess.Agent {
		return api.Run{}, control.Invalid("session %s is one of agent %s, not of %s; leave agent out", sess.ID, sess.Agent, control.Clip(in.Agent))
	}
	if in.Agent = ""; in.ProjectDir != "" && in.ProjectDir != sess.d.ProjectDir {
		return api.Run{}, control.Invalid("project_dir: session %s works in %q for good; leave it out", sess.ID, sess.d.ProjectDir)
	}
	in.ProjectDir = ""
	o, _, err := s.order(ctx, who, in)
	if err != nil {
		return api.Run{}, err
	}
	return s.resume(ctx, sess, o, nil)
}

// resume accepts a run of a session. also has a part in the transaction; nil for nothing.
func (s *Service) resume(ctx context.Context, sess *session, o order, also func(*change, *run) error) (api.Run, error) {
	id, old, err := s.runID(ctx, o)
	if err != nil || old != nil {
		return shown(old), err
	}
	if err := resumable(sess); err != nil {
		return api.Run{}, err
	}
	r, res, err := s.prepare(ctx, o, id, sess, true)
	if err != nil {
		return api.Run{}, err
	}
	if res.Procedural {
		return api.Run{}, noResume(sess)
	}
	err = s.change(ctx, func(c *change) error {
		if old, err = c.keyed(o); err != nil || old != nil {
			return err
		}
		if also != nil {
			if err := also(c, r); err != nil {
				return err
			}
		}
		now, err := c.session(sess.ID)
		if err != nil {
			return err
		}
		if err := resumable(now); err != nil {
			return err
		}
		if now.d.Runs >= r.d.Limits.Runs {
			if o.callback {
				s.o.Log.Warn("an agent is not told how others ended: its session has had all the runs that it may have", "session", now.ID, "runs", now.d.Runs)
				return errNothing
			}
			return refused(http.StatusConflict, false, fmt.Sprintf("session %s has had %d runs, which is the limit (agents.runs, or limits.runs of its blueprint); start a new session", now.ID, now.d.Runs))
		}
		if o.parentRun != "" && !o.callback {
			if err := c.admitChild(o.parentRun); err != nil {
				return err
			}
		}
		if err := c.moveSession(now, api.AgentRunning); err != nil {
			return err
		}
		return c.accept(now, r, res)
	})
	if err != nil {
		return api.Run{}, err
	}
	if old != nil {
		return shown(old), nil
	}
	return r.api(), nil
}

func resumable(s *session) error {
	switch {
	case s.damaged:
		return damaged("agent session", s.ID)
	case s.ended():
		return &api.Error{Kind: api.KindInvalid, Status: http.StatusGone, Message: "agent session " + s.ID + " has ended (" + s.State + "); start a new one"}
	case s.d.Closing:
		return refused(http.StatusConflict, false, "agent session "+s.ID+" is being closed; start a new one")
	case s.d.Procedural:
		return noResume(s)
	case s.State != api.AgentIdle:
		return refused(http.StatusConflict, true, "agent session "+s.ID+" is busy with run "+s.d.Run+"; wait for its end, or stop it")
	}
	return nil
}

func noResume(s *session) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusBadRequest, Code: api.CodeNoResume,
		Message: "agent " + s.Agent + " is procedural: a program does its work, which can't be resumed; start a new session"}
}

// accept writes a run that is new, with its session.
func (c *change) accept(s *session, r *run, res Resolved) error {
	c.s.mu.Lock()
	full := len(c.s.live) >= c.s.o.Queue
	c.s.mu.Unlock()
	if full {
		return refused(http.StatusServiceUnavailable, true, fmt.Sprintf("there are %d runs that have not ended, which is all that there may be; try again later", c.s.o.Queue))
	}
	s.d.Run, s.d.Runs, s.d.Scope, s.d.Procedural, s.d.Held = r.ID, s.d.Runs+1, res.Scope, res.Procedural, false
	if s.d.First == "" {
		s.d.First = r.ID
	}
	r.d.Trace.After, s.d.Span = s.d.Span, r.d.Trace.Span.Traceparent
	r.Created, r.Until = c.born(), c.now.Add(c.s.bounds.Load().Match)
	if err := c.putSession(s); err != nil {
		return err
	}
	if err := c.move(r, api.RunPending); err != nil {
		return err
	}
	return c.put(r)
}

// born is the time of something new, which is after all others, so that the order of
// creation is known.
func (c *change) born() time.Time {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	at := c.now
	if !at.After(c.s.last) {
		at = c.s.last.Add(time.Nanosecond)
	}
	c.s.last = at
	return at
}

// admitChild refuses a run that a parent may not start now.
func (c *change) admitChild(parent string) error {
	p, err := c.run(parent)
	if err != nil {
		return err
	}
	if err := active(p); err != nil {
		return err
	}
	most := p.d.Limits.Children
	there, err := c.Runs(store.RunFilter{Parent: p.Session, States: liveStates, Limit: most})
	if err != nil {
		return err
	}
	if len(there) >= most {
		return refused(http.StatusTooManyRequests, true, fmt.Sprintf("%d agents that this one has started are at work, which is the limit (agents.children, or limits.children of its blueprint); wait for one of them", most))
	}
	return nil
}

// inherit gives a new session what it has of its parent.
func (s *Service) inherit(ctx context.Context, child *session, parent *run, o *order) error {
	row, ok, err := s.o.Store.AgentSession(ctx, parent.Session)
	if err != nil {
		return err
	}
	if !ok {
		return noSession(parent.Session)
	}
	p := readSession(row)
	if p.damaged {
		return damaged("agent session", p.ID)
	}
	room := parent.d.Limits.Depth - 1
	if room < 0 {
		return refused(http.StatusForbidden, false, "the agent is as many generations below the first as there may be (agents.depth, or limits.depth of a blueprint), so it starts no others")
	}
	child.Parent, child.Owner, child.d.Pinned, child.d.Room = p.ID, p.Owner, p.d.Pinned, &room
	child.d.Scope = p.d.Scope
	labels := maps.Clone(p.d.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	maps.Copy(labels, o.labels)
	if err := api.ValidLabels(labels); err != nil {
		return err
	}
	o.labels = labels
	if o.projectDir == "" {
		o.projectDir = p.d.ProjectDir
	} else if o.projectDir = real(o.projectDir); p.d.ProjectDir == "" || !within(o.projectDir, real(p.d.ProjectDir)) {
		return refused(http.StatusForbidden, false, "project_dir: an agent that another one starts works in the folder of that one, or below it")
	}
	return nil
}

// mayStart refuses an agent that a parent's blueprint does not name. An agent that may
// start itself is bounded by its depth.
func mayStart(parent *run, agent string) error {
	if parent == nil {
		return nil
	}
	for _, pattern := range parent.d.Blueprint.Agents {
		if blueprint.Matches(pattern, agent) {
			return nil
		}
	}
	return refused(http.StatusForbidden, false, "agent "+parent.Agent+" may not start agent "+control.Clip(agent)+"; its blueprint names those that it may start in agents")
}

// needFolder refuses a folder of the runner's machine to callers that are not the
// machine's people.
func needFolder(who identity.Principal, dir string) error {
	if dir == "" || who.Run != "" {
		return nil
	}
	if err := access.Need(who, api.RoleOperator); err != nil {
		return refused(http.StatusForbidden, false, "project_dir: only an operator gives a run a folder of the gateway's machine; leave it out, and the run works in a folder of its session")
	}
	return nil
}
