package record

import (
	"context"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
)

// NotMade records a request that did not reach the server's policies, because its
// session refused it. It does not count as a call of the server.
func (s *Server) NotMade(ctx context.Context, member string, req *upstream.Request, err error) {
	outcome, message := Outcome(ctx, nil, err)
	s.journal(member, req, nil, time.Now(), 0, outcome, s.shown(message), "")
}
