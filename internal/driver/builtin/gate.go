package builtin

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/gate"
)

// through sends requests through the gate. Notifications change nothing, and a
// subscription is a request that lasts as long as its client likes.
func through(g *gate.Gate) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "subscriptions/listen" || strings.HasPrefix(method, "notifications/") {
				return next(ctx, method, req)
			}
			if err := g.Enter(ctx); err != nil {
				return nil, err
			}
			defer g.Leave()
			return next(ctx, method, req)
		}
	}
}
