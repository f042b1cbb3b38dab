package policy

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// turns are what the calls of one server wait for: at most so many at once, and so
// many a second. A turn needs both, and there is one queue for them, so that
// neither limit lets one call pass another. Principals take turns; the calls of
// each are served in their order. Lists need no token of the rate: clients ask for
// them by themselves, and their tokens would be missing for calls.
type turns struct {
	server *Server

	mu     sync.Mutex
	cfg    settings
	bucket *rate.Limiter // nil without a rate
	// spare are tokens of turns that were given and not used.
	spare    int
	inFlight int
	queue    queue
	next     *time.Timer // for the next token; nil before the first wait
	mean     float64     // seconds that a call takes, roughly
	closed   bool
}

type settings struct {
	rate  config.Rate
	limit config.Concurrency
}

// set changes the limits. Waiting calls follow the new ones.
func (g *turns) set(r config.Rate, c config.Concurrency) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg = settings{r, c}
	now := time.Now()
	burst := r.Burst
	if burst <= 0 {
		burst = max(int(r.Calls), 1)
	}
	switch {
	case r.Calls <= 0:
		g.bucket, g.spare = nil, 0
	case g.bucket == nil:
		g.bucket = rate.NewLimiter(rate.Limit(r.Calls), burst)
	default:
		g.bucket.SetLimitAt(now, rate.Limit(r.Calls))
		g.bucket.SetBurstAt(now, burst)
	}
	g.grant(now)
}

func (g *turns) figures() (inFlight, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight, g.queue.n
}

// enter waits for a turn. The caller must call leave with the returned time.
func (g *turns) enter(ctx context.Context, who string, h *pause, list bool) (time.Time, error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return time.Time{}, g.server.closed()
	}
	var now time.Time
	if g.bucket != nil || g.cfg.limit.Calls > 0 {
		now = time.Now() // which costs more than all the rest here
	}
	if g.free() && (list || g.queue.n == 0 && g.take(now)) {
		g.inFlight++
		g.mu.Unlock()
		return now, nil
	}
	wait := g.cfg.limit.Wait
	w, err := g.line(who, h, list, now)
	g.mu.Unlock()
	if err != nil {
		return now, err
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-w.ready:
		// Both may have happened at once, and the caller can't use the turn.
		if w.err == nil && ctx.Err() != nil {
			g.giveUp(w)
			return now, g.server.gaveUp(ctx, " while it waited for its turn")
		}
	case <-ctx.Done():
		g.giveUp(w)
		return now, g.server.gaveUp(ctx, " while it waited for its turn")
	case <-t.C:
		g.tooLong(w, wait)
	}
	return time.Now(), w.err
}

// leave ends a turn.
func (g *turns) leave(began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if g.cfg.limit.Calls > 0 && !began.IsZero() {
		if took := time.Since(began).Seconds(); g.mean == 0 {
			g.mean = took
		} else {
			g.mean += (took - g.mean) / 8
		}
	}
	if g.queue.n > 0 {
		g.grant(time.Now())
	}
}

// line puts a call into the queue, if there is room for it or room is made.
func (g *turns) line(who string, h *pause, list bool, now time.Time) (*waiter, error) {
	limit := g.cfg.limit
	if limit.Queue <= 0 || limit.Wait <= 0 {
		return nil, g.full(now)
	}
	if g.queue.n >= limit.Queue {
		most := g.queue.longest()
		if g.queue.of(who) >= most.n {
			return nil, g.full(now)
		}
		w, err := most.last, g.full(now)
		g.queue.remove(w)
		w.end(err)
	}
	w := g.queue.push(who)
	w.pause, w.list = h, list
	g.grant(now) // the limits may have been lifted, or the timer is not set yet
	return w, nil
}

// free reports whether another call may run at once.
func (g *turns) free() bool {
	return g.cfg.limit.Calls <= 0 || g.inFlight < g.cfg.limit.Calls
}

// take takes a token of the rate.
func (g *turns) take(now time.Time) bool {
	if g.bucket == nil {
		return true
	}
	if g.spare > 0 {
		g.spare--
		return true
	}
	return g.bucket.AllowN(now, 1)
}

// grant gives the available turns to waiting calls.
func (g *turns) grant(now time.Time) {
	for g.queue.n > 0 && g.free() {
		w := g.queue.head.first
		if !w.list && !g.take(now) {
			if w = g.queue.list(); w == nil {
				g.arm(g.token(now, 1))
				return
			}
		}
		g.queue.pick(w)
		g.inFlight++
		w.granted = true
		close(w.ready)
	}
}

// token is how long it takes until there are n tokens.
func (g *turns) token(now time.Time, n int) time.Duration {
	missing := float64(n) - g.bucket.TokensAt(now) - float64(g.spare)
	return max(0, time.Duration(missing/float64(g.bucket.Limit())*float64(time.Second)))
}

// arm has grant called again when there is a token.
func (g *turns) arm(d time.Duration) {
	d += time.Microsecond // the bucket rounds
	if g.next != nil {
		g.next.Reset(d)
		return
	}
	g.next = time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.closed {
			g.grant(time.Now())
		}
	})
}

// giveUp removes a caller that no longer waits from the queue, or passes on the
// turn that it got meanwhile.
func (g *turns) giveUp(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case w.granted:
		g.inFlight--
		if g.bucket != nil && !w.list {
			g.spare++
		}
		g.grant(time.Now())
	case w.err == nil:
		g.queue.remove(w)
	}
}

// tooLong refuses a call that waited as long as it may, unless it got its turn
// in the same moment.
func (g *turns) tooLong(w *waiter, waited time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.granted || w.err != nil {
		return
	}
	g.queue.remove(w)
	now := time.Now()
	reason, what := g.blocked()
	w.err = g.server.refuse(reason, api.KindRefused, 429, g.after(now),
		"%s, and no turn within %s; servers.%s.policy.%s can raise that", what, waited, g.server.id, reason)
}

// full is the refusal of a call that there is no room for.
func (g *turns) full(now time.Time) error {
	reason, what := g.blocked()
	return g.server.refuse(reason, api.KindRefused, 429, g.after(now),
		"%s and %d waiting; servers.%s.policy.%s can raise that", what, g.queue.n, g.server.id, reason)
}

// blocked says which limit calls wait for.
func (g *turns) blocked() (reason, what string) {
	if !g.free() || g.bucket == nil {
		return reasonConcurrency, fmt.Sprintf("%d calls at once", g.cfg.limit.Calls)
	}
	return reasonRate, strconv.FormatFloat(g.cfg.rate.Calls, 'g', -1, 64) + " calls a second"
}

// after estimates when a call would find a turn.
func (g *turns) after(now time.Time) time.Duration {
	ahead := g.queue.n + 1
	var d time.Duration
	if g.bucket != nil {
		d = g.token(now, ahead)
	}
	if n := g.cfg.limit.Calls; n > 0 {
		d = max(d, time.Duration(g.mean*float64(ahead)/float64(n)*float64(time.Second)))
	}
	return d
}

// borrow takes the token for the next attempt of a call that has its turn, and says
// how long to wait for it. It reports false if that is too long.
func (g *turns) borrow() (wait time.Duration, giveBack func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bucket == nil {
		return 0, func() {}, true
	}
	r := g.bucket.Reserve()
	wait = r.Delay()
	if wait > g.cfg.limit.Wait {
		r.Cancel()
		return 0, nil, false
	}
	return wait, r.Cancel, true
}

// turnAway refuses waiting calls that h holds back anyway.
func (g *turns) turnAway(h *pause, left time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue.each(func(w *waiter) {
		if w.pause == h {
			g.queue.remove(w)
			w.end(h.refusal(left))
		}
	})
}

// close refuses waiting and new calls.
func (g *turns) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.next != nil {
		g.next.Stop()
	}
	g.queue.each(func(w *waiter) {
		g.queue.remove(w)
		w.end(g.server.closed())
	})
}
