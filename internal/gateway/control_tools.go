package gateway

import (
	"context"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/session"
)

// What servers inside the gateway do to sessions: each of these is a route of the
// control API, for the caller behind a handle. An empty session is the one that
// the call is made in, and an empty key none.

// Open opens a session.
func (c *Control) Open(ctx context.Context, caller, key string, in api.NewSession) (api.OpenedSession, error) {
	return act(c, caller, "openSession", "", func(d *callerAction) (api.OpenedSession, error) {
		out, err := d.g.services.Sessions.Open(ctx, d.request(key), in)
		if err == nil {
			d.opened(&out)
		}
		return out, err
	})
}

// opened says where a session is reached that a call has opened, and hides its token.
func (d *callerAction) opened(s *api.OpenedSession) {
	d.g.setURL(d.call.from, &s.Session)
	s.Token = d.call.hide(s.Token)
}

// Fork forks a session.
func (c *Control) Fork(ctx context.Context, caller, session, key string, in api.ForkRequest) (api.Forks, error) {
	return act(c, caller, "forkSession", session, func(d *callerAction) (api.Forks, error) {
		out, err := d.g.services.Sessions.Fork(ctx, d.request(key), d.session, in)
		for i := range out.Sessions {
			d.opened(&out.Sessions[i])
		}
		return out, err
	})
}

// Snapshot freezes a session.
func (c *Control) Snapshot(ctx context.Context, caller, session string, in api.SnapshotRequest) (api.Snapshot, error) {
	return act(c, caller, "makeSnapshot", session, func(d *callerAction) (api.Snapshot, error) {
		return d.g.services.Snapshots.Make(ctx, d.request(""), d.session, in)
	})
}

// Rewind brings a session back to a snapshot.
func (c *Control) Rewind(ctx context.Context, caller, session string, in api.RewindRequest) (api.Session, error) {
	return act(c, caller, "rewindSession", session, func(d *callerAction) (api.Session, error) {
		s, err := d.g.services.Sessions.Rewind(ctx, d.request(""), d.session, in)
		d.g.setURL(d.call.from, &s)
		return s, err
	})
}

// Close closes a session, which may be the one that the call is made in. It wants the id:
// default is a name that a model may guess, and a person's memory would be gone with it.
func (c *Control) Close(ctx context.Context, caller, id string) error {
	_, err := act(c, caller, "closeSession", id, func(d *callerAction) (none, error) {
		if !session.IsID(id) {
			return none{}, invalid("session %s is durable and is not closed by its name here; a person can: tine session close %s", id, id)
		}
		var end func(context.Context, *session.Session) error
		if d.session == d.call.session {
			end = func(ctx context.Context, s *session.Session) error { return d.g.closeAround(ctx, d.call, s) }
		}
		return none{}, d.g.services.Sessions.Close(ctx, d.request(""), d.session, end)
	})
	return err
}

// List gives a page of open sessions: those with all of the labels, and with a
// parent its forks. A limit of zero is the usual one.
func (c *Control) List(ctx context.Context, caller, parent string, labels map[string]string, limit int, after string) (api.SessionList, error) {
	page := control.Page{Limit: limit, After: after}
	switch {
	case limit == 0:
		page.Limit = usualLimit
	case limit < 1 || limit > mostLimit:
		return api.SessionList{}, invalid("limit must be a number from 1 to %d", mostLimit)
	}
	if _, call, err := c.of(caller); err == nil && parent != "" && call.who.Session != "" && len(labels) == 0 {
		// A caller with a session's token may list its forks alone.
		return act(c, caller, "listForks", parent, func(d *callerAction) (api.SessionList, error) {
			return d.withURLs(d.g.services.Sessions.Forks(ctx, d.who, d.session, false, page))
		})
	}
	return act(c, caller, "listSessions", "", func(d *callerAction) (api.SessionList, error) {
		if err := api.ValidLabels(labels); err != nil {
			return api.SessionList{}, err
		}
		return d.withURLs(d.g.services.Sessions.List(ctx, d.who, control.SessionFilter{Parent: parent, Labels: labels, Page: page}))
	})
}

// How many of a list there are usually, and at most.
const (
	usualLimit = 100
	mostLimit  = 1000
)

func (d *callerAction) withURLs(list api.SessionList, err error) (api.SessionList, error) {
	for i := range list.Sessions {
		d.g.setURL(d.call.from, &list.Sessions[i])
	}
	return list, err
}
