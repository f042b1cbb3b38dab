package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// Instances is what the orchestration API can do. An instance is a session with one
// server, whose labels say so.
type Instances struct {
	*core
	sessions  *Sessions
	snapshots *Snapshots
}

// Labels of sessions that are instances.
const (
	labelServer  = "orchestrator/server"  // the one that it is an instance of
	labelSession = "orchestrator/session" // the caller's own name for what it belongs to
)

// noInstance is the answer for an instance that is not there, for one of
// another principal, and for a session that is none.
func noInstance(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no instance " + Clip(id) + " of yours"}
}

// wasRemoved is the answer to the owner of an instance that is gone.
func wasRemoved(s api.Session) error {
	message := "instance " + s.ID + " was removed at " + s.Closed.UTC().Format(time.RFC3339)
	if s.Reason != "" {
		message += ": " + s.Reason
	}
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: message}
}

// Find finds one, and its server, for a principal that acts on it.
func (c *Instances) Find(ctx context.Context, who identity.Principal, id string) (*session.Session, string, error) {
	s, was, err := c.seen(ctx, who, id)
	switch {
	case err != nil:
		return nil, "", err
	case s == nil:
		return nil, "", wasRemoved(was)
	case !access.Uses(who, access.Thing{Owner: s.Owner, Session: id}):
		return nil, "", access.Need(who, api.RoleOperator)
	}
	return s, was.Labels[labelServer], nil
}

// seen finds one, there or removed, for a principal that looks at
// it. The session is nil when it is removed.
func (c *Instances) seen(ctx context.Context, who identity.Principal, id string) (*session.Session, api.Session, error) {
	s, was, err := c.sessions.Seen(ctx, who, id)
	var e *api.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
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

// shownInstance is an instance as it is answered, made of its session.
func shownInstance(s api.Session, token string) api.Instance {
	server := s.Labels[labelServer]
	out := api.Instance{
		ID: s.ID, Instance: s.ID, Token: token,
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

// Get is one instance that is there.
func (c *Instances) Get(ctx context.Context, who identity.Principal, id string) (api.Instance, error) {
	s, was, err := c.seen(ctx, who, id)
	if err != nil {
		return api.Instance{}, err
	}
	if s == nil {
		return api.Instance{}, wasRemoved(was)
	}
	return shownInstance(c.sessions.shown(who, was), ""), nil
}

// An InstanceFilter chooses instances. Zero fields choose all.
type InstanceFilter struct {
	Session string // the caller's own name for what they belong to
	Server  string
	Page
}

// List lists the instances that are there, the newest first.
func (c *Instances) List(ctx context.Context, who identity.Principal, f InstanceFilter) (api.InstanceList, error) {
	page, err := c.sessions.List(ctx, who, SessionFilter{Page: f.Page, Choose: func(s api.Session) bool {
		server := s.Labels[labelServer]
		return server != "" && (f.Server == "" || f.Server == server) && (f.Session == "" || f.Session == s.Labels[labelSession])
	}})
	out := api.InstanceList{Instances: make([]api.Instance, 0, len(page.Sessions)), Next: page.Next}
	for _, s := range page.Sessions {
		out.Instances = append(out.Instances, shownInstance(s, ""))
	}
	return out, err
}

// Delete removes an instance. It answers a second time as it did the first: a caller that
// did not hear the answer asks again, and wants to know that it is gone. What is not
// remembered any more is not found, which says the same.
func (c *Instances) Delete(ctx context.Context, r Request, id string) error {
	if _, _, err := c.seen(ctx, r.Who, id); err != nil {
		return err
	}
	return c.sessions.Close(ctx, r, id, nil)
}
