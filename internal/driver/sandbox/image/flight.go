package image

import (
	"context"
	"sync"
)

// flights let several wait for one piece of work. It has a context of its own, so
// that whoever came first may leave, and ends early when the last one leaves.
type flights[T any] struct {
	mu  sync.Mutex
	all map[string]*flight[T]
}

type flight[T any] struct {
	cancel  context.CancelFunc
	waiting int
	done    chan struct{}
	result  T
	err     error
}

func (fs *flights[T]) share(ctx context.Context, key string, work func(context.Context) (T, error)) (T, error) {
	var none T
	for {
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		fs.mu.Lock()
		f := fs.all[key]
		switch {
		case f == nil:
			own, cancel := context.WithCancel(context.WithoutCancel(ctx))
			f = &flight[T]{cancel: cancel, waiting: 1, done: make(chan struct{})}
			if fs.all == nil {
				fs.all = map[string]*flight[T]{}
			}
			fs.all[key] = f
			go fs.fly(own, key, f, work)
		case f.waiting == 0:
			// Everybody left and it is being cut: wait for that, then begin again.
			fs.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
			}
			continue
		default:
			f.waiting++
		}
		fs.mu.Unlock()

		select {
		case <-f.done:
			return f.result, f.err
		case <-ctx.Done():
		}
		fs.mu.Lock()
		f.waiting--
		last := f.waiting == 0
		fs.mu.Unlock()
		if last {
			f.cancel()
			<-f.done // nothing of it is left when we return
			if f.err == nil {
				return f.result, nil
			}
		}
		return none, context.Cause(ctx)
	}
}

func (fs *flights[T]) fly(ctx context.Context, key string, f *flight[T], work func(context.Context) (T, error)) {
	defer f.cancel()
	result, err := work(ctx)
	fs.mu.Lock()
	f.result, f.err = result, err
	delete(fs.all, key)
	fs.mu.Unlock()
	close(f.done)
}
