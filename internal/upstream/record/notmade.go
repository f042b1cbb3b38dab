package record

import (
	"context"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
)

// NotMade writes down a request that did not come as far as the server's policies,
// because its session does not let it in. It is no call of the server and counts as
// none.
func (s *Server) NotMade(ctx context.Context, member string, req *upstream.Request, err error) {
	outcome, message := Outcome(ctx, nil, err)
	s.journal(member, req, nil, time.Now(), 0, outcome, s.shown(message), "")
}
