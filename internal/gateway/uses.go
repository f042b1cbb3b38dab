package gateway

import (
	"context"
	"fmt"

	"github.com/tine-mcp/tine/internal/session"
)

// A caller that opens a session with a tool and then names none means that one.
// It is remembered where the caller can be recognized: with the client's
// connection, or with the session that only this connection has. Clients
// without a connection share their session with others, whose worlds they must
// not be given.

// clientRecord is what the store keeps of a client beside what all have.
type clientRecord struct {
	initParams
	Uses string `json:"tine/uses,omitempty"`
	// Token is the id of the further token of the session that it came with.
	Token string `json:"tine/token,omitempty"`
}

// use says which session the client means from now on where it names none.
func (c *client) use(ctx context.Context, id string) error {
	c.mu.Lock()
	before := c.uses
	c.uses = id
	c.mu.Unlock()
	if !c.durable || before == id {
		return nil
	}
	rec, err := c.record()
	if err == nil {
		err = c.g.o.Clients.PutClient(ctx, rec)
	}
	c.mu.Lock()
	closed := c.closed
	if err != nil && c.uses == id {
		c.uses = before
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("recording which session the client uses: %w", err)
	case closed && c.g.life.Err() == nil:
		// It was dismissed meanwhile, and must not come back.
		return c.g.o.Clients.DeleteClient(ctx, c.id)
	}
	return nil
}

func (c *client) usesSession() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uses
}

// Use says which session the caller's connection means from now on where it
// names none.
func (c *Control) Use(ctx context.Context, caller, id string) error {
	g, call, err := c.of(caller)
	if err != nil {
		return err
	}
	switch in := g.reg.Get(call.session); {
	case in == nil || in.Kind == session.KindOpened: // its callers mean it
	case in.Kind == session.KindClient:
		err = in.Use(ctx, id)
	case call.conn != nil:
		err = call.conn.use(ctx, id)
	}
	if err != nil {
		return g.clean(call.who, err)
	}
	return nil
}

// Which is the session that a call means: the one that it names, else that of the
// caller's token, of the request's URL or header, or the one that its connection
// opened; empty where there is none of these. Nothing says yet that the caller may
// use it, or that it is there.
func (c *Control) Which(_ context.Context, caller, named string) (string, error) {
	g, call, err := c.of(caller)
	switch {
	case err != nil || named != "":
		return named, err
	case call.who.Session != "":
		return call.who.Session, nil
	}
	switch in := g.reg.Get(call.session); {
	case in == nil:
		return call.session, nil // closed just now
	case in.Kind == session.KindOpened:
		return in.ID, nil
	case in.Kind == session.KindClient:
		return in.Uses(), nil
	case call.conn != nil:
		return call.conn.usesSession(), nil
	}
	return "", nil
}
