package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// Labels of sessions that are instances.
const (
	labelServer  = "orchestrator/server"  // the one that it is an instance of
	labelSession = "orchestrator/session" // the caller's own name for what it belongs to
)

// noInstance is the answer for an instance that is not there, for one of
// somebody else, and for a session that is none.
func noInstance(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no instance " + clip(id) + " of yours"}
}

// wasRemoved is the answer for one that is gone, to whom it belonged.
func wasRemoved(s api.Session) error {
	message := "instance " + s.ID + " was removed at " + s.Closed.UTC().Format(time.RFC3339)
	if s.Reason != "" {
		message += ": " + s.Reason
	}
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: message}
}

// instance finds one, and its server, for somebody who wants to act on it.
func (g *Gateway) instance(ctx context.Context, who identity.Principal, id string) (*session.Session, string, error) {
	s, was, err := g.seenInstance(ctx, who, id)
	switch {
	case err != nil:
		return nil, "", err
	case s == nil:
		return nil, "", wasRemoved(was)
	case !mayUse(who, s.Owner, id):
		return nil, "", access.Need(who, api.RoleOperator)
	}
	return s, was.Labels[labelServer], nil
}

// seenInstance finds one, there or removed, for somebody who wants to look at
// it. The session is nil when it is removed.
func (g *Gateway) seenInstance(ctx context.Context, who identity.Principal, id string) (*session.Session, api.Session, error) {
	s, was, err := g.seen(ctx, who, id)
	if e := asErrorOrNil(err); e != nil && e.Status == http.StatusNotFound {
		return nil, was, noInstance(id)
	}
	if err != nil {
		return nil, was, err
	}
	// Labels are the owner's to change.
	server := was.Labels[labelServer]
	if server == "" || s != nil && s.Catalog().Entry(server) == nil {
		return nil, was, noInstance(id)
	}
	return s, was, nil
}

func asErrorOrNil(err error) *api.Error {
	if err == nil {
		return nil
	}
	return asError(err)
}

// shownInstance is an instance as it is answered, made of its session.
func shownInstance(s api.Session, token string) api.Instance {
	server := s.Labels[labelServer]
	out := api.Instance{
		ID: s.ID, Instance: s.ID, Token: token, URL: s.URL + "/" + server,
		Details: api.InstanceDetails{
			Server: server, Session: s.Labels[labelSession], Parent: s.Parent, Snapshot: s.From,
			Created: s.Created, Expires: s.Expires, Idle: s.Idle,
		},
	}
	for _, m := range s.Members {
		if m.Server == server {
			d := &out.Details
			d.Driver, d.State, d.Reason, d.Fork = m.Driver, m.State, m.Reason, m.Fork
		}
	}
	return out
}

func (g *Gateway) getInstance(a *ask, _ none) (api.Instance, error) {
	id := a.args["instance"]
	s, was, err := g.seenInstance(a.ctx(), a.who, id)
	if err != nil {
		return api.Instance{}, err
	}
	if s == nil {
		return api.Instance{}, wasRemoved(was)
	}
	return shownInstance(g.shown(a, was), ""), nil
}

type instanceQuery struct {
	Session  string `query:"session_id" doc:"only those that were made with this session_id"`
	Resource string `query:"resource_type_identifier" doc:"only those of this server"`
	Limit    int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most; a page may be short and not the last"`
	After    string `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listInstances(a *ask, q instanceQuery) (api.InstanceList, error) {
	f := store.SessionFilter{Before: q.After, Limit: int(q.Limit)}
	if !a.who.Is(api.RoleViewer) {
		f.Owner = &a.who.Name
	}
	page, err := g.pickSessions(a, f, func(s api.Session) bool {
		server := s.Labels[labelServer]
		return server != "" && (q.Resource == "" || q.Resource == server) && (q.Session == "" || q.Session == s.Labels[labelSession])
	})
	out := api.InstanceList{Instances: make([]api.Instance, 0, len(page.Sessions)), Next: page.Next}
	for _, s := range page.Sessions {
		out.Instances = append(out.Instances, shownInstance(s, ""))
	}
	return out, err
}

// deleteInstance answers a second time as it did the first: whoever did not hear
// the answer asks again, and wants to know that it is gone. What nobody
// remembers any more is not found, which says the same.
func (g *Gateway) deleteInstance(a *ask, _ none) (none, error) {
	id := a.args["instance"]
	if _, _, err := g.seenInstance(a.ctx(), a.who, id); err != nil {
		return none{}, err
	}
	a.args["session"] = id
	return none{}, g.closeWith(a, g.endSession)
}

func (g *Gateway) callInstance(a *ask, in api.InstanceCall) (rawJSON, error) {
	s, server, err := g.instance(a.ctx(), a.who, a.args["instance"])
	if err != nil {
		return nil, err
	}
	params, err := askedCall(in.Tool, in.Arguments, nil)
	if err != nil {
		return nil, err
	}
	if e := g.enter(a.who, 1); e != nil {
		return nil, e
	}
	defer g.leave(a.who, 1)
	s.Touch()
	x := g.exchangeWith(a, s, server, wire.MethodCallTool)
	x.params, x.trace = params, g.parentOf(a.r.Header, &params)
	res, err := x.answer(a.ctx())
	return rawJSON(res), err
}

// isNull reports whether an optional value was left out, or is null, as some
// write it.
func isNull(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// exchangeWith is a request to an instance by somebody without a connection.
func (g *Gateway) exchangeWith(a *ask, s *session.Session, server, method string) *exchange {
	return &exchange{
		g: g, who: a.who, view: view{server: server}, sess: s, client: &upstream.Client{Key: newClientID()}, method: method, from: a.r,
	}
}

func (g *Gateway) listInstanceTools(a *ask, _ none) (rawJSON, error) {
	s, server, err := g.instance(a.ctx(), a.who, a.args["instance"])
	if err != nil {
		return nil, err
	}
	s.Touch()
	out, err := g.exchangeWith(a, s, server, wire.MethodListTools).ownTools(a.ctx())
	return rawJSON(out), err
}
