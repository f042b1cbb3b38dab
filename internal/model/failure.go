package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A failure is the error of a call, with what the retry needs to know.
type failure struct {
	api   *api.Error
	cause error         // an error of the context, for errors.Is
	again bool          // another attempt may help
	after time.Duration // and is not wanted before
}

func (f *failure) Error() string { return f.api.Message }

func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.api}
	}
	return []error{f.api, f.cause}
}

// Refused is the error of a connection that may not be made: an [Options.Client] returns
// it, and no other attempt follows.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// errTotal is the cause of a context whose call took too long in all.
var errTotal = errors.New("the call took too long")

// gaveUp is the error of a call whose context ended.
func (c *client) gaveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	var over *OverBudget
	switch {
	case errors.As(cause, &over):
		return over
	case errors.Is(cause, errTotal):
		return &failure{cause: context.DeadlineExceeded, api: c.error(api.KindTimeout, true, 0,
			"no reply within %s, with all attempts; raise the timeout or ask for less", c.total)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &failure{cause: cause, api: c.error(api.KindTimeout, true, 0, "no reply before the deadline of the caller")}
	}
	return &failure{cause: errors.Join(context.Canceled, cause), api: c.error(api.KindRefused, false, 0, "the call was cancelled")}
}

func (c *client) error(kind api.Kind, retryable bool, status int, format string, args ...any) *api.Error {
	return &api.Error{Kind: kind, Retryable: retryable, Status: status,
		Message: fmt.Sprintf("model %q: ", c.name) + fmt.Sprintf(format, args...)}
}

// explain makes the error of a failed attempt from the attempt's context and its
// error. The context of the call has not ended.
func (c *client) explain(attempt context.Context, err error, key string) *failure {
	var (
		status *answered
		large  *errTooLarge
		known  *failure
		sent   *url.Error
		no     *Refused
	)
	who := c.provider.host()
	fail := func(again bool, kind api.Kind, format string, args ...any) *failure {
		return &failure{api: c.error(kind, again, 0, format, args...), again: again}
	}
	switch {
	case attempt.Err() != nil:
		return fail(true, api.KindTimeout, "%s sent no complete reply within %s; raise the timeout or ask for less", who, c.timeout)
	case errors.As(err, &known):
		return known
	case errors.As(err, &status):
		return c.explainStatus(status, key)
	case errors.As(err, &large):
		return fail(false, api.KindInfrastructure, "the reply of %s is larger than %d bytes; raise max_reply or ask for less", who, large.max)
	case errors.Is(err, errCut):
		return fail(true, api.KindInfrastructure, "the reply of %s broke off; try again", who)
	case errors.As(err, &no):
		return fail(false, api.KindRefused, "may not connect to %s: %s", who, no.Reason)
	case errors.As(err, &sent):
		return fail(true, api.KindInfrastructure, "can't reach %s: %s; check base_url and the network", who, masked(sent.Err.Error(), key))
	case errors.Is(err, errStrange):
		return fail(false, api.KindInfrastructure, "%s answers with something else than a reply; check base_url", who)
	}
	return fail(true, api.KindInfrastructure, "the reply of %s could not be read: %s; try again", who, masked(err.Error(), key))
}

// explainStatus makes the error of an answer that is one.
func (c *client) explainStatus(a *answered, key string) *failure {
	who := c.provider.host()
	text := masked(a.problem.Message, key)
	if text != "" {
		text = fmt.Sprintf(": %q", text)
	}
	fail := func(again bool, kind api.Kind, mend, format string, args ...any) *failure {
		f := &failure{again: again && !a.final, after: a.after}
		f.api = c.error(kind, f.again, a.status, "%s %s (status %d)%s; %s", who, fmt.Sprintf(format, args...), a.status, text, mend)
		if f.again && a.after > 0 {
			f.api.RetryAfter = int((a.after + time.Second - 1) / time.Second)
		}
		return f
	}
	switch s := a.status; {
	case s < 400:
		text = ""
		return fail(false, api.KindInvalid, "set base_url to the new address", "redirects")
	case s == http.StatusUnauthorized:
		text = "" // some endpoints repeat a part of the key
		does := "refuses the key"
		if c.keys.none() && !c.keys.login {
			does = "wants a key"
		}
		return fail(false, api.KindRefused, c.keys.mend(), "%s", does)
	case s == http.StatusPaymentRequired, a.problem.Code == "insufficient_quota", a.problem.Type == "insufficient_quota", a.problem.Type == "billing_error":
		return fail(false, api.KindRefused, "add credit to the account of the key", "wants to be paid")
	case s == http.StatusForbidden:
		return fail(false, api.KindRefused, "check what the key may use", "does not allow the call")
	case s == http.StatusNotFound:
		return fail(false, api.KindInvalid, "check the name of the model and base_url", "does not know the model or the path")
	case s == http.StatusRequestEntityTooLarge:
		return fail(false, api.KindInvalid, "send less", "finds the request too large")
	case s == http.StatusTooManyRequests:
		f := fail(true, api.KindRefused, "try again later, or ask for less at once", "limits the rate")
		f.api.RetryAfter = max(f.api.RetryAfter, 1)
		return f
	case s == http.StatusRequestTimeout, s == http.StatusConflict, s >= 500:
		return fail(true, api.KindInfrastructure, "try again later", "failed")
	}
	return fail(false, api.KindInvalid, "change the request", "refuses the request")
}
