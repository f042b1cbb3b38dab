package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tine-mcp/tine/api"
)

// headerKey makes a request that is sent again the same request.
const headerKey = "Idempotency-Key"

// maxAnswer bounds what an orchestrator may answer, other than to a call.
const maxAnswer = 1 << 20

// maxAfter is how long an orchestrator may have a request wait before it counts
// as refused.
const maxAfter = 30 * time.Second

// web sends requests to one orchestrator.
type web struct {
	server   string
	http     *http.Client
	header   http.Header
	mask     *mask
	timeout  time.Duration
	attempts int
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// A fault is a request that was not answered as it should be.
type fault struct {
	what    string   // method and URL, without secrets
	status  int      // zero without an answer
	excerpt string   // of the answer
	kind    api.Kind // whose failure it says it is; empty where it does not
	after   time.Duration
	err     error
	unsent  bool // it is certain that nothing was sent
	torn    bool // the answer broke off
}

func (f *fault) Error() string {
	if f.status == 0 {
		return fmt.Sprintf("%s: %v", f.what, f.err)
	}
	text := fmt.Sprintf("%s answered %d %s", f.what, f.status, http.StatusText(f.status))
	if f.excerpt != "" {
		text += ": " + f.excerpt
	}
	if f.err != nil {
		text += " (" + f.err.Error() + ")"
	}
	return text
}

func (f *fault) Unwrap() error { return f.err }

// As lets an orchestrator say when to come again.
func (f *fault) As(target any) bool {
	r, ok := target.(**backoff.RetryAfterError)
	if !ok || f.after <= 0 {
		return false
	}
	*r = &backoff.RetryAfterError{Duration: f.after}
	return true
}

// passing reports whether the same request may do better later.
func (f *fault) passing() bool {
	if f.torn && f.status < 300 {
		return true
	}
	switch f.status {
	case 0:
		return !errors.As(f.err, new(*elsewhere))
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return f.after <= maxAfter
	case http.StatusNotImplemented:
		return false
	}
	return f.status >= 500 && f.after <= maxAfter
}

// harmless reports whether it is certain that the request did nothing. again says
// that it was sent before: a conflict is then with itself.
func (f *fault) harmless(again bool) bool {
	switch {
	case f.unsent || errors.As(f.err, new(*elsewhere)):
		return true
	case f.status == http.StatusRequestTimeout, f.status == http.StatusTooEarly, f.status == http.StatusConflict && again:
		return false
	}
	return f.status >= 300 && f.status < 500
}

// locked reports whether it is the credentials that are not right.
func (f *fault) locked() bool {
	return f.status == http.StatusUnauthorized || f.status == http.StatusForbidden || f.status == http.StatusProxyAuthRequired
}

// forgotten reports whether the thing is not there.
func forgotten(err error) bool {
	var f *fault
	return errors.As(err, &f) && (f.status == http.StatusNotFound || f.status == http.StatusGone)
}

// once sends a request one time. An answer that is no success is a fault.
func (w *web) once(ctx context.Context, method string, u *url.URL, key string, body []byte, limit int) (answer, error) {
	what := method + " " + shown(u)
	var reached atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})
	fail := func(f fault) (answer, error) {
		f.what = what
		return answer{status: f.status}, &f
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(traced, method, u.String(), reader)
	if err != nil {
		return fail(fault{err: plain(err), unsent: true})
	}
	for name, values := range w.header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set(headerKey, key)
	}
	resp, err := w.http.Do(req)
	if resp != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(fault{err: plain(err), unsent: !reached.Load()})
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1)); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(fault{status: a.status, excerpt: w.mask.excerpt(a.body), err: fmt.Errorf("the answer broke off: %w", err), torn: true})
	}
	if a.status < 200 || a.status > 299 {
		return fail(fault{status: a.status, excerpt: w.mask.excerpt(a.body), kind: kindOf(a.body), after: retryAfter(a.header)})
	}
	if len(a.body) > limit {
		return fail(fault{status: a.status, err: fmt.Errorf("the answer is larger than %d bytes", limit)})
	}
	return a, nil
}

// again sends a request until it is answered, as often as the config says.
func (w *web) again(ctx context.Context, each func(context.Context) (answer, error)) (answer, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 200*time.Millisecond, 5*time.Second
	return backoff.Retry(ctx, func() (answer, error) {
		a, err := each(ctx)
		var f *fault
		if err != nil && (!errors.As(err, &f) || !f.passing() || ctx.Err() != nil) {
			return a, backoff.Permanent(err)
		}
		return a, err
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(uint(w.attempts)), backoff.WithMaxElapsedTime(0))
}

// send is once, several times where that helps, each within the timeout.
func (w *web) send(ctx context.Context, method string, u *url.URL, key string, body []byte) (answer, error) {
	return w.again(ctx, func(ctx context.Context) (answer, error) {
		ctx, cancel := w.within(ctx)
		defer cancel()
		return w.once(ctx, method, u, key, body, maxAnswer)
	})
}

// within bounds one request.
func (w *web) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, w.timeout, &slow{w.timeout})
}

// slow is the error of a request that was not answered in time.
type slow struct{ after time.Duration }

func (s *slow) Error() string { return "no answer within " + s.after.String() }

// Is makes it a deadline that has passed.
func (s *slow) Is(target error) bool { return target == context.DeadlineExceeded }

// retryAfter reads the header of that name, in seconds or as a date.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(n, 0), 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
