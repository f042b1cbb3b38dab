package policy

import (
	"context"

	"github.com/tine-mcp/tine/internal/upstream"
)

// limits lets a call wait for its turn.
type limits struct {
	server *Server
	pause  *pause
	next   upstream.Caller
}

// Call implements upstream.Caller.
func (l *limits) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	if err := l.pause.check(); err != nil {
		return nil, err
	}
	_, list := kindOfList(req.Method)
	began, err := l.server.turns.enter(ctx, req.Who, l.pause, list)
	if err != nil {
		return nil, err
	}
	defer l.server.turns.leave(began)
	return l.next.Call(ctx, req)
}
