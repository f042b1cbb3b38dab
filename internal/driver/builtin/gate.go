package builtin

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// gate lets requests into a server, or keeps them waiting while somebody holds
// it. Only what begins is kept: the answers that a request under way waits for
// still arrive, so that it can end.
type gate struct {
	mu      sync.Mutex
	inside  int
	held    bool
	changed chan struct{} // closed and replaced when held or inside change; nil while nobody waits
}

// wait returns a channel that is closed at the next change. g.mu is held.
func (g *gate) wait() <-chan struct{} {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

// wake tells all that wait. g.mu is held.
func (g *gate) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// until waits for a condition and then acts, as one step.
func (g *gate) until(ctx context.Context, ready func() bool, act func()) error {
	for {
		g.mu.Lock()
		if ready() {
			act()
			g.mu.Unlock()
			return nil
		}
		changed := g.wait()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) enter(ctx context.Context) error {
	return g.until(ctx, func() bool { return !g.held }, func() { g.inside++ })
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.wake()
	}
}

// hold waits for others that hold it, then for the requests inside. The
// returned function lets go.
func (g *gate) hold(ctx context.Context) (func(), error) {
	if err := g.until(ctx, func() bool { return !g.held }, func() { g.held = true }); err != nil {
		return nil, fmt.Errorf("another one holds it: %w", err)
	}
	release := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held = false
		g.wake()
	})
	if err := g.until(ctx, func() bool { return g.inside == 0 }, func() {}); err != nil {
		release()
		return nil, fmt.Errorf("calls are still under way: %w", err)
	}
	return release, nil
}

// middleware sends requests through the gate. Notifications change nothing, and
// a subscription is a request that lasts as long as its client likes.
func (g *gate) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "subscriptions/listen" || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, req)
		}
		if err := g.enter(ctx); err != nil {
			return nil, err
		}
		defer g.leave()
		return next(ctx, method, req)
	}
}
