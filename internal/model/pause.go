package model

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A pause is the time for which an endpoint asked to be left alone. All calls of a
// model keep to it, so that one answer spares the others their attempts.
type pause struct {
	mu    sync.Mutex
	until time.Time
}

// extend makes the pause at least so long from now.
func (p *pause) extend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := time.Now().Add(d); t.After(p.until) {
		p.until = t
	}
}

func (p *pause) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.IsZero() {
		return 0
	}
	return time.Until(p.until)
}

// scattered adds up to a tenth, so that those who wait do not all come at once.
func scattered(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return d + rand.N(d/10+1)
}

// enough reports whether ctx lasts longer than d.
func enough(ctx context.Context, d time.Duration) bool {
	at, ok := ctx.Deadline()
	return !ok || time.Until(at) > d
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
