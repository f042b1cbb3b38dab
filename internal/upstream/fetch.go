package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// errAnew says that an instance could not be adopted and a new one is wanted, whose
// packages are fetched first.
var errAnew = errors.New("a new instance is wanted")

// adopts reports whether the next attempt is to adopt an instance.
func (u *Upstream) adopts() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.adopt != nil
}

// fetch has the packages of a new instance fetched. It has a time of its own, which
// the start does not count, and goes on where the Upstream is closed.
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
	return f.Fetch(u.life, u.o.Spec, most)
}

// connecting is the time that a start has, once its packages are there.
func (u *Upstream) connecting() (context.Context, context.CancelFunc) {
	wait := time.Duration(u.connect.Load())
	return context.WithTimeoutCause(u.life, wait, slowStart{failure(api.KindTimeout, u.Server(), true, "did not start within %s", wait)})
}

// slowStart is the error of a start that took too long.
type slowStart struct{ error }

func (e slowStart) Unwrap() error { return e.error }

// refetch has the driver look for packages again after a start that took too long.
func (u *Upstream) refetch(err error) {
	if f, ok := u.o.Driver.(driver.Fetcher); ok && errors.As(err, new(slowStart)) {
		f.Refetch(u.o.Spec)
	}
}

// Fetching says how far the fetch is that the start waits for; nil where it does not.
func (u *Upstream) Fetching() *api.Fetch {
	u.mu.Lock()
	starts := u.attempt != nil
	u.mu.Unlock()
	if f, ok := u.o.Driver.(driver.Fetcher); ok && starts {
		return f.Fetching(u.o.Spec)
	}
	return nil
}

// Within is a context that ends after so long, but not while a fetch goes on that the
// start waits for.
func (u *Upstream) Within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(most, func() {
		fetching := u.Fetching() != nil
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case fetching:
			timer.Reset(most)
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

// NotYet is the error of a list that a server has not given yet. It stays the same
// while a fetch goes on, so that it is logged once.
func (u *Upstream) NotYet() *api.Error {
	what := "has not answered yet; the list is announced again when it does"
	if f := u.Fetching(); f != nil {
		what = fmt.Sprintf("is fetching package %q; the list is announced again when it answers", f.Package)
	}
	return failure(api.KindTimeout, u.Server(), true, "%s", what)
}
