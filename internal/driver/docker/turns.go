package docker

import (
	"context"
	"sync"
)

// turns let only one at a time work on a thing that has a name, an image or a
// template. The next one finds what is made, and has its own use for it.
type turns struct {
	mu  sync.Mutex
	now map[string]chan struct{} // closed when it is over
}

func newTurns() *turns { return &turns{now: make(map[string]chan struct{})} }

// enter waits for the caller that makes the thing, and returns how to say that this one
// is done with it.
func (t *turns) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		t.mu.Lock()
		other, busy := t.now[name]
		if !busy {
			over := make(chan struct{})
			t.now[name] = over
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.now, name)
				t.mu.Unlock()
				close(over)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
