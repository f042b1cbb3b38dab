package session

import (
	"context"

	"github.com/tine-mcp/tine/internal/upstream"
)

// resting ends instances whose sessions stay, with what they have in memory kept
// where that can be done, not too many at once.
// When ctx is over they are only ended. Why is what a loss is put down to.
func resting(ctx context.Context, why string) func(*upstream.Upstream) {
	places := make(chan struct{}, parallel)
	return func(up *upstream.Upstream) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-ctx.Done():
		}
		up.Rest(ctx, why)
	}
}

// A goner is a part that another catalog has no place for.
type goner struct {
	*part
	rests bool // its server is only switched off
}

func leaving(p *part, was, now *Catalog) goner {
	old, next := was.Entry(p.up.Server()), now.Entry(p.up.Server())
	return goner{p, old != nil && next != nil && old.hash == next.hash && old.hash != ""}
}
