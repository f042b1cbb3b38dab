// Package policy holds the policies for the calls of a server. Each policy
// is a Caller around a Caller; Server.Chain puts them together, outermost first:
//
//	lists    answers lists from memory, one request for all concurrent callers
//	results  answers read-only tools from memory, where that is switched on
//	limits   gives turns: so many calls at once, so many a second, fairly
//	retry    repeats failed calls where that can do no harm
//	pause    keeps quiet for as long as the server's 429 asks for
//	breaker  keeps away from a server that fails
//
// What a server's chains share is in the Server. It outlives chains and changes
// of the settings, so that neither a reconnect nor a reload forgets who waits or
// how often a server failed.
//
// A call that is repeated keeps its turn, since it is one call for its caller, but
// takes a token of the rate for every attempt, since each reaches the server.
// Answers from memory take neither.
package policy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// Metrics counts what policies do.
type Metrics interface {
	Retry()
	Refused(reason string)
	Cache(which string, hit bool)
}

type noMetrics struct{}

func (noMetrics) Retry()             {}
func (noMetrics) Refused(string)     {}
func (noMetrics) Cache(string, bool) {}

// A Server is what all chains of one server share. Its methods may run at once.
type Server struct {
	id      string
	log     *slog.Logger
	metrics Metrics
	policy  atomic.Pointer[config.Policy]

	turns   turns
	pause   pause
	breaker *breaker

	lists   *store
	results *store

	numbers atomic.Uint64 // of chains and targets
	forgets atomic.Uint64 // how often Forget was called
	tasks   tasks

	mu      sync.Mutex
	own     map[*breaker]struct{} // of chains with their own, while they are not closed
	targets map[string]*target    // by what their chains are for
	newest  *target               // the one that a chain was last made for
}

// Bounds of the caches of one server, over all its chains.
const (
	maxLists       = 4096
	maxListBytes   = 64 << 20
	maxResults     = 1 << 16
	maxResultBytes = 64 << 20
	maxResultSize  = 1 << 20 // of a single one
)

// NewServer makes the shared part of a server's policies. Metrics and log may
// be nil.
func NewServer(id string, p config.Policy, m Metrics, log *slog.Logger) *Server {
	if m == nil {
		m = noMetrics{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		id: id, log: log, metrics: m,
		lists:   newStore(maxLists, maxListBytes),
		results: newStore(maxResults, maxResultBytes),
		own:     make(map[*breaker]struct{}),
		targets: make(map[string]*target),
	}
	s.policy.Store(&p)
	s.tasks.life, s.tasks.end = context.WithCancel(context.Background())
	s.pause = newPause(s)
	s.breaker = newBreaker(s, false)
	s.turns.server = s
	s.turns.set(p.Rate, p.Concurrency)
	return s
}

// Set changes the settings. Waiting calls keep their places and counts stay; a
// breaker that is open while its times change starts its pause anew.
func (s *Server) Set(p config.Policy) {
	old := s.policy.Swap(&p)
	s.turns.set(p.Rate, p.Concurrency)
	// A cache that is off hears of no changes, so its entries must not be found
	// later.
	if old.Cache.Lists > 0 && p.Cache.Lists <= 0 {
		s.lists.clear()
	}
	if old.Cache.Results > 0 && p.Cache.Results <= 0 {
		s.results.clear()
	}
}

// Forget drops what is cached and known of the server, when its address or
// credentials changed: it may be another server, or see us as another user. That
// holds for chains with their own target too, and for requests in progress.
func (s *Server) Forget() {
	s.forgets.Add(1)
	s.lists.clear()
	s.results.clear()
}

// Figures tell how a server's calls are doing.
type Figures struct {
	// Breaker is the worst state of the server's breakers: closed, half-open or
	// open; empty when there is none.
	Breaker  string
	InFlight int
	Queue    int
}

// Figures returns them as they are now.
func (s *Server) Figures() Figures {
	var f Figures
	f.InFlight, f.Queue = s.turns.figures()
	worst := s.breaker.state()
	s.mu.Lock()
	own := make([]*breaker, 0, len(s.own))
	for b := range s.own {
		own = append(own, b)
	}
	s.mu.Unlock()
	for _, b := range own {
		if b.forgotten() {
			s.fine(b)
			continue
		}
		worst = worse(worst, b.state())
	}
	f.Breaker = worst
	return f
}

func worse(a, b string) string {
	switch {
	case a == "" || b == api.BreakerOpen:
		return b
	case a == api.BreakerClosed && b == api.BreakerHalfOpen:
		return b
	}
	return a
}

// failing and fine say whether an own breaker counts in the figures.
func (s *Server) failing(b *breaker) {
	s.mu.Lock()
	s.own[b] = struct{}{}
	s.mu.Unlock()
}

func (s *Server) fine(b *breaker) {
	s.mu.Lock()
	delete(s.own, b)
	s.mu.Unlock()
}

// Close refuses waiting calls, ends the policies' own requests and waits for them.
// Calls that were let through continue.
func (s *Server) Close() {
	s.turns.close()
	s.tasks.close()
	s.lists.close()
	s.results.close()
}

// tasks are the goroutines of a server.
type tasks struct {
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// start runs fn in a goroutine. It reports false after close.
func (t *tasks) start(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(fn)
	return true
}

func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end()
	t.wg.Wait()
}

// clock measures time since a beginning, so that it fits an atomic and is not
// moved by a change of the wall clock.
type clock struct{ began time.Time }

func (c clock) now() int64 { return int64(time.Since(c.began)) + 1 } // never zero
