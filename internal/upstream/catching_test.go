package upstream

import (
	"context"

	"github.com/tine-mcp/tine/internal/wire"
)

// catching is a transport that keeps the frame of the last request.
type catching struct{ frame []byte }

func (c *catching) roundTrip(_ context.Context, _ *call, frame []byte) (wire.Message, error) {
	c.frame = frame
	return wire.Message{Result: []byte("{}")}, nil
}

func (c *catching) send(context.Context, []byte) error { return nil }
func (c *catching) standalone(context.Context, func()) {}
func (c *catching) private() bool                      { return true }
func (c *catching) done() <-chan struct{}              { return nil }
func (c *catching) err() error                         { return nil }
func (c *catching) close()                             {}
