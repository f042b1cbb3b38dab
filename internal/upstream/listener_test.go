package upstream

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tine-mcp/tine/internal/wire"
)

// holding is a transport whose requests wait for their end.
type holding struct{ catching }

func (h *holding) roundTrip(ctx context.Context, _ *call, _ []byte) (wire.Message, error) {
	<-ctx.Done()
	return wire.Message{}, context.Cause(ctx)
}

func (h *holding) done() <-chan struct{} { return make(chan struct{}) }

type deaf struct{}

func (deaf) Note(Origin, string, []byte) {}

func (deaf) Ask(_ context.Context, _ Origin, method string, _ []byte) Reply {
	return Refuse(method, "no client is connected")
}

// TestListenerClosedWhileItRestarts closes a connection that has just begun to
// listen anew: the stream before must end too, though the one that was to take
// its place never began.
func TestListenerClosedWhileItRestarts(t *testing.T) {
	for range 300 {
		c := newConn("s", deaf{}, slog.New(slog.DiscardHandler))
		c.hello.Store(&Hello{Version: wire.Latest, Capabilities: []byte(`{"tools":{"listChanged":true}}`)})
		c.t = &holding{}
		c.listen.watch(c)
		c.listen.restart(c)
		c.listen.close() // returns
	}
}
