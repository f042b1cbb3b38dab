package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tine-mcp/tine/api"
)

// A provider makes one attempt at a call.
type provider interface {
	// send returns the reply. If it fails, the reply has what is known to be used.
	// The request is checked, and its MaxTokens are zero if there is no limit.
	send(ctx context.Context, r *attempt) (Reply, error)
	host() string // who answers, for errors
	// maxTokens is the limit of a request without one; zero if it may go without.
	maxTokens() int
	tellsCost() bool // its usage has the cost
}

// An attempt is what a provider sends.
type attempt struct {
	*Request
	maxTokens int // zero for no limit
	key       string
	money     float64 // what the budget has left; zero for no limit
	delta     func(text string)
}

// A client is a Model around a provider.
type client struct {
	name     string
	provider provider
	keys     keys
	price    *Price // nil if it is unknown
	retries  int
	timeout  time.Duration
	total    time.Duration
	log      *slog.Logger
	pause    pause
	slots    chan struct{} // how many calls run at once; nil for any number
}

// Name implements Model.
func (c *client) Name() string { return c.name }

// Ask implements Model.
func (c *client) Ask(ctx context.Context, r Request, delta func(text string)) (Reply, error) {
	if err := check(c.name, &r); err != nil {
		return Reply{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.total, errTotal)
	defer cancel()
	if until := r.Budget.until(); !until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, until, &OverBudget{Model: c.name, What: "time", Until: until})
		defer cancel()
	}
	key, err := c.keys.get(ctx, c.name)
	if err != nil {
		return Reply{}, c.ended(ctx, err)
	}
	if c.slots != nil {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-ctx.Done():
			return Reply{}, c.gaveUp(ctx)
		}
	}
	held, err := c.reserve(ctx, &r)
	if err != nil {
		return Reply{}, c.ended(ctx, err)
	}
	a := &attempt{Request: &r, maxTokens: cmp.Or(r.MaxTokens, c.provider.maxTokens()), key: key, money: held.money, delta: delta}
	// What is reserved is the most that it may use.
	if r.Budget.limitsOutput() || held.output < int64(cmp.Or(a.maxTokens, DefaultMaxTokens)) {
		a.maxTokens = int(held.output)
	}
	var reply Reply
	defer func() { held.settle(reply.Usage) }() // also if delta panics
	reply, err = c.repeat(ctx, a)
	return reply, err
}

// ended replaces an error by that of the context, if it has ended.
func (c *client) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return c.gaveUp(ctx)
	}
	return err
}

// reserve takes what the call may use from its budget.
func (c *client) reserve(ctx context.Context, r *Request) (*hold, error) {
	n := need{model: c.name, input: estimateInput(r), output: int64(cmp.Or(r.MaxTokens, DefaultMaxTokens))}
	if c.price != nil {
		n.cost = func(input, output int64) float64 {
			// The whole prompt may be written to the cache, which is the most expensive.
			return cost(*c.price, Usage{CacheWrite: input, OutputTokens: output})
		}
	} else if !c.provider.tellsCost() && r.Budget.limitsCost() {
		return nil, &failure{api: c.error(api.KindRefused, false, 0,
			"its price is unknown, so a budget in money can't be kept; add it to the prices (--price of tine rlm)")}
	}
	return r.Budget.reserve(ctx, n)
}

// repeat makes attempts until one succeeds or another one can't help.
func (c *client) repeat(ctx context.Context, a *attempt) (Reply, error) {
	used := Usage{Calls: 1}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval, pauses.Multiplier = 500*time.Millisecond, 30*time.Second, 2
	spoken := false
	if delta := a.delta; delta != nil {
		a.delta = func(text string) {
			spoken = true
			delta(text)
		}
	}
	var last *failure
	for n := 0; ; n++ {
		wait := c.pause.left()
		if wait > 0 && !enough(ctx, wait) {
			return Reply{Usage: sentOnly(used, n)}, c.tooSoon(last, wait)
		}
		if sleep(ctx, scattered(wait)) != nil {
			return Reply{Usage: sentOnly(used, n)}, c.gaveUp(ctx)
		}
		reply, err := c.once(ctx, a)
		used.Add(reply.Usage)
		if err == nil {
			reply.Usage = used
			return reply, nil
		}
		failed := Reply{Usage: used}
		if ctx.Err() != nil {
			return failed, c.gaveUp(ctx)
		}
		errors.As(err, &last)
		if last.after > 0 {
			c.pause.extend(last.after)
		}
		wait = pauses.NextBackOff()
		if !last.again || spoken || n >= c.retries || !enough(ctx, max(wait, last.after)) {
			return failed, last
		}
		c.log.Debug("model asked again", "model", c.name, "attempt", n+2, "after", wait, "err", last)
		if sleep(ctx, wait) != nil {
			return failed, c.gaveUp(ctx)
		}
	}
}

// sentOnly is no usage if nothing was sent.
func sentOnly(u Usage, attempts int) Usage {
	if attempts == 0 {
		return Usage{}
	}
	return u
}

// tooSoon is the error of a call that ends before the endpoint's pause does.
func (c *client) tooSoon(last *failure, wait time.Duration) error {
	if last != nil {
		return last
	}
	e := c.error(api.KindRefused, true, 429, "%s asked for a pause, and %s are left; try again then",
		c.provider.host(), wait.Round(time.Second))
	e.RetryAfter = int((wait + time.Second - 1) / time.Second)
	return &failure{api: e}
}

// once makes one attempt, and adds what it cost.
func (c *client) once(ctx context.Context, a *attempt) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	reply, err := c.provider.send(ctx, a)
	u := &reply.Usage
	if unreported := u.Tokens() == 0; unreported && err == nil || err != nil && executed(err) {
		u.CostUnknown = true
		if unreported {
			u.InputTokens, u.OutputTokens = estimateInput(a.Request), estimate(messageBytes(&reply.Message))
		}
	}
	switch {
	case c.provider.tellsCost():
	case c.price != nil:
		u.Cost = cost(*c.price, *u)
	case u.Tokens() > 0:
		u.CostUnknown = true
	}
	if err != nil {
		return reply, c.explain(ctx, err, a.key)
	}
	if why := nameCalls(reply.Message.Calls); why != "" {
		f := &failure{again: true, api: c.error(api.KindInfrastructure, true, 0, "the reply of %s has %s; try again", c.provider.host(), why)}
		return Reply{Usage: *u}, f
	}
	return reply, nil
}

// nameCalls gives calls without an id, or with that of another, one of their own. It
// returns what is wrong with them otherwise.
func nameCalls(calls []Call) string {
	if len(calls) > maxCalls {
		return fmt.Sprintf("%d tool calls, and %d are allowed", len(calls), maxCalls)
	}
	seen := map[string]bool{"": true}
	for i := range calls {
		for n := i + 1; seen[calls[i].ID]; n++ {
			calls[i].ID = fmt.Sprintf("call_%d", n)
		}
		seen[calls[i].ID] = true
		if calls[i].Name == "" {
			return "a tool call without a name"
		}
	}
	return ""
}

// executed reports whether a failed attempt may have reached the model, which then is
// paid for although nothing is known of it.
func executed(err error) bool {
	var (
		status *answered
		known  *failure
		dial   *net.OpError
	)
	return !errors.As(err, &status) && !errors.As(err, &known) && !(errors.As(err, &dial) && dial.Op == "dial")
}

// maxCalls limits the tool calls of one reply.
const maxCalls = 256
