package policy

import (
	"context"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// results answers calls of read-only tools from a cache, if the config asks for
// that. An answer is for the same principal over the same connection. Any call of a
// tool that may change something empties the cache, over any connection to the same
// instance.
type results struct {
	server *Server
	chain  uint64
	scope  *scope
	hints  *hints
	ask    upstream.Caller // for hints
	next   upstream.Caller
}

// Call implements upstream.Caller.
func (r *results) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	c := &r.server.policy.Load().Cache
	if req.Method != wire.MethodCallTool || c.Results <= 0 {
		return r.next.Call(ctx, req)
	}
	if r.hints.of(ctx, req, r.ask)&readOnly == 0 {
		// An answer that is read while the call runs may be from before it or from
		// after.
		r.server.results.drop(r.scope)
		defer r.server.results.drop(r.scope)
		return r.next.Call(ctx, req)
	}
	if req.Params.RequestState.Ok() || req.Params.InputResponses.Ok() || req.Caller != "" || !wanted(c, req.Name) {
		// What a server does for its callers depends on more than the principal.
		return r.next.Call(ctx, req)
	}
	sum, ok := sign(req)
	if !ok {
		return r.next.Call(ctx, req)
	}
	key := cacheKey{chain: r.chain, age: r.server.forgets.Load(), who: req.Who, sign: sum}
	if e, _ := r.server.results.get(key, c.Results); e != nil {
		r.server.metrics.Cache("results", true)
		return &upstream.Result{Result: e.result, Events: e.events}, nil
	}
	r.server.metrics.Cache("results", false)
	return r.fill(ctx, key, req, c.Results)
}

func (r *results) fill(ctx context.Context, key cacheKey, req *upstream.Request, ttl time.Duration) (*upstream.Result, error) {
	before := r.server.results.now(r.scope)
	watched, asking := watch(req)
	res, err := r.next.Call(ctx, watched)
	if err != nil || res.Result == nil || len(res.Result) > maxResultSize || asking.wasAsked() {
		return res, err
	}
	if d := describe(res.Result); d.complete && !d.failed {
		r.server.results.put(r.scope, before, key, res, wire.Span{}, ttl)
	}
	return res, nil
}

// wanted reports whether a read-only tool's results are to be kept.
func wanted(c *config.Cache, tool string) bool {
	for _, pattern := range c.Tools {
		if identity.Match(pattern, tool) {
			return true
		}
	}
	return len(c.Tools) == 0
}
