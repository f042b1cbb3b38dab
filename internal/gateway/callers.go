package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A Control lets servers inside the gateway act on sessions, each time for their
// caller: with the routes of the control API, for the same principal, who gets
// the same answers and refusals there. It is made before the gateway is, since
// servers are; until then it refuses. The zero Control is ready, and all of its
// methods may run at once.
//
// The caller is known by a handle that a call is given on its way to such a
// server. It can't be guessed, is not seen outside of the process, and means
// nothing once the call is over.
type Control struct {
	g     atomic.Pointer[Gateway]
	mu    sync.Mutex
	calls map[string]*controlCall
}

// A controlCall is one call of a server that acts on sessions.
type controlCall struct {
	handle  string
	who     identity.Principal
	session string        // that it is made in
	from    *http.Request // what it came in by; nil on stdio
	over    chan struct{} // closed when it has its answer

	// Whose call it is, for what is done within it.
	client   *upstream.Client
	conn     *client // nil for a client without a connection
	peer     upstream.Peer
	progress []byte // its progress token, raw; nil for none
	trace    telemetry.Parent

	mu     sync.Mutex
	tokens []string // what stands for a token in the answer, and the token
}

// begin gives a call its handle. It is good until end.
func (c *Control) begin(x *exchange) *controlCall {
	call := &controlCall{
		handle: newClientID(), who: x.who, session: x.sess.ID, from: x.from, over: make(chan struct{}),
		client: x.client, conn: x.conn, peer: x.peer, progress: x.params.ProgressToken.Of(x.params.Raw), trace: x.trace,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[string]*controlCall)
	}
	c.calls[call.handle] = call
	return call
}

func (c *Control) end(call *controlCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, call.handle)
	close(call.over)
}

// of finds the call of a handle.
func (c *Control) of(handle string) (*Gateway, *controlCall, error) {
	g := c.g.Load()
	if g == nil {
		return nil, nil, &api.Error{Kind: api.KindRefused, Retryable: true, Message: "the gateway is still starting"}
	}
	c.mu.Lock()
	call := c.calls[handle]
	c.mu.Unlock()
	if call == nil {
		return nil, nil, &api.Error{Kind: api.KindRefused, Message: "the caller is not known: the call came by no gateway, or is over"}
	}
	return g, call, nil
}

// hide returns what stands for a session's token until the answer has left the
// server and was written down: a token in the journal could be read by every
// principal who may read a story, and would be in every copy of it.
func (call *controlCall) hide(token string) string {
	call.mu.Lock()
	defer call.mu.Unlock()
	mark := "shown-once-" + newClientID()
	call.tokens = append(call.tokens, mark, token)
	return mark
}

// reveal puts the tokens into an answer. Neither they nor what stands for them
// look different within JSON.
func (call *controlCall) reveal(res *upstream.Result) *upstream.Result {
	if call == nil {
		return res
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	if len(call.tokens) == 0 {
		return res
	}
	out := *res
	out.Result = []byte(strings.NewReplacer(call.tokens...).Replace(string(res.Result)))
	return &out
}

// A callerAction is what a call does to a session.
type callerAction struct {
	g       *Gateway
	call    *controlCall
	who     identity.Principal // as it is by now: the call may have begun long ago
	session string             // the id
	what    string             // the method and the path of the same in the control API
}

// request is what the services are told of it; the key is empty for none.
func (d *callerAction) request(key string) control.Request {
	return control.Request{Who: d.who, Key: key, What: d.what, Conn: d.call.conn}
}

// act does what a route of the control API does, for the one whose call has the handle and
// about a session, by default the one of the call.
func act[Out any](c *Control, caller, route, session string, do func(d *callerAction) (Out, error)) (out Out, err error) {
	g, call, err := c.of(caller)
	if err != nil {
		return out, err
	}
	if session == "" {
		session = call.session
		if in := g.reg.Get(session); in != nil && route != "closeSession" {
			world, err := in.World()
			if err != nil {
				return out, err
			}
			session = world.ID
		}
	}
	rt := g.routeOf(route)
	who, in := g.guard.Load().Again(call.who)
	if !in {
		return out, &api.Error{Kind: api.KindRefused, Status: http.StatusUnauthorized, Message: "who made this call may not come in any more"}
	}
	if err := rt.admits(who); err != nil {
		return out, err
	}
	if session, err = g.services.Sessions.ID(who, session); err != nil {
		return out, g.clean(who, err)
	}
	what := rt.method + " " + api.Version + strings.Replace(rt.pattern, "{session}", session, 1)
	if out, err = do(&callerAction{g: g, call: call, who: who, session: session, what: what}); err != nil {
		return out, g.clean(who, err)
	}
	return out, nil
}

// routeOf finds a route of the control API by its name.
func (g *Gateway) routeOf(name string) *action {
	for i := range g.routes.all {
		if g.routes.all[i].name == name {
			return &g.routes.all[i]
		}
	}
	panic("there is no route " + name)
}

// readAnswer is how long the client of a call has to read its answer, before it
// ends with the session that the call has closed.
const readAnswer = 2 * time.Second

// closeAround closes the session that a call is made in. It is closed when this
// returns; the session's clients and streams end a little later, since the
// answer goes by one of them.
func (g *Gateway) closeAround(ctx context.Context, call *controlCall, s *session.Session) error {
	err := g.reg.CloseSession(ctx, s)
	g.spawn(func() { // a gateway that is closed has ended them itself
		select {
		case <-call.over:
		case <-g.life.Done():
		}
		timer := time.NewTimer(readAnswer)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-g.life.Done():
		}
		_ = g.endSession(ctx, s) // closed before; what is left are its clients
	})
	return err
}
