package agent

import (
	"context"
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// mostGenerations bounds a walk from a session to those that it comes from.
const mostGenerations = 64

// noRun is the answer for a run that is not there, and for one of another principal.
func noRun(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no run " + control.Clip(id) + " of yours"}
}

func noSession(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no agent session " + control.Clip(id) + " of yours"}
}

func refused(status int, retryable bool, message string) *api.Error {
	return &api.Error{Kind: api.KindRefused, Status: status, Retryable: retryable, Message: message}
}

// A look is how far a caller may go with a session of an agent: know of it, read what is
// in it, and act in it.
type look struct{ sees, reads, acts bool }

// at says how far a caller may go. A caller with a token of a session sees that one, and with
// a run's token also the sessions below, in which it may act.
func (s *Service) at(ctx context.Context, who identity.Principal, owner, session string) (look, error) {
	if uses := access.Uses(who, access.Thing{Owner: owner, Session: session}); uses || who.Session == "" {
		return look{access.Sees(who, access.Thing{Owner: owner, Session: session}), uses, uses && who.Session == ""}, nil
	}
	if who.Run == "" {
		return look{}, nil
	}
	id := session
	for range mostGenerations {
		row, ok, err := s.o.Store.AgentSession(ctx, id)
		if err != nil || !ok || row.Parent == "" {
			return look{}, err
		}
		id = row.Parent
		if access.Uses(who, access.Thing{Owner: row.Owner, Session: id}) {
			return look{true, true, true}, nil
		}
	}
	return look{}, nil
}

// runAt finds a run for a caller.
func (s *Service) runAt(ctx context.Context, who identity.Principal, id string) (*run, look, error) {
	row, ok, err := s.o.Store.Run(ctx, id)
	if err != nil {
		return nil, look{}, err
	}
	l := look{}
	if ok {
		if l, err = s.at(ctx, who, row.Owner, row.Session); err != nil {
			return nil, l, err
		}
	}
	if !l.sees {
		return nil, l, noRun(id)
	}
	return readRun(row), l, nil
}

func (s *Service) sessionAt(ctx context.Context, who identity.Principal, id string) (*session, look, error) {
	row, ok, err := s.o.Store.AgentSession(ctx, id)
	if err != nil {
		return nil, look{}, err
	}
	l := look{}
	if ok {
		if l, err = s.at(ctx, who, row.Owner, row.ID); err != nil {
			return nil, l, err
		}
	}
	if !l.sees {
		return nil, l, noSession(id)
	}
	return readSession(row), l, nil
}

// mayAct refuses a caller that may only look, and a run that is not under way.
func (s *Service) mayAct(ctx context.Context, who identity.Principal, l look) error {
	switch {
	case l.acts:
		_, err := s.caller(ctx, who)
		return err
	case who.Session != "":
		return refused(http.StatusForbidden, false, "an agent acts in the sessions of agents that it has started, and not in its own")
	}
	return access.Need(who, api.RoleOperator)
}

// Self is the run of the agent that asks, which has not ended.
func (s *Service) Self(ctx context.Context, who identity.Principal) (api.Run, error) {
	r, err := s.self(ctx, who)
	switch {
	case err != nil:
		return api.Run{}, err
	case r == nil:
		return api.Run{}, refused(http.StatusForbidden, false, "this is for the program of a run, with the run's own token")
	case r.ended():
		return api.Run{}, refused(http.StatusConflict, false, "run "+r.ID+" has ended: it is "+r.State)
	}
	return r.api(), nil
}

// caller is the run that a caller is, which must be under way; nil for one that is none.
func (s *Service) caller(ctx context.Context, who identity.Principal) (*run, error) {
	r, err := s.self(ctx, who)
	if err != nil || r == nil {
		return nil, err
	}
	return r, active(r)
}

// self is the run that a caller is; nil for one that is none.
func (s *Service) self(ctx context.Context, who identity.Principal) (*run, error) {
	if who.Run == "" {
		if who.Session != "" {
			return nil, refused(http.StatusForbidden, false, "this token is for one session, and starts no agents; use one of yours, or a run's")
		}
		return nil, nil
	}
	row, ok, err := s.o.Store.Run(ctx, who.Run)
	if err != nil {
		return nil, err
	}
	if !ok || who.Session != row.Session {
		return nil, refused(http.StatusForbidden, false, "the token is for another run or session")
	}
	r := readRun(row)
	if r.ended() { // the token of a program that goes on in a later run of the session
		live, err := s.o.Store.Runs(ctx, store.RunFilter{Session: row.Session, States: liveStates, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(live) > 0 {
			r = readRun(live[0])
		}
	}
	return r, nil
}

// active refuses a run that may not start others any more.
func active(r *run) error {
	if r.State == api.RunRunning || r.State == api.RunClaimed {
		return nil
	}
	return refused(http.StatusConflict, false, "run "+r.ID+" is "+r.State+", so it has no say over agents any more")
}

// below are the sessions that descend from one, at most so many.
func (s *Service) below(ctx context.Context, id string, most int) ([]store.AgentSession, error) {
	var all []store.AgentSession
	seen := map[string]bool{id: true}
	for queue := []string{id}; len(queue) > 0 && len(all) < most; queue = queue[1:] {
		children, err := s.o.Store.AgentSessions(ctx, store.AgentFilter{Parent: queue[0], Limit: most - len(all)})
		if err != nil {
			return nil, err
		}
		for _, child := range children {
			if !seen[child.ID] {
				seen[child.ID] = true
				all, queue = append(all, child), append(queue, child.ID)
			}
		}
	}
	return all, nil
}
