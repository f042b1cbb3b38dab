package gateway

import (
	"errors"
	"net/http"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway/conns"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/wire"
)

// limits.calls bounds the running requests. While there is room every principal
// takes what it needs; once half of it is taken, none may have more than a
// quarter, so that the others get in.

// minShare is how many running requests a principal may always have.
const minShare = 16

// shares counts the running requests of each principal. Those without a name
// are not counted: where they come in there is no other principal.
type shares struct {
	mu sync.Mutex
	of map[string]int
}

// add counts n requests in or, negative, out, and returns how many there are.
func (s *shares) add(name string, n int) int {
	if name == "" {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]int)
	}
	now := s.of[name] + n
	if now == 0 {
		delete(s.of, name)
	} else {
		s.of[name] = now
	}
	return now
}

// InFlight returns the number of running requests.
func (g *Gateway) InFlight() int { return int(g.inflight.Load()) }

// enter counts n requests in, unless the gateway is full or stopping, or the
// principal has its share. A request that entered must leave. What answers or
// cancels a request does not enter: it has to get through for the request to
// end.
func (g *Gateway) enter(who identity.Principal, n int) *api.Error {
	if g.draining.Load() {
		return stopping()
	}
	return g.take(who, n)
}

// enterLate does so for a request of a client. While the gateway stops it lets a client
// list and ping whose call it waits for, or has answered since: SDKs hold an answer
// against the tool's schema, and would fail a call that went well.
func (g *Gateway) enterLate(who identity.Principal, id, method string) *api.Error {
	if g.draining.Load() && id != "" {
		switch method {
		case wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates, wire.MethodPing:
			if c := g.find(id, who); c != nil && c.waitedFor() {
				return g.take(who, 1)
			}
		}
	}
	return g.enter(who, 1)
}

// take is enter in a gateway that may be stopping.
func (g *Gateway) take(who identity.Principal, n int) *api.Error {
	most := g.edge.Load().calls
	all := g.inflight.Add(int64(n))
	mine := int64(g.shares.add(who.Name, n))
	switch {
	case all > most:
		g.leave(who, n)
		return &api.Error{
			Kind: api.KindRefused, Status: http.StatusServiceUnavailable, Retryable: true,
			Message: "too many requests at once; limits.calls can raise that",
		}
	case all > most/2 && mine > max(minShare, most/4):
		g.leave(who, n)
		return &api.Error{
			Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true, RetryAfter: 1,
			Message: "too many requests of yours at once; while the gateway is busy no principal has more than a quarter of limits.calls",
		}
	}
	return nil
}

func (g *Gateway) leave(who identity.Principal, n int) {
	g.inflight.Add(-int64(n))
	g.shares.add(who.Name, -n)
}

// aside takes a request that stays open out of the running ones: it is not
// work, and must not hold up a stop. The returned function brings it back, to
// leave.
func (g *Gateway) aside(who identity.Principal) (back func()) {
	g.leave(who, 1)
	return func() {
		g.inflight.Add(1)
		g.shares.add(who.Name, 1)
	}
}

// holdConn keeps the connection of a request open until its answer is written,
// unless the principal has its share of all connections.
func holdConn(r *http.Request, who identity.Principal) *api.Error {
	c := conns.From(r.Context())
	if c == nil {
		return nil
	}
	holder := who.Name
	if holder == "" && r.Header.Get("Authorization") != "" {
		holder = "\x00operator" // must get in where callers without a token have their share
	}
	err := c.Hold(holder)
	if err == nil {
		return nil
	}
	if !errors.Is(err, conns.ErrShare) {
		panic(http.ErrAbortHandler) // the client is gone
	}
	return &api.Error{
		Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true, RetryAfter: 1,
		Message: "too many connections of yours have a request in flight; the rest of limits.connections is for others",
	}
}

func stopping() *api.Error {
	return &api.Error{
		Kind: api.KindRefused, Status: http.StatusServiceUnavailable, Retryable: true, Message: "the gateway is stopping",
	}
}
