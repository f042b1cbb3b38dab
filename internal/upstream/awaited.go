package upstream

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// A list waits for a server that starts for the first time, each list anew:
// connect_timeout and limits.fetch bound the start. All lists together wait once for
// a server that runs and does not answer. A server whose last start or list failed
// gets only RetryWait, so that a server that hangs does not make every list slow.

// RetryWait is how long lists wait for the next start of a server that failed.
const RetryWait = time.Second

// startMargin is how much longer than connect_timeout a list waits for a server, to
// report why the start failed.
const startMargin = time.Second

// Awaited is a context for a caller that waits for a list since began. When it ends,
// the list is sent without this server.
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

// Failing is why the last start failed; nil if the server has run since.
func (u *Upstream) Failing() *api.Error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failing
}

// NotYet is the error for a list that a server has not answered yet: the last reason,
// if there is one. It stays the same during a fetch, so that it is logged once.
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

// leastListTime is the shortest time that a server has for a list.
const leastListTime = 30 * time.Second

// listTime is how long a running server has for a list, besides its timeout: a server
// that completes the handshake and lists nothing has not started properly.
func (u *Upstream) listTime() overdue {
	return overdue{max(time.Duration(u.connect.Load()), leastListTime), u.clock.keys + "connect_timeout"}
}

// Unanswered is why the last request for a list was not answered, or for any list if
// method is empty; nil if all were.
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

// Follow copies from another Upstream of the same server which lists were not
// answered: a new instance may have the same fault.
func (u *Upstream) Follow(before *Upstream) {
	before.mu.Lock()
	hung := maps.Clone(before.hung)
	before.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hung = hung
}
