package upstream

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// errAnew says that an instance could not be adopted and that a new one is needed,
// whose packages are fetched first.
var errAnew = errors.New("a new instance is wanted")

// adopts reports whether the next attempt is to adopt an instance.
func (u *Upstream) adopts() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.adopt != nil
}

// fetch fetches the packages of a new instance. It has its own time limit, which
// the start does not count, and continues if the Upstream is closed.
func (u *Upstream) fetch() (err error) {
	f, ok := u.o.Driver.(driver.Fetcher)
	if !ok {
		return nil
	}
	defer telemetry.Contain(u.o.Log, telemetry.InDriver, u.Server(), func(e error) { err = e })
	most := time.Duration(0)
	if u.o.FetchTime != nil {
		most = u.o.FetchTime()
	}
	u.mu.Lock()
	u.fetches = true
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		u.fetches, u.fetched = false, time.Now()
		u.mu.Unlock()
	}()
	return f.Fetch(u.life, u.o.Spec, most)
}

// connecting is a context with the time that a start has, after its packages are
// fetched.
func (u *Upstream) connecting(a *attempt) (context.Context, context.CancelFunc) {
	wait := time.Duration(u.connect.Load())
	late := failure(api.KindTimeout, u.Server(), true, "did not start within %s; servers.%s.connect_timeout allows more", config.Brief(wait), u.o.Spec.Server)
	ctx, cancel := context.WithTimeoutCause(u.life, wait, slowStart{late})
	// A program may take longer to end than a list waits; the list gets the reason
	// without waiting for it.
	context.AfterFunc(ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.attempt == a && errors.As(context.Cause(ctx), new(slowStart)) {
			u.failing = late
		}
	})
	return ctx, cancel
}

// slowStart is the error of a start that took too long.
type slowStart struct{ error }

func (e slowStart) Unwrap() error { return e.error }

// refetch lets the driver look for packages again after a start that took too long.
func (u *Upstream) refetch(err error) {
	if f, ok := u.o.Driver.(driver.Fetcher); ok && errors.As(err, new(slowStart)) {
		f.Refetch(u.o.Spec)
	}
}

// Fetching reports the progress of the fetch that the start waits for; nil if there
// is none.
func (u *Upstream) Fetching() *api.Fetch {
	u.mu.Lock()
	starts := u.attempt != nil
	u.mu.Unlock()
	if f, ok := u.o.Driver.(driver.Fetcher); ok && starts {
		return f.Fetching(u.o.Spec)
	}
	return nil
}

// fetchProgressEvery is how often a client gets the progress of a fetch that its
// call waits for.
const fetchProgressEvery = time.Second

// reportFetch sends the client of a call the progress of the fetch that the call waits
// for, until stop is called. Progress must grow, so its values are below zero, and the
// server may begin with zero later.
func (u *Upstream) reportFetch(req *Request) (stop func()) {
	_, fetches := u.o.Driver.(driver.Fetcher)
	if !fetches || req.Peer == nil || !req.Params.ProgressToken.Ok() || u.Peek() != nil {
		return func() {}
	}
	token := req.Params.ProgressToken.Of(req.Params.Raw)
	over := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		defer telemetry.Contain(u.o.Log, telemetry.InUpstream, u.Server(), func(error) {})
		tick := time.NewTicker(fetchProgressEvery)
		defer tick.Stop()
		said, progress := "", -1.0
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			f := u.Fetching()
			if f == nil || f.String() == said {
				continue
			}
			said = f.String()
			params := append([]byte(`{"`+wire.MetaProgressToken+`":`), token...)
			params = strconv.AppendFloat(append(params, `,"progress":`...), progress, 'f', -1, 64)
			req.Peer.Note(wire.NoteProgress, append(wire.AppendQuote(append(params, `,"message":`...), said), '}'))
			progress /= 2
		}
	})
	return func() {
		close(over)
		reporting.Wait()
	}
}

// Within is a context that ends after so long, not counting a fetch that the start
// waits for.
func (u *Upstream) Within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began := time.Now()
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(most, func() {
		u.mu.Lock()
		fetches, since := u.fetches, later(began, u.fetched)
		u.mu.Unlock()
		left := most - time.Since(since)
		if fetches {
			left = min(most, time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case left > 0:
			timer.Reset(left)
		default:
			cancel(context.DeadlineExceeded)
		}
	})
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		cancel(nil)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
