package node

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type requestKey struct{}

// Request is the request that a served node answers, for what arguments don't
// have: the session, to report progress, and who the caller is. It is nil in a call
// that did not come over MCP. In the function of [Func] it is that function's own
// request.
//
// For input of the client a function returns a result with InputRequests, and is
// called again with InputResponses in the parameters of the request: this works in
// both eras of the protocol. A request over the session, such as its method Elicit,
// reaches clients of the handshake era only.
func Request(ctx context.Context) *mcp.CallToolRequest {
	r, _ := ctx.Value(requestKey{}).(*mcp.CallToolRequest)
	return r
}

type forwardKey struct{}

// withRequest is the context of a served call. What the caller sent in _meta goes on to
// a consumed node and its progress comes back, but not for what a Func calls.
func withRequest(ctx context.Context, r *mcp.CallToolRequest) context.Context {
	ctx = context.WithValue(context.WithValue(ctx, requestKey{}, r), forwardKey{}, r)
	token := r.Params.GetProgressToken()
	if token == nil || r.Session == nil {
		return ctx
	}
	return WithProgress(ctx, func(p *mcp.ProgressNotificationParams) {
		theirs := *p
		theirs.ProgressToken = token
		// A client that is gone misses nothing.
		_ = r.Session.NotifyProgress(ctx, &theirs)
	})
}

func withoutForward(ctx context.Context) context.Context {
	if ctx.Value(forwardKey{}) != nil {
		ctx = context.WithValue(ctx, forwardKey{}, (*mcp.CallToolRequest)(nil))
	}
	if progressOf(ctx) != nil {
		ctx = WithProgress(ctx, nil)
	}
	return ctx
}

// forwarded is the _meta of the call that is being served, without what belongs to
// one connection.
func forwarded(ctx context.Context) mcp.Meta {
	r, _ := ctx.Value(forwardKey{}).(*mcp.CallToolRequest)
	if r == nil || r.Params == nil {
		return nil
	}
	var meta mcp.Meta
	for k, v := range r.Params.Meta {
		if k == "progressToken" || strings.HasPrefix(k, "io.modelcontextprotocol/") {
			continue
		}
		if meta == nil {
			meta = mcp.Meta{}
		}
		meta[k] = v
	}
	return meta
}
