// Package flight makes one piece of work of several that want the same at once:
// an image that is unpacked, a package that is fetched.
package flight

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// A Group lets several callers wait for one piece of work. The work has a context of its
// own, so that the first caller may leave, and ends early when the last one leaves.
// Nothing is remembered: a caller that comes after the end begins anew. The zero value
// is ready, and its methods may be called at once.
type Group[T any] struct {
	// Stays has work go on when all callers have left, until Close. It is set before
	// the first use.
	Stays bool

	mu     sync.Mutex
	all    map[string]*flight[T]
	closed bool
}

// ErrClosed is the error of a group that was closed.
var ErrClosed = errors.New("the gateway is stopping")

type flight[T any] struct {
	cancel  context.CancelCauseFunc
	waiting int           // guarded by Group.mu
	done    chan struct{} // closed when those below are set
	result  T
	err     error
	panics  error // a panic of the work, and where
}

var errExit = errors.New("the work was given up")

// Do returns what work makes for the key, or what the running work for it makes. work
// has the values of the first caller's context, but not its end. The last caller to
// leave returns when the work has ended, so that nothing of it is left.
func (g *Group[T]) Do(ctx context.Context, key string, work func(context.Context) (T, error)) (T, error) {
	var none T
	f, err := g.join(ctx, key, work)
	if err != nil {
		return none, err
	}
	select {
	case <-f.done:
		return f.outcome()
	case <-ctx.Done():
	}
	g.mu.Lock()
	f.waiting--
	last := f.waiting == 0 && !g.Stays
	g.mu.Unlock()
	if last {
		f.cancel(nil)
		<-f.done
		if result, err := f.outcome(); err == nil {
			return result, nil
		}
	}
	return none, context.Cause(ctx)
}

// join counts the caller as waiting for a flight, and begins it where there is none.
func (g *Group[T]) join(ctx context.Context, key string, work func(context.Context) (T, error)) (*flight[T], error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		g.mu.Lock()
		f := g.all[key]
		switch {
		case g.closed:
			g.mu.Unlock()
			return nil, ErrClosed
		case f == nil:
			own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
			f = &flight[T]{cancel: cancel, waiting: 1, done: make(chan struct{})}
			if g.all == nil {
				g.all = make(map[string]*flight[T])
			}
			g.all[key] = f
			go g.fly(own, key, f, work)
		case f.waiting == 0 && !g.Stays:
			g.mu.Unlock()
			// All callers left and it is being cut: wait for that, then begin again.
			select {
			case <-f.done:
			case <-ctx.Done():
			}
			continue
		default:
			f.waiting++
		}
		g.mu.Unlock()
		return f, nil
	}
}

func (g *Group[T]) fly(ctx context.Context, key string, f *flight[T], work func(context.Context) (T, error)) {
	f.err = errExit // unless the work returns
	defer func() {
		if why := recover(); why != nil {
			f.panics = fmt.Errorf("%v\n\n%s", why, debug.Stack())
		}
		f.cancel(nil)
		g.mu.Lock()
		delete(g.all, key)
		g.mu.Unlock()
		close(f.done)
	}()
	f.result, f.err = work(ctx)
}

// Close ends all work and returns when it has ended. None begins after it.
func (g *Group[T]) Close() {
	g.mu.Lock()
	g.closed = true
	var all []*flight[T]
	for _, f := range g.all {
		all = append(all, f)
	}
	g.mu.Unlock()
	for _, f := range all {
		f.cancel(ErrClosed)
	}
	for _, f := range all {
		<-f.done
	}
}

// outcome is what the work made. A panic of it is raised in each waiting caller, which
// may have something to undo, and may know how to live with it.
func (f *flight[T]) outcome() (T, error) {
	if f.panics != nil {
		panic(f.panics)
	}
	return f.result, f.err
}
