package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A clock ends calls that take too long. A timer for each call would be set
// and cleared thousands of times a second and hardly ever fire; one look a
// second does it for all, while there are any.
type clock struct {
	mu      sync.Mutex
	calls   map[*deadline]struct{}
	looking bool
}

// A deadline is how long one call may still take.
type deadline struct {
	at     atomic.Int64 // unix nanoseconds; zero for none
	each   time.Duration
	most   int64 // unix nanoseconds that progress does not push at beyond
	cancel context.CancelCauseFunc
}

// progress gives the call its whole time again: the server is at work. The
// call's greatest age stays.
func (d *deadline) progress() {
	if d == nil || d.each <= 0 {
		return
	}
	d.at.Store(min(time.Now().Add(d.each).UnixNano(), d.most))
}

const clockEvery = time.Second

// add has cancel called with context.DeadlineExceeded once each is over since
// the beginning or the last progress, or most since the beginning, give or take
// a second, unless the deadline it returns is removed before. With no each it
// is called at stop only.
func (c *clock) add(each, most time.Duration, cancel context.CancelCauseFunc) *deadline {
	d := &deadline{each: each, cancel: cancel}
	if each > 0 {
		now := time.Now()
		d.at.Store(now.Add(each).UnixNano())
		d.most = now.Add(max(most, each)).UnixNano()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[*deadline]struct{})
	}
	c.calls[d] = struct{}{}
	if each > 0 && !c.looking {
		c.looking = true
		time.AfterFunc(min(each, clockEvery), c.look)
	}
	return d
}

func (c *clock) remove(d *deadline) {
	c.mu.Lock()
	delete(c.calls, d)
	c.mu.Unlock()
}

// stop ends every call there is.
func (c *clock) stop(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.calls {
		delete(c.calls, d)
		d.cancel(cause)
	}
}

func (c *clock) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UnixNano()
	for d := range c.calls {
		if at := d.at.Load(); at != 0 && at <= now {
			delete(c.calls, d)
			d.cancel(context.DeadlineExceeded)
		}
	}
	if c.looking = len(c.calls) > 0; c.looking {
		time.AfterFunc(clockEvery, c.look)
	}
}
