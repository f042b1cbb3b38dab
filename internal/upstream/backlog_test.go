package upstream_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
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

// Messages for a server that never reads do not delay the close of the connection,
// and are bounded.
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

// flooding is a server that gets a call, stops reading, asks a number of
// questions and answers the call. When it is let it reads what it was told.
func flooding(questions int, read <-chan struct{}, told chan<- message) func(*instance) {
	return func(i *instance) {
		i.rope.legacy()
		if i.n > 1 {
			i.rope.echo()
			return
		}
		call := i.rope.want(wire.MethodCallTool)
		empty := i.rope.stuff()
		for n := range questions {
			select {
			case i.rope.in <- frame{b: fmt.Appendf(nil, sample, fmt.Sprint(n))}:
			case <-i.rope.shut: // the gateway has broken off
				return
			}
		}
		i.rope.answer(call, `{"ok":true}`)
		select {
		case <-read:
		case <-i.rope.shut:
			return
		}
		empty()
		i.rope.serve(func(m message) {
			if m.method == wire.MethodCallTool {
				i.rope.answer(m, `{"again":true}`)
			} else {
				told <- m
			}
		})
	}
}

// A server that asks thousands of questions without reading makes no caller wait,
// and finds an answer to each when it reads again.
func TestServerThatAsksWithoutReading(t *testing.T) {
	for _, refuses := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const questions = 5000
			read, told := make(chan struct{}), make(chan message, questions)
			r := play(t, flooding(questions, read, told))
			c := newClient("c")
			if !refuses {
				c.answers(`{"role":"assistant"}`)
			}
			began := time.Now()
			if got := c.calls(t, r, "x"); got != `{"ok":true}` {
				t.Errorf("got %s", got)
			}
			if waited := time.Since(began); waited != 0 {
				t.Errorf("the call waited for %s", waited)
			}
			time.Sleep(time.Minute) // what is not read for long is not dropped either
			close(read)
			ids := make(map[string]bool)
			for range questions {
				ids[(<-told).id] = true
			}
			if len(ids) != questions {
				t.Errorf("%d questions have an answer, want %d", len(ids), questions)
			}
			if got := c.calls(t, r, "x"); got != `{"again":true}` {
				t.Errorf("after that a call got %s", got)
			}
		})
	}
}

// A server that asks without end and never reads is broken off, by name.
func TestServerThatAsksWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		r := play(t, flooding(20_000, nil, nil), func(o *upstream.Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		c := newClient("c")
		testkit.Has(t, "the call", c.calls(t, r, "x"), `lost: server "srv"`, "does not read the answers")
		testkit.Has(t, "the next call", c.calls(t, r, "y"), `"y"`)
		testkit.Has(t, "the log", log.String(), "server=srv", "does not read the answers")
	})
}

// A copy of a server that has answers on the way is told that it must ask again.
func TestCopyOfAServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const questions = 1000
		r := play(t, flooding(questions, nil, nil))
		newClient("c").calls(t, r, "x")
		synctest.Wait()
		inst, release, err := r.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		hello, err := upstream.ReadHello(r.Greeting(inst))
		if err != nil || len(hello.Asked) != questions {
			t.Errorf("%d questions go with the copy (%v), want %d", len(hello.Asked), err, questions)
		}
	})
}
