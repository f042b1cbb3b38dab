package policy

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// flights merge concurrent requests for the same work. The work belongs to no
// caller in particular: it runs while at least one caller waits for it, and is
// cancelled when none does.
type flights[K comparable, V any] struct {
	tasks *tasks
	mu    sync.Mutex
	m     map[K]*flight[V]
}

type flight[V any] struct {
	done    chan struct{}
	val     V
	waiting int // guarded by flights.mu
	cancel  context.CancelFunc
	panic   error // what the work panicked with; nil where it did not
}

// do returns the result of fn for the key. It reports false if ctx ended first, or
// the server was closed. fn runs in a goroutine of its own, with the values of the
// first caller's context but not its end.
func (fs *flights[K, V]) do(ctx context.Context, key K, fn func(context.Context) V) (val V, ok bool) {
	fs.mu.Lock()
	f := fs.m[key]
	if f == nil {
		if f = fs.start(ctx, key, fn); f == nil {
			fs.mu.Unlock()
			return val, false
		}
	}
	f.waiting++
	fs.mu.Unlock()
	select {
	case <-f.done:
		if f.panic != nil {
			panic(f.panic) // in each waiting goroutine, whose caller contains it
		}
		return f.val, true
	case <-ctx.Done():
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		fs.remove(key, f)
	}
	return val, false
}

// start begins a flight. fs.mu is held.
func (fs *flights[K, V]) start(ctx context.Context, key K, fn func(context.Context) V) *flight[V] {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight[V]{done: make(chan struct{}), cancel: cancel}
	stop := context.AfterFunc(fs.tasks.life, cancel)
	started := fs.tasks.start(func() {
		defer cancel()
		defer stop()
		defer func() {
			if v := recover(); v != nil {
				f.panic = fmt.Errorf("%v\n\n%s", v, debug.Stack())
			}
			fs.mu.Lock()
			fs.remove(key, f)
			fs.mu.Unlock()
			close(f.done)
		}()
		f.val = fn(own)
	})
	if !started {
		stop()
		cancel()
		return nil
	}
	if fs.m == nil {
		fs.m = make(map[K]*flight[V])
	}
	fs.m[key] = f
	return f
}

func (fs *flights[K, V]) remove(key K, f *flight[V]) {
	if fs.m[key] == f {
		delete(fs.m, key)
	}
}

// forget makes later callers start anew instead of joining a running flight.
// Callers that already wait get its result.
func (fs *flights[K, V]) forget(which func(K) bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for key := range fs.m {
		if which(key) {
			delete(fs.m, key)
		}
	}
}
