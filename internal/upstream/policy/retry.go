package policy

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// retry repeats a call that failed for no fault of its own, where that can do
// no harm: nothing of it was sent, or it changes nothing, or nothing more.
type retry struct {
	server *Server
	hints  *hints
	ask    upstream.Caller // for hints
	next   upstream.Caller
}

// Call implements upstream.Caller.
func (r *retry) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	p := &r.server.policy.Load().Retry
	if p.Attempts <= 1 {
		return r.next.Call(ctx, req)
	}
	req, asking := watch(req)
	res, err := r.next.Call(ctx, req)
	if err == nil {
		return res, nil
	}
	pauses := pausesOf(p)
	var sent answer // the last attempt that may have reached the server
	for n := 1; err != nil; n++ {
		if !upstream.Unsent(err) {
			sent = answer{res, err}
		}
		if n >= p.Attempts || asking.wasAsked() || !r.harmless(ctx, req, err) || !r.pause(ctx, req, min(pauses.NextBackOff(), pauses.MaxInterval)) {
			break
		}
		r.server.metrics.Retry()
		r.server.log.Debug("call repeated", "server", r.server.id, "method", req.Method, "name", req.Name, "attempt", n+1, "err", err)
		res, err = r.next.Call(ctx, req)
	}
	// If the last attempt was not sent, an earlier one may have been.
	if err != nil && sent.err != nil && upstream.Unsent(err) {
		return sent.res, sent.err
	}
	return res, err
}

func pausesOf(p *config.Retry) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = max(p.Pause, time.Millisecond)
	b.MaxInterval = max(p.MaxPause, b.InitialInterval)
	b.Multiplier = 2
	return b
}

// harmless reports whether a call that failed may and should be made again.
func (r *retry) harmless(ctx context.Context, req *upstream.Request, err error) bool {
	if ctx.Err() != nil || upstream.StateLost(err) || upstream.Forgot(err) {
		return false
	}
	e, unsent := kindOf(err), upstream.Unsent(err)
	switch {
	case e.Final:
		return false
	case e.RetryAfter > 0 || e.Status == 429:
		return false // it would come too early, also after a refusal by a policy
	case e.Kind == api.KindInfrastructure && (e.Retryable || unsent):
	case e.Kind == api.KindLost:
	default:
		return false
	}
	if unsent {
		return true
	}
	switch req.Method {
	case wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates,
		wire.MethodReadResource, wire.MethodGetPrompt, wire.MethodComplete:
		return true
	case wire.MethodCallTool:
		return r.hints.of(ctx, req, r.ask) != 0
	}
	return false
}

// pause waits before another attempt, also for a token of the rate if it needs one.
// It reports false if the attempt would come too late for its caller.
func (r *retry) pause(ctx context.Context, req *upstream.Request, d time.Duration) bool {
	giveBack := func() {}
	if _, list := kindOfList(req.Method); !list {
		wait, back, ok := r.server.turns.borrow()
		if !ok {
			return false
		}
		d, giveBack = max(d, wait), back
	}
	if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
		giveBack()
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		giveBack()
		return false
	}
}
