// Package gate lets requests into an instance, or keeps them waiting while the instance
// is held.
package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed is what Enter returns after Close.
var ErrClosed = errors.New("the instance has ended")

// A Gate counts the requests inside of an instance. Only new requests are kept waiting:
// the answers that a running request waits for must not go through the gate, or that
// request could not end. The zero value is open.
type Gate struct {
	mu      sync.Mutex
	inside  int
	held    bool
	closed  bool
	changed chan struct{} // closed and replaced when something changes; nil while no caller waits
}

// wait returns a channel that is closed at the next change. g.mu is held.
func (g *Gate) wait() <-chan struct{} {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

// wake tells all that wait. g.mu is held.
func (g *Gate) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// until waits for a condition, or for the end, and then acts, as one step.
func (g *Gate) until(ctx context.Context, ready func() bool, act func()) error {
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return ErrClosed
		}
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

// Enter waits while the gate is held and lets a request in, which must Leave.
func (g *Gate) Enter(ctx context.Context) error {
	return g.until(ctx, func() bool { return !g.held }, func() { g.inside++ })
}

// Leave is the end of a request that has entered.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.wake()
	}
}

// Hold waits for others that hold it, then for the requests inside. The
// returned function lets go; it may be called twice. What has ended is held at
// once, since nothing enters it.
func (g *Gate) Hold(ctx context.Context) (release func(), err error) {
	switch err := g.until(ctx, func() bool { return !g.held }, func() { g.held = true }); {
	case errors.Is(err, ErrClosed):
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("another one holds it: %w", err)
	}
	release = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held = false
		g.wake()
	})
	if err := g.until(ctx, func() bool { return g.inside == 0 }, func() {}); err != nil && !errors.Is(err, ErrClosed) {
		release()
		return nil, fmt.Errorf("calls are still running: %w", err)
	}
	return release, nil
}

// Close refuses all waiting and new requests. Those inside leave by themselves. Twice
// is fine.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.wake()
}

// Within does what lets an instance go on, and returns when that is done, or after
// a while, when it goes on by itself.
func Within(wait time.Duration, do func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		do()
	}()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-over:
	case <-late.C:
	}
}
