package policy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A breaker refuses calls to a server that failed several times in a row, and lets
// a few through after a pause to test whether it has recovered.
//
//	closed --failures in a row--> open --pause over--> half-open --probes ok--> closed
//	                               ^------------a probe fails------'
type breaker struct {
	server *Server
	own    bool
	clock  clock

	circuit atomic.Pointer[circuit]
	mu      sync.Mutex // held while the circuit is replaced

	failures atomic.Int64 // in a row
	tripped  atomic.Int64 // failures when it opened
	opened   atomic.Int64 // by the clock
	used     atomic.Int64 // last failure, by the clock; zero before the first
	last     atomic.Pointer[api.Error]
	death    atomic.Pointer[string] // the last end of a connection that was counted
}

// A circuit is a breaker with the settings it was made with.
type circuit struct {
	set config.Breaker
	cb  *gobreaker.CircuitBreaker[*upstream.Result] // nil without a breaker
	// trip is how many failures open it. Circuits with the same breaker share it.
	trip *atomic.Int64
}

func newBreaker(s *Server, own bool) *breaker {
	return &breaker{server: s, own: own, clock: clock{time.Now()}}
}

// Verdicts on a call, for the counting.
var (
	errFailed  = errors.New("the server failed")
	errNeither = errors.New("says nothing about the server")
)

// current returns the circuit of the settings as they are now.
func (b *breaker) current() *circuit {
	want := b.server.policy.Load().Breaker
	if c := b.circuit.Load(); c != nil && c.set == want {
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	want = b.server.policy.Load().Breaker
	old := b.circuit.Load()
	switch {
	case old != nil && old.set == want:
		return old
	case want.Failures <= 0:
		b.failures.Store(0)
		b.circuit.Store(&circuit{set: want})
	case old != nil && old.cb != nil && old.set.Open == want.Open && old.set.Probes == want.Probes:
		old.trip.Store(int64(want.Failures))
		b.circuit.Store(&circuit{set: want, cb: old.cb, trip: old.trip})
	default:
		b.circuit.Store(b.replace(old, want))
	}
	return b.circuit.Load()
}

// replace makes a circuit with other times and the state of the old one.
func (b *breaker) replace(old *circuit, set config.Breaker) *circuit {
	c := &circuit{set: set, trip: new(atomic.Int64)}
	c.cb = gobreaker.NewCircuitBreaker[*upstream.Result](gobreaker.Settings{
		Name: b.server.id, MaxRequests: uint32(max(set.Probes, 1)), Timeout: max(set.Open, time.Millisecond),
		ReadyToTrip:   func(n gobreaker.Counts) bool { return int64(n.ConsecutiveFailures) >= c.trip.Load() },
		IsExcluded:    func(err error) bool { return err == errNeither },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.turned(to) },
	})
	fail := func() { _, _ = c.cb.Execute(func() (*upstream.Result, error) { return nil, errFailed }) }
	if old != nil && old.cb != nil {
		if old.cb.State() == gobreaker.StateClosed {
			c.trip.Store(1 << 32) // repeating the old counts opens nothing
			for range old.cb.Counts().ConsecutiveFailures {
				fail()
			}
		} else {
			c.trip.Store(1)
			fail()
		}
	}
	c.trip.Store(int64(set.Failures))
	return c
}

// turned is called with a new state, with the circuit's lock held.
func (b *breaker) turned(to gobreaker.State) {
	switch to {
	case gobreaker.StateOpen:
		if b.own {
			b.server.failing(b)
		}
		b.opened.Store(b.clock.now())
		b.tripped.Store(max(b.failures.Load(), 1))
		b.server.log.Warn("breaker opened", "server", b.server.id, "failures", b.tripped.Load(), "last", b.lastReason())
	case gobreaker.StateClosed:
		if b.own {
			b.server.fine(b)
		}
		b.server.log.Info("breaker closed", "server", b.server.id)
	}
}

func (b *breaker) lastReason() string {
	if e := b.last.Load(); e != nil {
		return upstream.Reason(e)
	}
	return "unknown"
}

// state returns the state by the api's words; empty without a breaker. An open
// breaker whose pause is over is half-open, even without a call.
func (b *breaker) state() string {
	c := b.current()
	if c.cb == nil {
		return ""
	}
	switch c.cb.State() {
	case gobreaker.StateOpen:
		return api.BreakerOpen
	case gobreaker.StateHalfOpen:
		return api.BreakerHalfOpen
	}
	return api.BreakerClosed
}

// forgotten reports whether an own breaker's instance was not called for so long
// that it no longer speaks for the server: its session may have ended.
func (b *breaker) forgotten() bool {
	age := time.Duration(b.clock.now() - b.used.Load())
	return age > 10*time.Minute+b.server.policy.Load().Breaker.Open
}

// judge decides what the outcome of a call says about the server.
func (b *breaker) judge(ctx context.Context, err error) error {
	if err == nil {
		// Any answer shows that the server is well, also a refusal.
		if b.failures.Load() > 0 {
			b.failures.Store(0)
		}
		return nil
	}
	if ctx.Err() != nil || upstream.TooLarge(err) {
		return errNeither // the caller caused it
	}
	if upstream.StateLost(err) {
		return errNeither // a refusal to wait would hide the loss from the caller
	}
	e := kindOf(err)
	if e.Final {
		return errNeither // waiting would not help, and would hide the reason
	}
	switch e.Kind {
	case api.KindInfrastructure, api.KindTimeout, api.KindLost:
	default:
		return errNeither
	}
	if saysNo(e.Status) && !upstream.Unsent(err) {
		// Also an answer, unlike that to a handshake, where there was no call.
		b.failures.Store(0)
		return nil
	}
	if death := upstream.Death(err); death != "" {
		if last := b.death.Swap(&death); last != nil && *last == death {
			return errNeither // another call that was pending then
		}
	}
	b.last.Store(e)
	b.used.Store(b.clock.now())
	b.failures.Add(1)
	return errFailed
}

// saysNo reports whether an HTTP status is the refusal of one request, as
// opposed to a server that is in trouble or has too much to do.
func saysNo(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// refuse is the error of a call that the breaker refused. It includes the last
// failure, and what the server wrote, if that was of the same session; otherwise it
// may belong to another principal.
func (b *breaker) refuse(c *circuit, probing bool) error {
	err := b.refusal(c, probing)
	if last := b.last.Load(); b.own && last != nil && last.Own {
		e := kindOf(err)
		e.Words, e.Own = last.Words, true
	}
	return err
}

func (b *breaker) refusal(c *circuit, probing bool) error {
	n, last := b.tripped.Load(), ""
	if b.own {
		last = "; the last one: " + b.lastReason()
	}
	if probing {
		return b.server.refuse(reasonBreaker, api.KindInfrastructure, 0, 0,
			"%d calls failed in a row; a test call is running%s", n, last)
	}
	left := c.set.Open - time.Duration(b.clock.now()-b.opened.Load())
	return b.server.refuse(reasonBreaker, api.KindInfrastructure, 0, left,
		"%d calls failed in a row; next try in %ds%s", n, seconds(left), last)
}

// breaking is a Caller behind a breaker.
type breaking struct {
	b    *breaker
	next upstream.Caller
}

// Call implements upstream.Caller.
func (k *breaking) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	c := k.b.current()
	if c.cb == nil {
		return k.next.Call(ctx, req)
	}
	var err error
	res, verdict := c.cb.Execute(func() (*upstream.Result, error) {
		var res *upstream.Result
		res, err = k.next.Call(ctx, req)
		return res, k.b.judge(ctx, err)
	})
	switch verdict {
	case gobreaker.ErrOpenState:
		return nil, k.b.refuse(c, false)
	case gobreaker.ErrTooManyRequests:
		return nil, k.b.refuse(c, true)
	}
	return res, err
}
