package upstream

import (
	"context"
	"sync"
	"time"
)

// A clock ends calls that take too long. A timer for each call would be set
// and cleared thousands of times a second and hardly ever fire; one look a
// second does it for all, while there are any.
type clock struct {
	mu      sync.Mutex
	next    uint64
	calls   map[uint64]deadline
	looking bool
}

type deadline struct {
	at     time.Time
	cancel context.CancelCauseFunc
}

const clockEvery = time.Second

// add has cancel called with context.DeadlineExceeded once d is over, give or
// take a second, unless the id it returns is removed before. With no d it is
// called at stop only.
func (c *clock) add(d time.Duration, cancel context.CancelCauseFunc) (id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[uint64]deadline)
	}
	c.next++
	if d <= 0 {
		c.calls[c.next] = deadline{cancel: cancel}
		return c.next
	}
	c.calls[c.next] = deadline{time.Now().Add(d), cancel}
	if !c.looking {
		c.looking = true
		time.AfterFunc(min(d, clockEvery), c.look)
	}
	return c.next
}

func (c *clock) remove(id uint64) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
}

// stop ends every call there is.
func (c *clock) stop(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, d := range c.calls {
		delete(c.calls, id)
		d.cancel(cause)
	}
}

func (c *clock) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for id, d := range c.calls {
		if !d.at.IsZero() && !now.Before(d.at) {
			delete(c.calls, id)
			d.cancel(context.DeadlineExceeded)
		}
	}
	if c.looking = len(c.calls) > 0; c.looking {
		time.AfterFunc(clockEvery, c.look)
	}
}
