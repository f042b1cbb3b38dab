package docker

import (
	"context"
	"sync"
)

// flights lets things that have a name be made once where several want them at
// the same time: an image, a template.
type flights struct {
	mu  sync.Mutex
	now map[string]chan struct{} // closed when it is over
}

func newFlights() *flights { return &flights{now: make(map[string]chan struct{})} }

// enter waits for whoever makes the thing, and returns how to say that one is
// done with it.
func (f *flights) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		f.mu.Lock()
		other, busy := f.now[name]
		if !busy {
			over := make(chan struct{})
			f.now[name] = over
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.now, name)
				f.mu.Unlock()
				close(over)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
