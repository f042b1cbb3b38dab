package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// Call implements Caller, through the policies of the server. Subscriptions to
// resources are counted besides: see Subscription.
func (u *Upstream) Call(ctx context.Context, req *Request) (*Result, error) {
	u.calls.Add(1)
	defer u.calls.Add(-1)
	if req.Method == wire.MethodUnsubscribe && !u.unwanted(req.Name) {
		return &Result{Result: []byte("{}")}, nil
	}
	return u.chain.Call(ctx, req)
}

// relay is an Upstream without its policies, except for the timeout: that counts
// from when the server has started and is renewed by progress.
type relay struct{ u *Upstream }

// Call implements Caller.
func (r relay) Call(ctx context.Context, req *Request) (res *Result, err error) {
	u := r.u
	defer telemetry.Contain(u.o.Log, telemetry.InUpstream, u.Server(), func(e error) { res, err = nil, e })
	if req.Method == wire.MethodUnsubscribe {
		if c := u.Peek(); c == nil || c.ended() {
			return &Result{Result: []byte("{}")}, nil // not worth starting a server for
		}
	}
	stop := u.reportFetch(req)
	c, err := u.connFor(ctx, req)
	stop()
	if err != nil {
		return nil, u.notStarted(req, err)
	}
	if err := u.before(c, req); err != nil {
		return nil, err
	}
	if c.parker != nil {
		c.parker.Acquire()
		defer c.parker.Release()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A copy: the connection's reader may still look at the request of an earlier
	// attempt.
	attempt := *req
	attempt.deadline = u.clock.add(time.Duration(u.timeout.Load()), time.Duration(u.most.Load()), cancel)
	defer u.clock.remove(attempt.deadline)
	if u.life.Err() != nil { // closed meanwhile, and nothing would end the call
		return nil, u.gone()
	}
	switch req.Method {
	case wire.MethodSubscribe:
		return u.subscribe(ctx, c, &attempt)
	case wire.MethodUnsubscribe:
		return c.unsubscribe(ctx, &attempt)
	}
	res, err = c.Call(ctx, &attempt)
	u.judge(c, err)
	if recalls(req.Method) {
		c.uses.makes()
	}
	if err != nil {
		err = u.fails(c, req, err)
	}
	return res, err
}

// judge notes what a call over HTTP says about the server: such a connection does
// not end with the server, as a stream does.
func (u *Upstream) judge(c *Conn, err error) {
	if _, web := c.t.(*httpTransport); !web {
		return
	}
	if err == nil {
		u.o.Health.answers(u.Server())
		return
	}
	e := asOurs(err)
	no := e.Status >= 400 && e.Status < 500 // to this request
	if e.Kind != api.KindInfrastructure && e.Kind != api.KindLost || no || StateLost(err) || TooLarge(err) || IsClosed(err) || u.died(c) {
		return
	}
	u.o.Health.fails(u.Server(), u.Session(), err)
}

// Conn returns the connection, and starts the instance and waits for it if needed.
// A server that failed recently is not tried again at once; the error says why and
// when.
func (u *Upstream) Conn(ctx context.Context) (*Conn, error) {
	for {
		u.mu.Lock()
		switch {
		case u.closed:
			u.mu.Unlock()
			return nil, u.gone()
		case u.conn != nil:
			c, inst := u.conn, u.inst
			u.mu.Unlock()
			if !c.ended() && !over(inst) {
				return c, nil
			}
			// It is about to be replaced.
			select {
			case <-c.replaced:
				continue
			case <-ctx.Done():
				return nil, u.gaveUp(ctx)
			}
		}
		if u.attempt == nil && u.held > 0 {
			unheld := u.unheld
			u.mu.Unlock()
			select {
			case <-unheld:
				continue
			case <-ctx.Done():
				return nil, u.gaveUp(ctx)
			}
		}
		if u.attempt == nil {
			if wait := time.Until(u.next); wait > 0 {
				reason, words, lost, final := u.reason, u.words, u.lost, u.final
				u.mu.Unlock()
				if lost != nil {
					return nil, lost
				}
				if final {
					err := failure(api.KindInfrastructure, u.Server(), false, "%s", reason)
					err.Words, err.Own, err.Final = words, u.alone(), true
					return nil, err
				}
				if wait > time.Second {
					err := failure(api.KindInfrastructure, u.Server(), true, "%s; next try in %s", reason, wait.Round(time.Second))
					err.RetryAfter = int(math.Ceil(wait.Seconds()))
					err.Words, err.Own = words, u.alone()
					return nil, err
				}
				select {
				case <-time.After(wait):
					continue
				case <-ctx.Done():
					return nil, u.gaveUp(ctx)
				}
			}
			u.begin()
		}
		a := u.attempt
		a.wanted = true
		u.mu.Unlock()
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, u.gaveUp(ctx)
		}
	}
}

// over reports whether an instance has ended; a nil one is being removed.
func over(inst driver.Instance) bool {
	if inst == nil {
		return true
	}
	select {
	case <-inst.Done():
		return true
	default:
		return false
	}
}

func (u *Upstream) gone() error {
	return closedError{failure(api.KindRefused, u.Server(), false, "was removed or disabled")}
}

func (u *Upstream) gaveUp(ctx context.Context) error {
	doing, then := "starting", ""
	if f := u.Fetching(); f != nil {
		doing, then = f.String(), fmt.Sprintf("; the fetch of package %q goes on", f.Package)
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return failure(api.KindTimeout, u.Server(), true, "is still %s%s", doing, then)
	}
	return failure(api.KindRefused, u.Server(), true, "the call was cancelled while the server was %s%s", doing, then)
}

// closedError is the error of an Upstream that was closed before the request
// was sent.
type closedError struct{ error }

func (e closedError) Unwrap() error { return e.error }

// IsClosed reports whether a call failed because its Upstream was closed
// before anything was sent: the server may have another one by now.
func IsClosed(err error) bool {
	var c closedError
	return errors.As(err, &c)
}
