package upstream

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// A list waits for a server that starts for the first time, each list anew: a start
// ends by itself, in connect_timeout and limits.fetch. For one that runs and does not
// answer all lists wait once. One that failed when it was last started or asked has a
// moment for its next try, so that one that hangs does not make every list slow.

// RetryWait is how long lists wait for the next try of a server that failed.
const RetryWait = time.Second

// startMargin is how much longer than its start may take a list waits for a server, to
// tell why it failed.
const startMargin = time.Second

// Awaited is a context for who waits for a list that was first asked for when it began.
// With its end the list goes out without the server.
func (u *Upstream) Awaited(ctx context.Context, method string, began time.Time, most time.Duration) (context.Context, context.CancelFunc) {
	connect, late := time.Duration(u.connect.Load())+startMargin, u.Unanswered(method)
	u.mu.Lock()
	from := began
	switch {
	case u.failing != nil || late != nil:
		most = min(most, RetryWait)
	case u.attempt != nil:
		from = time.Now()
	case u.conn != nil:
		most, from = min(most, connect), later(began, u.since)
	}
	u.mu.Unlock()
	ctx, stop := context.WithDeadline(ctx, from.Add(most))
	within, cancel := u.Within(ctx, connect)
	return within, func() { cancel(); stop() }
}

// Failing is why the last start failed; nil where none did since the server ran.
func (u *Upstream) Failing() *api.Error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failing
}

// NotYet is the error of a list that a server has not given yet: why it did not when it
// was last asked, where it was. It stays the same while a fetch goes on, so that it is
// logged once.
func (u *Upstream) NotYet(method string) *api.Error {
	u.mu.Lock()
	why, runs := u.failing, u.conn != nil
	u.mu.Unlock()
	if why == nil {
		why = u.Unanswered(method)
	}
	if why != nil {
		return why
	}
	what := "has not answered yet"
	if f := u.Fetching(); f != nil {
		return failure(api.KindTimeout, u.Server(), true, "is fetching package %q; the list is announced again when it answers", f.Package)
	} else if runs {
		most := u.listTime()
		if each := time.Duration(u.timeout.Load()); each > 0 && each < most.after {
			most = overdue{each, u.clock.keys + "timeout"}
		}
		what += fmt.Sprintf(", and has %s to (%s)", config.Brief(most.after), most.key)
	}
	return failure(api.KindTimeout, u.Server(), true, "%s; the list is announced again when it does", what)
}

// leastListTime is how long a server has for a list at least.
const leastListTime = 30 * time.Second

// listTime is how long a server that runs has for a list, besides its timeout: one that
// shakes hands and lists nothing has not come up.
func (u *Upstream) listTime() overdue {
	return overdue{max(time.Duration(u.connect.Load()), leastListTime), u.clock.keys + "connect_timeout"}
}

// Unanswered is why a list did not come when it was last asked for, of no method that of
// any; nil where none is missing.
func (u *Upstream) Unanswered(method string) *api.Error {
	methods := ListMethods
	if method != "" {
		methods = []string{method}
	}
	for _, method := range methods {
		u.mu.Lock()
		why, asked := u.hung[method]
		u.mu.Unlock()
		if !asked && u.o.Unanswered != nil {
			why = u.o.Unanswered(method)
		}
		if why != nil {
			return why
		}
	}
	return nil
}

// Follow takes over which lists another Upstream of the same server did not answer: a
// new instance of it is not known to be better.
func (u *Upstream) Follow(before *Upstream) {
	before.mu.Lock()
	hung := maps.Clone(before.hung)
	before.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hung = hung
}
