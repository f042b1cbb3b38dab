package policy

import (
	"context"
	"sync"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// ChainOptions say what a chain is around.
type ChainOptions struct {
	// Own says that the instance belongs to one session: when it fails or sends
	// a 429, that is no reason to keep the others away from theirs.
	Own bool
	// Of names the target of the chain, and its identity there. Chains of the same
	// target share what they learn; a chain that is still in use after its server
	// was changed can't affect the others.
	Of string
	// Kept is called when a list was cached, so that the owner of the connection
	// starts to listen for its changes. It may be nil and must not block.
	Kept func()
}

// A Chain is the policies of a server around one connection.
type Chain struct {
	server  *Server
	first   upstream.Caller
	next    upstream.Caller
	lists   *lists
	results *scope
	hints   *hints
	breaker *breaker
	target  *target // nil for one with its own
	closing sync.Once
}

var _ upstream.Caller = (*Chain)(nil)

// Chain puts the policies around a Caller. This is the one place that knows
// their order.
func (s *Server) Chain(next upstream.Caller, o ChainOptions) *Chain {
	c := &Chain{server: s, next: next, breaker: s.breaker}
	id, pause := s.numbers.Add(1), &s.pause
	if o.Own {
		own := newPause(s)
		pause = &own
		c.hints, c.breaker, c.results = newHints(s), newBreaker(s, true), &scope{}
	} else {
		c.target = s.join(o.Of)
		c.hints, c.results = c.target.hints, &c.target.kept
	}
	broken := &breaking{b: c.breaker, next: next}
	held := &pausing{h: pause, next: broken}
	again := &retry{server: s, hints: c.hints, ask: held, next: held}
	limited := &limits{server: s, pause: pause, next: again}
	kept := &results{server: s, chain: id, scope: c.results, hints: c.hints, ask: held, next: limited}
	c.lists = newLists(s, id, c.target, o.Kept, c.hints, kept)
	c.first = c.lists
	return c
}

// Call implements upstream.Caller. A subscription is no call: it lasts, and
// takes no turn.
func (c *Chain) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	if req.Method == wire.MethodListen {
		return c.next.Call(ctx, req)
	}
	return c.first.Call(ctx, req)
}

// Note says that the server's lists of a kind changed, by the method of its
// notification; with an empty method, that it was started anew and nothing known of
// it holds. Other notifications are ignored.
func (c *Chain) Note(method string) {
	var kinds []listKind
	switch method {
	case wire.NoteToolsChanged:
		kinds = []listKind{listTools}
	case wire.NotePromptsChanged:
		kinds = []listKind{listPrompts}
	case wire.NoteResourcesChanged:
		kinds = []listKind{listResources, listTemplates}
	case "":
		kinds = []listKind{listTools, listPrompts, listResources, listTemplates}
	default:
		return
	}
	if kinds[0] == listTools {
		// A tool that was read-only may not be any more, nor be the same tool.
		c.hints.forget()
		c.server.results.drop(c.results)
	}
	for _, kind := range kinds {
		c.lists.forget(kind)
	}
}

// Close drops what is cached for this chain alone, when its connection is over. It
// may be called twice.
func (c *Chain) Close() {
	for kind := range listKinds {
		c.lists.forgetOwn(kind)
	}
	if c.target != nil {
		c.closing.Do(func() { c.server.leave(c.target) })
		return
	}
	c.server.results.drop(c.results)
	c.server.fine(c.breaker)
}
