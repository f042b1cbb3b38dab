package gateway

import (
	"bytes"
	"context"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// What a principal may not call it does not see, and its call is answered as
// if the thing were not there.

// seen is a server's shape, if there is one and the principal may see it.
func (x *exchange) seen(t *table, server string) *shape {
	if !x.who.MaySee(server) {
		return nil
	}
	return t.shapes[server]
}

// hides reports whether some tools of a server are kept from the principal.
func (x *exchange) hides(s *shape) bool {
	return len(s.entry.Tools.Allow) > 0 || len(s.entry.Tools.Deny) > 0 || !x.who.Unlimited(s.entry.ID)
}

var isError = []byte(`"isError"`)

// exists reports whether a server has the tool that was just called. Only an
// error can say that it has not, and then the server's list tells; without the
// list the server's word stands.
func (x *exchange) exists(ctx context.Context, s *shape, own string, res *upstream.Result) bool {
	if res.Error == nil && !bytes.Contains(res.Result, isError) {
		return true
	}
	up, e, err := x.sess.Upstream(s.entry.ID)
	if err != nil {
		return true
	}
	items, err := x.g.fetches.start(x, up, e, wire.MethodListTools).wait(ctx, e.ID, e.ConnectTimeout)
	if err != nil {
		return true
	}
	for _, it := range items {
		if wire.FindString(it, "name") == own {
			return true
		}
	}
	return false
}
