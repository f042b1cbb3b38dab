package upstream_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// stuff fills what lies between the gateway and the server, as a server does
// that stops reading. It returns the function that takes all of it out again.
func (r *rope) stuff() (empty func()) {
	n := 0
	for ; len(r.out) < cap(r.out); n++ {
		r.out <- []byte(`{}`)
	}
	return func() {
		for range n {
			<-r.out
		}
	}
}

// A caller that cancels has its answer at once, also where the server does not
// read; the server hears of it when it reads again.
func TestCancelDoesNotWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, read := make(chan struct{}), make(chan struct{})
		var call, told message
		r := play(t, func(i *instance) {
			i.rope.legacy()
			call = i.rope.want(wire.MethodCallTool)
			empty := i.rope.stuff()
			close(full)
			<-read
			empty()
			told = i.rope.want(wire.NoteCancelled)
			i.rope.echo()
		})
		c := newClient("c")
		ctx, cancel := context.WithCancelCause(t.Context())
		out := make(chan string, 1)
		req := c.request(t, wire.MethodCallTool, `{"name":"x"}`)
		go func() { out <- outcome(r.Call(ctx, req)) }()
		<-full
		began := time.Now()
		cancel(upstream.Cancelled())
		if got := <-out; !strings.HasPrefix(got, "refused: ") {
			t.Errorf("the call got %s", got)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the caller waited for %s", waited)
		}
		close(read)
		synctest.Wait()
		if got := c.calls(t, r, "y"); !strings.Contains(got, `"y"`) {
			t.Errorf("the next call got %s", got)
		}
		if at(told.params, "requestId") != call.id {
			t.Errorf("the server was told %s, the call was %s", told.raw, call.id)
		}
	})
}

// What waits for a server that never reads keeps nobody from closing the
// connection, and is bounded.
func TestCancelsOfAServerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 300
		r := play(t, func(i *instance) {
			i.rope.legacy()
			for range calls {
				i.rope.want(wire.MethodCallTool)
			}
			i.rope.stuff()
			<-i.done
		})
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan string, calls)
		for range calls {
			req := newClient("c").request(t, wire.MethodCallTool, `{"name":"x"}`)
			go func() { out <- outcome(r.Call(ctx, req)) }()
		}
		synctest.Wait()
		began := time.Now()
		cancel()
		for range calls {
			<-out
		}
		r.Close()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("cancelling and closing took %s", waited)
		}
	})
}
