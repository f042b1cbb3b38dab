package testkit

import (
	"sync"
	"time"
)

// A Clock is a time that only a test moves, so that a slow machine changes
// nothing. The zero value shows the zero time.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that shows at.
func NewClock(at time.Time) *Clock { return &Clock{at: at} }

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
