package gateway

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// rates bounds the calls of each principal in time, over all servers, sessions
// and ways in. The policy of a server, which bounds what it gets from all, comes
// after it.
type rates struct {
	mu   sync.Mutex
	of   map[string]*bucket // by the principal's name
	room int                // how many there may be before full ones are dropped
}

type bucket struct {
	limit *rate.Limiter
	rate  identity.Rate
}

// minBuckets is how many principals are remembered at least.
const minBuckets = 1024

// take counts a call of a principal. It reports false, with how long to wait, for
// one that is too many.
func (r *rates) take(who identity.Principal, now time.Time) (wait time.Duration, ok bool) {
	want := who.Rate()
	if want.Calls <= 0 {
		return 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.of[who.Name]
	switch {
	case b == nil:
		r.sweep(now)
		b = &bucket{rate.NewLimiter(rate.Limit(want.Calls), want.Burst), want}
		r.of[who.Name] = b
	case b.rate != want: // the rules were changed
		b.limit.SetLimitAt(now, rate.Limit(want.Calls))
		b.limit.SetBurstAt(now, want.Burst)
		b.rate = want
	}
	if b.limit.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - b.limit.TokensAt(now)
	return time.Duration(missing / want.Calls * float64(time.Second)), false
}

// sweep drops buckets that are full, which are as good as new ones, when there
// are many. r.mu is held.
func (r *rates) sweep(now time.Time) {
	if r.of == nil {
		r.of, r.room = make(map[string]*bucket), minBuckets
	}
	if len(r.of) < r.room {
		return
	}
	for name, b := range r.of {
		if b.limit.TokensAt(now) >= float64(b.rate.Burst) {
			delete(r.of, name)
		}
	}
	r.room = max(minBuckets, 2*len(r.of))
}

// rated refuses a request to a server that is one too many of its principal. All
// ways to call a server come through here.
func (x *exchange) rated(s *shape, name string) error {
	if x.inner || !rateable(x.method) {
		return nil
	}
	e := x.g.tooMany(x.who)
	if e == nil {
		return nil
	}
	e.Server = s.entry.ID
	s.entry.Limited(&upstream.Request{Method: x.method, Name: name, Who: x.who.Name, Session: x.sess.ID, Run: x.g.runOf(x.who)}, e)
	return upstream.NotSent(e)
}

// tooMany counts a request of a principal; nil where it may be made.
func (g *Gateway) tooMany(who identity.Principal) *api.Error {
	wait, ok := g.rates.take(who, time.Now())
	if ok {
		return nil
	}
	return &api.Error{
		Kind: api.KindRefused, Retryable: true, Status: http.StatusTooManyRequests,
		RetryAfter: max(1, int(math.Ceil(wait.Seconds()))),
		Message: fmt.Sprintf("too many calls: principal %q may make %s a second; rate in auth.rules can raise that",
			who.Name, strconv.FormatFloat(who.Rate().Calls, 'g', -1, 64)),
	}
}

// rateable reports whether a request counts toward its principal's rate. Lists
// come out of a cache, and clients ask for them by themselves.
func rateable(method string) bool {
	switch method {
	case wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates:
		return false
	}
	return true
}
