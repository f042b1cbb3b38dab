// Package gateway is the edge of Tine: listeners, who comes in, what they see,
// and the control API. It takes MCP messages apart no further than it must,
// finds the session and the server they are for, and passes them on.
//
// # Fronts
//
// A client comes in by one of four doors, and behind each the same exchange is
// made: streamable HTTP with a handshake (a client object lives between its
// requests and comes back after a restart), stateless HTTP (nothing lives
// between requests, except a call that waits for input), the event stream of
// the first HTTP transport, and stdio.
package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream/credential"
)

// Options are what a Gateway works with.
type Options struct {
	Registry *session.Registry
	Store    store.Store
	Operator string // the bearer token of this machine's own user
	Version  string // of the program
	ID       string // of the state folder's owner
	StateDir string
	Wallet   *credential.Wallet
	Journal  *journal.Journal   // nil for none
	Metrics  *telemetry.Metrics // nil for none
	Tracing  *telemetry.Tracing // nil for none
	Redact   *telemetry.Redactor
	Log      *slog.Logger
}

// A Gateway serves MCP and the control API over one registry of sessions.
type Gateway struct {
	o       Options
	reg     *session.Registry
	log     *slog.Logger
	started time.Time
	shapes  atomic.Pointer[table]
	edge    atomic.Pointer[edge]
	guard   atomic.Pointer[identity.Guard]
	info    serverInfo

	reloading sync.Mutex // held while who may come in is made anew

	inflight atomic.Int64
	draining atomic.Bool
	// open ends when long-lived streams are to end, before the gateway does.
	open     context.Context
	stopOpen context.CancelFunc

	mu       sync.Mutex
	clients  map[string]*client
	channels map[string]*duplex // event streams, by the id their clients post to

	fetches fetches
	parking parking

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup
}

// New makes a gateway and brings back the clients of an earlier one.
func New(ctx context.Context, cfg *config.Config, o Options) (*Gateway, error) {
	g := &Gateway{
		o: o, reg: o.Registry, log: o.Log, started: time.Now(),
		clients: make(map[string]*client),
		info:    newServerInfo(o.Version),
	}
	g.life, g.end = context.WithCancel(context.Background())
	g.open, g.stopOpen = context.WithCancel(g.life)
	g.fetches.m = make(map[fetchKey]*fetch)
	g.parking.calls = make(map[string]*parked)
	if err := g.Reload(ctx, cfg); err != nil {
		g.end()
		return nil, err
	}
	if err := g.restoreClients(ctx); err != nil {
		g.end()
		g.guard.Load().Close()
		return nil, err
	}
	g.wg.Go(g.reap)
	return g, nil
}

// table returns the shapes of the current catalog.
func (g *Gateway) table() *table {
	cat := g.reg.Catalog()
	t := g.shapes.Load()
	if t == nil || t.cat != cat {
		t = newTable(cat)
		g.shapes.Store(t)
	}
	return t
}

// whileOpen derives the context of a long-lived stream: it ends with its
// request, with what it belongs to, and when streams are to end.
func (g *Gateway) whileOpen(request, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(request)
	forget := context.AfterFunc(life, cancel)
	forgetOpen := context.AfterFunc(g.open, cancel)
	return ctx, func() {
		forget()
		forgetOpen()
		cancel()
	}
}

// InFlight returns the number of requests under way.
func (g *Gateway) InFlight() int { return int(g.inflight.Load()) }

// enter counts n requests in, unless the gateway is full or stopping. Whoever
// entered must leave. What answers or cancels a request does not enter: it has
// to get through for the request to end.
func (g *Gateway) enter(n int) *api.Error {
	no := &api.Error{Kind: api.KindRefused, Status: http.StatusServiceUnavailable, Retryable: true}
	if g.draining.Load() {
		no.Message = "the gateway is stopping"
		return no
	}
	if g.inflight.Add(int64(n)) > g.edge.Load().calls {
		g.leave(n)
		no.Message = "too many requests at once; limits.calls can raise that"
		return no
	}
	return nil
}

func (g *Gateway) leave(n int) { g.inflight.Add(-int64(n)) }

// Drain refuses new calls and waits for those under way, as long as ctx lasts.
// Streams that would stay open are ended.
func (g *Gateway) Drain(ctx context.Context) {
	if !g.draining.CompareAndSwap(false, true) {
		return
	}
	g.stopOpen()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for g.inflight.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends every client and waits for what the gateway started. Clients are
// remembered and come back with the next gateway.
func (g *Gateway) Close() {
	g.draining.Store(true)
	g.end()
	g.parking.closeAll()
	g.mu.Lock()
	all := make([]*client, 0, len(g.clients))
	for _, c := range g.clients {
		all = append(all, c)
	}
	g.mu.Unlock()
	g.touchClients(all)
	for _, c := range all {
		c.close()
	}
	g.fetches.wg.Wait()
	g.wg.Wait()
	g.guard.Load().Close()
}
