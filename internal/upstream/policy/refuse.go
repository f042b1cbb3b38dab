package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/upstream"
)

// Reasons of refusals, as they are counted.
const (
	reasonRate        = "rate"
	reasonConcurrency = "concurrency"
	reasonBreaker     = "breaker"
	reasonHold        = "upstream_limit"
)

// refuse makes the error of a call that a policy refused before anything of it was
// sent, and counts it. All of them say when to come back, so none is repeated.
func (s *Server) refuse(reason string, kind api.Kind, status int, after time.Duration, format string, args ...any) error {
	s.metrics.Refused(reason)
	return upstream.NotSent(&api.Error{
		Kind: kind, Server: s.id, Retryable: true, Status: status, RetryAfter: seconds(after),
		Message: fmt.Sprintf("server %q: ", s.id) + fmt.Sprintf(format, args...),
	})
}

// seconds rounds up to whole seconds, at least one.
func seconds(d time.Duration) int {
	return max(1, int((min(d, maxHold)+time.Second-1)/time.Second))
}

func (s *Server) closed() error {
	return upstream.NotSent(&api.Error{
		Kind: api.KindRefused, Server: s.id, Message: fmt.Sprintf("server %q: was removed or disabled", s.id),
	})
}

// gaveUp is the error of a caller whose context ended, with what the gateway was
// doing for it, if anything.
func (s *Server) gaveUp(ctx context.Context, during string) error {
	e := &api.Error{Kind: api.KindRefused, Server: s.id}
	why := "the call was cancelled"
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		e.Kind, e.Retryable = api.KindTimeout, true
		why = cmp.Or(upstream.Overdue(ctx), "the call timed out")
	}
	e.Message = fmt.Sprintf("server %q: %s%s", s.id, why, during)
	return upstream.NotSent(e)
}

// kindOf returns an error as one of the API's.
func kindOf(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
}
