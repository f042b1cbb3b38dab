package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

const (
	logged = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of one"}}`
	vendor = `{"jsonrpc":"2.0","method":"notifications/vendor/thing","params":{"of":"one"}}`
)

// A puppet is a server that a test speaks for.
type puppet struct {
	*rig
	rope  *rope
	calls chan message // of tools, as they come
	told  chan message // answers to what it asked
	ready chan struct{}
}

func newPuppet(t *testing.T) *puppet {
	p := &puppet{calls: make(chan message, 16), told: make(chan message, 16), ready: make(chan struct{})}
	p.rig = play(t, func(i *instance) {
		i.rope.legacy()
		p.rope = i.rope
		close(p.ready)
		i.rope.serve(func(m message) {
			switch {
			case m.method == wire.MethodCallTool:
				p.calls <- m
			case m.method == "":
				p.told <- m
			}
		})
	}, eager)
	<-p.ready
	return p
}

// begins has a client make a call and waits until the server has it.
func (p *puppet) begins(t *testing.T, c *client) (message, <-chan string) {
	t.Helper()
	out := c.later(t, p, "x")
	return <-p.calls, out
}

// did has a client make a call that is answered.
func (p *puppet) did(t *testing.T, c *client) {
	t.Helper()
	m, out := p.begins(t, c)
	p.rope.answer(m, `{}`)
	<-out
}

// asks has the server ask something, and returns what it was told.
func (p *puppet) asks(id string) message {
	p.rope.say(sample, id)
	return <-p.told
}

// What a server asks goes to a client only where its call is proven to have
// caused it.
func TestQuestionsAreProvenToBeOfACall(t *testing.T) {
	yes := `{"role":"assistant"}`
	run := func(name string, fn func(t *testing.T, p *puppet, a, b *client)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fn(t, newPuppet(t), newClient("a").answers(yes), newClient("b").answers(yes))
			})
		})
	}
	refused := func(t *testing.T, m message, clients ...*client) {
		t.Helper()
		testkit.Has(t, "what the server was told", m.raw, `"error":{`)
		for _, c := range clients {
			if _, asked := c.got(); len(asked) > 0 {
				t.Errorf("client %s was asked %q", c.Key, asked)
			}
		}
	}
	run("not with a call under way of one who can't be asked", func(t *testing.T, p *puppet, a, b *client) {
		p.begins(t, a)
		req := b.request(t, wire.MethodCallTool, `{"name":"x"}`)
		req.Peer = nil
		go func() { _, _ = p.Call(context.Background(), req) }()
		<-p.calls
		refused(t, p.asks("1"), a, b)
	})
	run("not with a list under way of another", func(t *testing.T, p *puppet, a, b *client) {
		p.begins(t, a)
		req := b.request(t, wire.MethodListTools, `{}`)
		req.Peer = nil
		go func() { _, _ = p.Call(context.Background(), req) }()
		synctest.Wait()
		refused(t, p.asks("1"), a, b)
	})
	run("not with a call that another has given up", func(t *testing.T, p *puppet, a, b *client) {
		ctx, cancel := context.WithCancelCause(t.Context())
		req := b.request(t, wire.MethodCallTool, `{"name":"x"}`)
		out := make(chan string, 1)
		go func() { out <- outcome(p.Call(ctx, req)) }()
		given := <-p.calls
		cancel(upstream.Cancelled())
		<-out
		p.begins(t, a)
		refused(t, p.asks("1"), a, b)
		// Once the server has done with it there is no doubt.
		p.rope.answer(given, `{}`)
		if m := p.asks("2"); m.result != yes {
			t.Errorf("the server was told %s", m.raw)
		}
	})
	run("one that gave up a call of its own is asked", func(t *testing.T, p *puppet, a, _ *client) {
		ctx, cancel := context.WithCancel(t.Context())
		req := a.request(t, wire.MethodCallTool, `{"name":"x"}`)
		out := make(chan string, 1)
		go func() { out <- outcome(p.Call(ctx, req)) }()
		<-p.calls
		cancel()
		<-out
		p.begins(t, a)
		if m := p.asks("1"); m.result != yes {
			t.Errorf("the server was told %s", m.raw)
		}
	})
	run("not after the call, where another is the only one left", func(t *testing.T, p *puppet, a, b *client) {
		p.did(t, a)
		p.did(t, b)
		w := &watcher{reply: &upstream.Reply{Result: []byte(yes)}}
		defer p.Watch(w)()
		refused(t, p.asks("1"), a, b)
		if q := w.questions(); len(q) > 0 {
			t.Errorf("the one that is left was asked %q", q)
		}
	})
	run("no longer than the call lasts", func(t *testing.T, p *puppet, a, _ *client) {
		gone := make(chan struct{})
		a.ask = func(ctx context.Context, _, _ string) upstream.Reply {
			<-ctx.Done()
			close(gone)
			return upstream.Reply{}
		}
		m, out := p.begins(t, a)
		p.rope.say(sample, "1")
		synctest.Wait()
		p.rope.answer(m, `{}`)
		<-out
		<-gone
		testkit.Has(t, "what the server was told", (<-p.told).raw, `"error":{`, "the call ended")
	})
	run("as long as one of the client's calls lasts", func(t *testing.T, p *puppet, a, _ *client) {
		let := make(chan struct{})
		a.ask = func(ctx context.Context, _, _ string) upstream.Reply {
			select {
			case <-let:
			case <-ctx.Done():
				t.Error("the question was taken back")
			}
			return upstream.Reply{Result: []byte(yes)}
		}
		one, done := p.begins(t, a)
		p.begins(t, a)
		p.rope.say(sample, "1")
		synctest.Wait()
		p.rope.answer(one, `{}`)
		<-done
		synctest.Wait()
		close(let)
		if m := <-p.told; m.result != yes {
			t.Errorf("the server was told %s", m.raw)
		}
	})
}

// A server's log messages and own notifications reach only the client whose call
// they are about.
func TestNotesAreProvenToBeOfACall(t *testing.T) {
	for _, note := range []string{logged, vendor} {
		run := func(name string, fn func(t *testing.T, p *puppet, a, b *client, w *watcher)) {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, w := newPuppet(t), &watcher{}
					defer p.Watch(w)()
					fn(t, p, newClient("a"), newClient("b"), w)
				})
			})
		}
		heard := func(t *testing.T, c *client, want int) {
			t.Helper()
			if notes, _ := c.got(); len(notes) != want {
				t.Errorf("client %s heard %q, want %d notes", c.Key, notes, want)
			}
		}
		silent := func(t *testing.T, w *watcher) {
			t.Helper()
			if got := w.heard(); len(got) > 0 {
				t.Errorf("all who listen heard %q", got)
			}
		}
		run("one has calls", func(t *testing.T, p *puppet, a, b *client, w *watcher) {
			p.did(t, b)
			p.begins(t, a)
			p.rope.say("%s", note)
			synctest.Wait()
			heard(t, a, 1)
			heard(t, b, 0)
			silent(t, w)
		})
		run("two have calls", func(t *testing.T, p *puppet, a, b *client, w *watcher) {
			p.begins(t, a)
			p.begins(t, b)
			p.rope.say("%s", note)
			synctest.Wait()
			heard(t, a, 0)
			heard(t, b, 0)
			silent(t, w)
		})
		run("two had calls", func(t *testing.T, p *puppet, a, b *client, w *watcher) {
			p.did(t, a)
			p.did(t, b)
			p.rope.say("%s", note)
			p.rope.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			synctest.Wait()
			heard(t, a, 0)
			heard(t, b, 0)
			if got := w.heard(); !slices.Equal(got, []string{"notifications/tools/list_changed"}) {
				t.Errorf("all who listen heard %q", got)
			}
		})
	}
}

// A server without sessions can't tell its connections apart: messages outside of
// calls may go to all of them.
func TestServerWithoutSessionsIsNotGuessed(t *testing.T) {
	const change = "notifications/tools/list_changed"
	for session, want := range map[string][]string{
		"":    {change},
		"any": {`notifications/message {"level":"info","data":"of one"}`, change},
	} {
		told := make(chan message, 1)
		s := &web{t: t, session: session}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			send := stream(w)
			send("data: %s\n\n", fmt.Sprintf(sample, "1"))
			send("data: %s\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":%q}\n\n", logged, change)
			<-r.Context().Done()
		}
		s.handle = func(w http.ResponseWriter, _ *http.Request, m message) {
			if m.method == "" {
				told <- m
			}
			w.WriteHeader(http.StatusAccepted)
		}
		r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) { o.Eager = true })
		w := &watcher{reply: &upstream.Reply{Result: []byte(`{"role":"assistant"}`)}}
		defer r.Watch(w)()
		testkit.Eventually(t, "it is heard that a list changed", func() bool { return slices.Contains(w.heard(), change) })
		if got := w.heard(); !slices.Equal(got, want) {
			t.Errorf("with session %q all who listen heard %q, want %q", session, got, want)
		}
		if m := testkit.Within(t, "the server is told", told); (m.err == "") != (session != "") {
			t.Errorf("with session %q the server was told %s", session, m.raw)
		}
	}
}
