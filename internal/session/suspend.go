package session

import (
	"context"

	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
)

// suspending ends instances whose sessions stay, with what they have in memory kept
// where that can be done, not too many at once. When ctx is over they are only ended. Why is what a loss is put down to.
func suspending(ctx context.Context, why string) func(*upstream.Upstream) {
	places := make(chan struct{}, parallel)
	return func(up *upstream.Upstream) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-ctx.Done():
		}
		up.Suspend(ctx, why)
	}
}

// A removedPart is a part that another catalog has no place for.
type removedPart struct {
	*part
	suspends bool // its server is only switched off
}

func leaving(p *part, was, now *catalog.Catalog) removedPart {
	old, next := was.Entry(p.up.Server()), now.Entry(p.up.Server())
	return removedPart{p, old != nil && next != nil && old.Hash == next.Hash && old.Hash != ""}
}
