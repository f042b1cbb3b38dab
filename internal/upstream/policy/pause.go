package policy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/upstream"
)

// These bound how long a server can pause its calls.
const (
	leastHold = time.Second
	maxHold   = 10 * time.Minute
)

// A pause is the time for which a server asked to be left alone.
type pause struct {
	server *Server
	clock  clock
	until  *atomic.Int64 // by the clock; zero for none
}

func newPause(s *Server) pause {
	return pause{server: s, clock: clock{time.Now()}, until: new(atomic.Int64)}
}

// check refuses while the pause lasts.
func (h *pause) check() error {
	until := h.until.Load()
	if until == 0 {
		return nil
	}
	left := time.Duration(until - h.clock.now())
	if left <= 0 {
		h.until.CompareAndSwap(until, 0)
		return nil
	}
	return h.refusal(left)
}

func (h *pause) refusal(left time.Duration) error {
	return h.server.refuse(reasonHold, api.KindRefused, 429, left,
		"it asked for fewer calls; the next one is let through in %d s", seconds(left))
}

// observe starts a pause when a server's answer asks for one, and refuses the calls
// that wait for their turn.
func (h *pause) observe(err error) {
	var e *api.Error
	if !errors.As(err, &e) {
		return
	}
	// A 503 that says when to come back means the same. A server that could not
	// be started, and the breaker, say that too, but nothing was sent then.
	if e.Status != 429 && (e.RetryAfter == 0 || e.Kind != api.KindInfrastructure || upstream.Unsent(err)) {
		return
	}
	wait := min(max(time.Duration(e.RetryAfter)*time.Second, leastHold), maxHold)
	until := h.clock.now() + int64(wait)
	for {
		old := h.until.Load()
		if old >= until {
			return
		}
		if h.until.CompareAndSwap(old, until) {
			break
		}
	}
	h.server.log.Info("server asked for fewer calls", "server", h.server.id, "wait", wait)
	h.server.turns.turnAway(h, wait)
}

// pausing refuses calls while the pause lasts: also the second attempt of a call
// that was let through before.
type pausing struct {
	h    *pause
	next upstream.Caller
}

// Call implements upstream.Caller.
func (c *pausing) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	if err := c.h.check(); err != nil {
		return nil, err
	}
	res, err := c.next.Call(ctx, req)
	if err != nil {
		c.h.observe(err)
		err = saysWhen(err)
	}
	return res, err
}

// saysWhen adds to a 429 how long it pauses all calls, where the server did
// not say.
func saysWhen(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Status != 429 || e.RetryAfter > 0 {
		return err
	}
	told := *e
	told.RetryAfter = seconds(leastHold)
	if upstream.Unsent(err) {
		return upstream.NotSent(&told)
	}
	return &told
}
