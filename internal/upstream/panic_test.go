package upstream_test

import (
	"context"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// fragile is a client's side that panics.
type fragile struct{ *client }

func (fragile) Note(string, []byte) { panic("a mistake in a note") }

func (fragile) Ask(context.Context, string, []byte) upstream.Reply { panic("a mistake in a question") }

// brittle is a stream whose frames make the reader panic.
type brittle struct{ *rope }

func (b brittle) ReadFrame() ([]byte, error) {
	frame, err := b.rope.ReadFrame()
	if err == nil && string(frame) == `"boom"` {
		panic("a mistake in a frame")
	}
	return frame, err
}

const broken = string(api.KindInfrastructure) + ": "

// A panic while a server's messages are handled ends the connection, or the one
// question, and nothing else. The next call starts anew.
func TestPanicsAreContained(t *testing.T) {
	t.Run("in a note of a call", func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.serve(func(m message) {
				if m.method == wire.MethodCallTool && i.n == 1 {
					i.rope.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
					return
				}
				i.rope.answer(m, `{}`)
			})
		})
		c := newClient("c")
		req := c.request(t, wire.MethodCallTool, `{"name":"x"}`)
		req.Peer = fragile{c}
		testkit.Has(t, "the call", outcome(r.Call(t.Context(), req)), broken)
		if got := c.calls(t, r, "y"); got != `{}` {
			t.Errorf("the next call: %s", got)
		}
	})
	t.Run("in the reader", func(t *testing.T) {
		r := &rig{t: t}
		o := r.options()
		o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
			i := r.newInstance(func(i *instance) {
				i.rope.legacy()
				i.rope.serve(func(m message) {
					if i.n == 1 {
						i.rope.say(`"boom"`)
						return
					}
					i.rope.answer(m, `{}`)
				})
			})
			i.link = func() (driver.Link, error) { return driver.Link{Stream: brittle{i.rope}}, nil }
			return i, nil
		}}
		r.Upstream = upstream.New(o)
		t.Cleanup(r.Close)
		c := newClient("c")
		testkit.Has(t, "the call", c.calls(t, r, "x"), broken)
		if got := c.calls(t, r, "y"); got != `{}` {
			t.Errorf("the next call: %s", got)
		}
	})
	t.Run("in a question", func(t *testing.T) {
		told := make(chan message, 1)
		r := play(t, asking(1, sample, told))
		c := newClient("c")
		req := c.request(t, wire.MethodCallTool, `{"name":"x"}`)
		req.Peer = fragile{c}
		done := make(chan string, 1)
		go func() { done <- outcome(r.Call(context.Background(), req)) }()
		testkit.Has(t, "what the server was told", testkit.Within(t, "an answer", told).err, "failed inside")
		if got := testkit.Within(t, "the call", done); got != `{}` {
			t.Errorf("the call: %s", got)
		}
	})
	t.Run("in the driver's start", func(t *testing.T) {
		r := &rig{t: t}
		o := r.options()
		starts := 0
		o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
			if starts++; starts == 1 {
				panic("a mistake in a start")
			}
			return r.newInstance(func(i *instance) { i.rope.legacy(); i.rope.serve(func(m message) { i.rope.answer(m, `{}`) }) }), nil
		}}
		r.Upstream = upstream.New(o)
		t.Cleanup(r.Close)
		c := newClient("c")
		testkit.Has(t, "the call", c.calls(t, r, "x"), broken)
		r.Retry()
		if got := c.calls(t, r, "y"); got != `{}` {
			t.Errorf("the next call: %s", got)
		}
	})
}
