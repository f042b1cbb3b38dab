package node

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A relay passes the progress of calls on to who asked for it: the clients of a
// served node that is consumed.
type relay struct {
	last  atomic.Int64
	calls sync.Map // token to func(*mcp.ProgressNotificationParams)
}

// join has the progress of a call go to the request that is being served, if it
// wants that. It adds a token to meta.
func (r *relay) join(ctx context.Context, meta mcp.Meta) (_ mcp.Meta, leave func()) {
	req, _ := ctx.Value(forwardKey{}).(*mcp.CallToolRequest)
	if req == nil || req.Session == nil || req.Params == nil || req.Params.GetProgressToken() == nil {
		return meta, func() {}
	}
	token := "node-" + strconv.FormatInt(r.last.Add(1), 10)
	r.calls.Store(token, func(p *mcp.ProgressNotificationParams) {
		theirs := *p
		theirs.ProgressToken = req.Params.GetProgressToken()
		// A client that is gone misses nothing.
		_ = req.Session.NotifyProgress(ctx, &theirs)
	})
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta["progressToken"] = token
	return meta, func() { r.calls.Delete(token) }
}

// handler passes on what belongs to a call that joined, and the rest to next.
func (r *relay) handler(next func(context.Context, *mcp.ProgressNotificationClientRequest)) func(context.Context, *mcp.ProgressNotificationClientRequest) {
	return func(ctx context.Context, req *mcp.ProgressNotificationClientRequest) {
		if token, ok := req.Params.ProgressToken.(string); ok {
			if pass, ok := r.calls.Load(token); ok {
				pass.(func(*mcp.ProgressNotificationParams))(req.Params)
				return
			}
		}
		if next != nil {
			next(ctx, req)
		}
	}
}
