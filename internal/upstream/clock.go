package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// A clock ends calls that take too long. A timer for each call would be set and
// cleared thousands of times a second and rarely fire; one check a second covers
// all calls, while there are any.
type clock struct {
	keys    string // where those of the server are in the config
	mu      sync.Mutex
	calls   map[*deadline]struct{}
	looking bool
}

// A deadline is how long one call may still take. It is paused while a question of
// the server waits for the client.
type deadline struct {
	keys   string // where those of the server are
	each   time.Duration
	whole  time.Duration
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	at      time.Time // zero for never
	most    time.Time // progress does not push at beyond it
	asking  int       // questions that have no answer yet
	stopped time.Time // when the first of them came
}

// progress renews the call's time: the server is at work. The maximum age stays.
func (d *deadline) progress() {
	if d == nil || d.each <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.asking > 0 {
		now = d.stopped
	}
	if d.at = now.Add(d.each); d.at.After(d.most) {
		d.at = d.most
	}
}

// pause stops the time of the call until resume is called, once for each pause.
func (d *deadline) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asking++; d.asking == 1 {
		d.stopped = time.Now()
	}
}

func (d *deadline) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asking--; d.asking > 0 || d.at.IsZero() {
		return
	}
	waited := time.Since(d.stopped)
	d.at, d.most = d.at.Add(waited), d.most.Add(waited)
}

// over is why the call has run out of time; nil while it has some.
func (d *deadline) over(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.asking > 0 || d.at.IsZero() || d.at.After(now):
		return nil
	case d.whole > d.each && d.at.Equal(d.most):
		return overdue{d.whole, d.keys + "policy.max_timeout"}
	}
	return overdue{d.each, d.keys + "timeout"}
}

// overdue is why a call that took too long ends: the limit, and its key in the
// config.
type overdue struct {
	after time.Duration
	key   string
}

func (e overdue) Error() string {
	return fmt.Sprintf("no answer within %s (%s)", config.Brief(e.after), e.key)
}

func (e overdue) Is(target error) bool { return target == context.DeadlineExceeded }

// Within bounds a call by a time that its caller gave, besides the server's own.
func Within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, overdue{most, "the timeout of the call"})
}

// Overdue says which limit ended a call's context, and its key in the config; empty if
// the context ended for another reason.
func Overdue(ctx context.Context) string {
	if late := (overdue{}); errors.As(context.Cause(ctx), &late) {
		return late.Error()
	}
	return ""
}

// question stops the time of a call that may need the answer to a question, until
// answered is called.
func (d *deadline) question() (answered func()) {
	if d == nil {
		return func() {}
	}
	d.pause()
	return d.resume
}

// question stops the time of all pending calls.
func (c *clock) question() (answered func()) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.calls))
	c.mu.Unlock()
	for _, d := range all {
		d.pause()
	}
	return func() {
		for _, d := range all {
			d.resume()
		}
	}
}

const clockEvery = time.Second

// add has cancel called with an overdue once each has passed since the beginning or the
// last progress, or most since the beginning, not counting the time of questions, give
// or take a second, unless the returned deadline is removed before. If each is zero,
// only stop calls it.
func (c *clock) add(each, most time.Duration, cancel context.CancelCauseFunc) *deadline {
	d := &deadline{keys: c.keys, each: each, whole: max(most, each), cancel: cancel}
	if each > 0 {
		now := time.Now()
		d.at, d.most = now.Add(each), now.Add(d.whole)
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

// stop ends all calls.
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
	now := time.Now()
	for d := range c.calls {
		if why := d.over(now); why != nil {
			delete(c.calls, d)
			d.cancel(why)
		}
	}
	if c.looking = len(c.calls) > 0; c.looking {
		time.AfterFunc(clockEvery, c.look)
	}
}
