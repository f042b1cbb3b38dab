package upstream

import (
	"context"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
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
	connect := time.Duration(u.connect.Load()) + startMargin
	u.mu.Lock()
	from := began
	switch {
	case u.failing != nil || u.hung[method]:
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

// NotYet is the error of a list that a server has not given yet. It stays the same
// while a fetch goes on, so that it is logged once.
func (u *Upstream) NotYet() *api.Error {
	if failing := u.Failing(); failing != nil {
		return failing
	}
	what := "has not answered yet; the list is announced again when it does"
	if f := u.Fetching(); f != nil {
		what = fmt.Sprintf("is fetching package %q; the list is announced again when it answers", f.Package)
	}
	return failure(api.KindTimeout, u.Server(), true, "%s", what)
}
