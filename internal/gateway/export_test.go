package gateway

import (
	"context"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
)

// EndBy is what a fork by a session's token does at its end.
func (g *Gateway) EndBy(ctx context.Context, latest time.Time, children ...*session.Session) error {
	return g.services.Sessions.EndBy(ctx, latest, children)
}

// Operations names what the table has, by method and path.
func Operations() map[string]string {
	out := make(map[string]string)
	for _, rt := range controlRoutes() {
		out[rt.method+" "+api.Version+strings.ReplaceAll(rt.pattern, restMark, "}")] = rt.name
	}
	return out
}

// ReapIdle ends the clients that are idle at a time.
func (g *Gateway) ReapIdle(now time.Time) { g.reapIdle(now) }
