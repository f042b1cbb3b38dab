package upstream_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// gatekeeper is a policy that a test plays.
type gatekeeper struct {
	mu     sync.Mutex
	passed []string
	refuse bool
	next   upstream.Caller
}

func (g *gatekeeper) wrap(o *upstream.Options) {
	o.Wrap = func(next upstream.Caller) upstream.Caller { g.next = next; return g }
}

func (g *gatekeeper) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	g.mu.Lock()
	g.passed = append(g.passed, strings.TrimPrefix(req.Method, "resources/")+" "+req.Name+" by "+req.Who)
	refuse := g.refuse
	g.mu.Unlock()
	if refuse {
		return nil, upstream.NotSent(&api.Error{Kind: api.KindRefused, Message: "enough"})
	}
	return g.next.Call(ctx, req)
}

func (g *gatekeeper) take() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := strings.Join(g.passed, ", ")
	g.passed = nil
	return s
}

// What a client causes is subject to the server's policies; what Tine does by
// itself after a restart, and the counting, are not.
func TestSubscriptionsGoThroughThePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked askedFor
		var now *instance
		g := &gatekeeper{}
		r := play(t, func(i *instance) {
			i.rope.legacy()
			now = i
			i.rope.serve(func(m message) {
				if m.id != "" {
					asked.add(strings.TrimPrefix(m.method, "resources/") + at(m.params, "uri"))
					i.rope.answer(m, `{}`)
				}
			})
		}, g.wrap)
		do := func(method, uri, who string) string {
			req := upstream.Subscription(method, uri)
			req.Who = who
			return outcome(r.Call(t.Context(), req))
		}
		refused := func(yes bool) { g.mu.Lock(); g.refuse = yes; g.mu.Unlock() }

		refused(true)
		if got := do(wire.MethodSubscribe, "a:1", "ada"); got != "refused: enough" {
			t.Errorf("got %s", got)
		}
		if got := asked.take(); got != "" {
			t.Errorf("the server was asked %s", got)
		}
		refused(false)
		for _, who := range []string{"ada", "bob"} {
			if got := do(wire.MethodSubscribe, "a:1", who); got != `{}` {
				t.Errorf("got %s", got)
			}
		}
		if got := g.take(); got != "subscribe a:1 by ada, subscribe a:1 by ada, subscribe a:1 by bob" {
			t.Errorf("the policies saw %s", got)
		}
		if got := asked.take(); got != `subscribe"a:1"` {
			t.Errorf("the server was asked %s", got)
		}
		now.end(errText("killed"))
		time.Sleep(time.Minute)
		_ = newClient("c").calls(t, r, "x") // starts it again
		synctest.Wait()
		if got := asked.take(); !strings.Contains(got, `subscribe"a:1"`) {
			t.Errorf("the next server was asked %s", got)
		}
		if got := g.take(); strings.Contains(got, "subscribe") {
			t.Errorf("the policies saw %s of a restart", got)
		}
		if got := do(wire.MethodUnsubscribe, "a:1", "ada"); got != `{}` || g.take() != "" || asked.take() != "" {
			t.Errorf("the first to leave got %s", got)
		}
		// A refusal does not bring the subscription back.
		refused(true)
		if got := do(wire.MethodUnsubscribe, "a:1", "bob"); got != "refused: enough" {
			t.Errorf("the last to leave got %s", got)
		}
		refused(false)
		if got := do(wire.MethodSubscribe, "a:1", "ada"); got != `{}` {
			t.Errorf("got %s", got)
		}
		if got := do(wire.MethodUnsubscribe, "a:1", "ada"); got != `{}` {
			t.Errorf("got %s", got)
		}
		if got := asked.take(); got != `subscribe"a:1" unsubscribe"a:1"` {
			t.Errorf("the server was asked %s", got)
		}
		now.end(errText("killed"))
		synctest.Wait()
		_ = do(wire.MethodUnsubscribe, "a:1", "ada")
		if n := r.Status().Restarts; n != 2 || r.Status().Instance {
			t.Error("a server was started to unsubscribe")
		}
	})
}

// A client that leaves while a new server is being asked again is counted, and the
// server is not left with an unused subscription.
func TestUnsubscribeWhileAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked askedFor
		var now *instance
		r := play(t, func(i *instance) {
			i.rope.legacy()
			now = i
			i.rope.serve(func(m message) {
				if m.id != "" {
					asked.add(strings.TrimPrefix(m.method, "resources/"))
					i.rope.answer(m, `{}`)
				}
			})
		})
		if _, err := r.Subscribe(t.Context(), "a:1"); err != nil {
			t.Fatal(err)
		}
		now.end(errText("killed"))
		time.Sleep(time.Minute)
		_ = newClient("c").calls(t, r, "x") // starts it again
		if _, err := r.Unsubscribe(t.Context(), "a:1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := asked.take(); strings.HasSuffix(got, " subscribe") {
			t.Errorf("the server was asked %s", got)
		}
	})
}

// However often clients ask, a server hears of each level once.
func TestLogLevelIsSentSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked askedFor
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.serve(func(m message) {
				if m.method == wire.MethodSetLevel {
					asked.add(at(m.params, "level"))
				}
				if m.id != "" {
					i.rope.answer(m, `{}`)
				}
			})
		})
		_ = newClient("c").calls(t, r, "x")
		var wg sync.WaitGroup
		for range 50 {
			for _, level := range []string{"error", "bogus", "info", "warning", "debug", ""} {
				wg.Go(func() { r.SetLevel(level) })
			}
		}
		wg.Wait()
		got := strings.Fields(asked.take())
		if len(got) == 0 || len(got) > 4 || got[len(got)-1] != `"debug"` {
			t.Errorf("levels %q", got)
		}
	})
}

// twice makes every call two times at once, as a policy may.
type twice struct{ next upstream.Caller }

func (w twice) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	var other error
	var wg sync.WaitGroup
	wg.Go(func() { _, other = w.next.Call(ctx, req) })
	res, err := w.next.Call(ctx, req)
	wg.Wait()
	return res, errors.Join(err, other)
}

// Attempts at a request share it, so none may write to it. The race detector
// sees to that.
func TestAttemptsShareTheRequest(t *testing.T) {
	r := play(t, func(i *instance) {
		i.rope.legacy()
		i.rope.serve(func(m message) {
			if m.id != "" {
				i.rope.answer(m, `{}`)
			}
		})
	}, func(o *upstream.Options) {
		o.Wrap = func(next upstream.Caller) upstream.Caller { return twice{next} }
	})
	if got := newClient("c").calls(t, r, "x"); got != `{}` {
		t.Errorf("got %s", got)
	}
}
