package upstream

import (
	"context"
	"sync"
	"time"
)

// A clock ends calls that take too long. A timer for each call would be set
// and cleared thousands of times a second and hardly ever fire; calls that end
// in the same second share one instead.
type clock struct {
	mu      sync.Mutex
	buckets map[int64]*bucket
}

type bucket struct {
	ctx   context.Context
	end   context.CancelFunc
	timer *time.Timer
	users int
}

// after calls cancel with context.DeadlineExceeded once d is over, give or
// take a second, unless stop is called before.
func (c *clock) after(d time.Duration, cancel context.CancelCauseFunc) (stop func()) {
	at := time.Now().Add(d).Unix() + 1
	c.mu.Lock()
	b := c.buckets[at]
	if b == nil {
		b = &bucket{}
		b.ctx, b.end = context.WithCancel(context.Background())
		b.timer = time.AfterFunc(time.Until(time.Unix(at, 0)), b.end)
		if c.buckets == nil {
			c.buckets = make(map[int64]*bucket)
		}
		c.buckets[at] = b
	}
	b.users++
	c.mu.Unlock()
	forget := context.AfterFunc(b.ctx, func() { cancel(context.DeadlineExceeded) })
	return func() {
		forget()
		c.mu.Lock()
		defer c.mu.Unlock()
		if b.users--; b.users == 0 {
			b.timer.Stop()
			b.end()
			delete(c.buckets, at)
		}
	}
}
