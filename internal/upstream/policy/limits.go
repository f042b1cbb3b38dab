package policy

import (
	"context"

	"github.com/tine-mcp/tine/internal/upstream"
)

// limits lets a call wait for its turn.
type limits struct {
	server *Server
	hold   *hold
	next   upstream.Caller
}

// Call implements upstream.Caller.
func (l *limits) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	if err := l.hold.check(); err != nil {
		return nil, err
	}
	began, err := l.server.gate.enter(ctx, req.Who, l.hold)
	if err != nil {
		return nil, err
	}
	defer l.server.gate.leave(began)
	return l.next.Call(ctx, req)
}
