package gateway

import (
	"context"
	"net/url"
	"strconv"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
)

// What servers inside the gateway do to sessions: each of these is a route of the
// control API, for whoever the handle of a caller stands for. An empty session is
// the one that the call is made in, and an empty key none.

// Open opens a session.
func (c *Control) Open(ctx context.Context, caller, key string, in api.NewSession) (api.OpenedSession, error) {
	return actOnce(ctx, c, caller, "openSession", "", key, func(g *Gateway, call *controlCall, a *ask) (api.OpenedSession, error) {
		out, err := g.openSession(a, in)
		if err == nil {
			out.Token = call.hide(out.Token)
		}
		return out, err
	})
}

// Fork forks a session.
func (c *Control) Fork(ctx context.Context, caller, session, key string, in api.ForkRequest) (api.Forks, error) {
	return actOnce(ctx, c, caller, "forkSession", session, key, func(g *Gateway, call *controlCall, a *ask) (api.Forks, error) {
		out, err := g.forkSession(a, in)
		for i := range out.Sessions {
			out.Sessions[i].Token = call.hide(out.Sessions[i].Token)
		}
		return out, err
	})
}

// Snapshot freezes a session.
func (c *Control) Snapshot(ctx context.Context, caller, session string, in api.SnapshotRequest) (api.Snapshot, error) {
	return act(ctx, c, caller, "makeSnapshot", session, func(g *Gateway, _ *controlCall, a *ask) (api.Snapshot, error) {
		return g.makeSnapshot(a, in)
	})
}

// Rewind brings a session back to a snapshot.
func (c *Control) Rewind(ctx context.Context, caller, session string, in api.RewindRequest) (api.Session, error) {
	return act(ctx, c, caller, "rewindSession", session, func(g *Gateway, _ *controlCall, a *ask) (api.Session, error) {
		return g.rewindSession(a, in)
	})
}

// Close closes a session, which may be the one that the call is made in. It wants the id:
// default is a name that a model may guess, and a person's memory would be gone with it.
func (c *Control) Close(ctx context.Context, caller, id string) error {
	_, err := act(ctx, c, caller, "closeSession", id, func(g *Gateway, call *controlCall, a *ask) (none, error) {
		if !session.IsID(id) {
			return none{}, invalid("session %s is durable and is not closed by its name here; a person can: tine session close %s", id, id)
		}
		end := g.endSession
		if a.args["session"] == call.session {
			end = func(ctx context.Context, s *session.Session) error { return g.closeAround(ctx, call, s) }
		}
		return none{}, g.closeWith(a, end)
	})
	return err
}

// List gives a page of open sessions: those with all of the labels, and with a
// parent its forks. A limit of zero is the usual one.
func (c *Control) List(ctx context.Context, caller, parent string, labels map[string]string, limit int, after string) (api.SessionList, error) {
	values := url.Values{"after": {after}}
	if limit != 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	if _, call, err := c.of(caller); err == nil && parent != "" && call.who.Session != "" && len(labels) == 0 {
		// All that whoever has a session's token may list are its forks.
		return act(ctx, c, caller, "listForks", parent, func(g *Gateway, _ *controlCall, a *ask) (api.SessionList, error) {
			var q forkQuery
			if err := readQuery(values, &q); err != nil {
				return api.SessionList{}, err
			}
			return g.listForks(a, q)
		})
	}
	return act(ctx, c, caller, "listSessions", "", func(g *Gateway, _ *controlCall, a *ask) (api.SessionList, error) {
		if err := api.ValidLabels(labels); err != nil {
			return api.SessionList{}, err
		}
		values.Set("parent", parent)
		for k, v := range labels {
			values.Add("label", k+"="+v)
		}
		var q sessionQuery
		if err := readQuery(values, &q); err != nil {
			return api.SessionList{}, err
		}
		return g.listSessions(a, q)
	})
}
