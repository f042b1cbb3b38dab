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
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/gateway/openenv"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/credential"
)

// Options are what a Gateway works with.
type Options struct {
	Registry  *session.Registry
	Clients   store.Clients
	Creations store.Creations
	Tokens    store.Tokens
	Operator  string // the bearer token of this machine's own user
	Version   string // of the program
	ID        string // of the state folder's owner
	StateDir  string
	Wallet    *credential.Wallet
	Control   *Control // nil where no server acts on sessions
	Agents    *agent.Service
	Book      *agent.Book // the blueprints of Agents
	Executors Executors   // of the runs of Agents
	// Readmitted is called when other principals may come in than before, and must not
	// wait; nil for nothing.
	Readmitted func()
	// Reload reads the config again, and returns when it holds or why it does not; nil
	// where there is none to read.
	Reload func(context.Context) error
	// NotReloaded is why the config of before is still used; nil where it is not, and
	// where there is none to read.
	NotReloaded func() *api.NotReloaded
	// Orchestrate serves the orchestration API too.
	Orchestrate bool
	Journal     *journal.Journal // nil for none
	Feed        store.Feed
	Hub         *store.Hub         // raised when there is something new in Feed or Journal
	Metrics     *telemetry.Metrics // nil for none
	Tracing     *telemetry.Tracing // nil for none
	Redact      *telemetry.Redactor
	Log         *slog.Logger
}

// A Gateway serves MCP and the control API over one registry of sessions.
type Gateway struct {
	o        Options
	reg      *session.Registry
	services *control.Services
	log      *slog.Logger
	started  time.Time
	shapes   atomic.Pointer[table]
	others   map[*catalog.Catalog]*table // of sessions that were made with other servers
	edge     atomic.Pointer[edge]
	guard    atomic.Pointer[identity.Guard]
	guarded  atomic.Pointer[signal] // raised when guard has changed
	info     serverInfo

	reloading sync.Mutex // held while the guard is made anew

	inflight atomic.Int64
	shares   shares
	rates    rates
	handlers atomic.Int64 // HTTP requests that are being handled
	draining atomic.Bool
	// open ends when long-lived streams are to end, before the gateway does.
	open     context.Context
	stopOpen context.CancelFunc

	mu       sync.Mutex
	clients  map[string]*client
	owned    map[string]int     // clients of each principal
	channels map[string]*duplex // event streams, by the id their clients post to
	closed   bool               // nothing is spawned any more

	fetches   fetches
	pending   pendingInputs
	stays     stays
	followers followers // of the feed of events

	routes        *actions // of the control API
	orchestration *actions // of the orchestration API; nil where that is off
	executors     *actions // of the executor API
	environments  *openenv.Server

	life context.Context
	end  context.CancelCauseFunc
	wg   sync.WaitGroup
}

// New makes a gateway and brings back the clients of an earlier one.
func New(ctx context.Context, cfg *config.Config, o Options) (*Gateway, error) {
	g := &Gateway{
		o: o, reg: o.Registry, log: o.Log, started: time.Now(),
		clients: make(map[string]*client), owned: make(map[string]int), others: make(map[*catalog.Catalog]*table),
		info: newServerInfo(o.Version), routes: controlActions(o.Version), executors: executorActions(o.Version),
	}
	if o.Orchestrate {
		g.orchestration = orchestrationActions(o.Version)
	}
	if g.o.Control == nil {
		g.o.Control = &Control{}
	}
	g.o.Control.g.Store(g)
	g.services = control.New(host{g}, control.Options{
		Registry: o.Registry, Tokens: o.Tokens, Creations: o.Creations, Journal: o.Journal, Feed: o.Feed, Hub: o.Hub, Gateway: o.ID, Wallet: o.Wallet, Redact: o.Redact,
		StateDir: o.StateDir, Log: o.Log,
	})
	g.environments = openenv.New(environments{g}, o.Log)
	g.life, g.end = context.WithCancelCause(context.WithValue(context.Background(), ofLife{}, true))
	g.open, g.stopOpen = context.WithCancel(g.life)
	g.fetches.m, g.fetches.lacking = make(map[fetchKey]*fetch), make(map[string]string)
	g.pending.calls = make(map[string]*pendingInput)
	if err := g.Reload(ctx, cfg); err != nil {
		g.end(nil)
		return nil, err
	}
	if err := g.restoreClients(ctx); err != nil {
		g.end(nil)
		g.guard.Load().Close()
		return nil, err
	}
	if err := g.services.DropKeys(ctx, true); err != nil {
		g.end(nil)
		g.guard.Load().Close()
		return nil, err
	}
	g.spawn(g.reap)
	g.spawn(func() { g.services.ForgetKeys(g.life) })
	return g, nil
}

// mostTables bounds the tables that are kept for sessions.
const mostTables = 1000

// tableOf returns the shapes of a catalog: the current one, or that of sessions
// that were made with other servers.
func (g *Gateway) tableOf(cat *catalog.Catalog) *table {
	if t := g.shapes.Load(); t != nil && t.cat == cat {
		return t
	}
	if cat == g.reg.Catalog() {
		t := newTable(cat)
		g.shapes.Store(t)
		return t
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.others[cat]
	if t == nil {
		// What was made of an earlier config is not asked for again.
		for old := range g.others {
			if !old.Current(g.reg.Catalog()) {
				delete(g.others, old)
			}
		}
		if len(g.others) >= mostTables {
			clear(g.others) // most are of sessions that are over
		}
		t = newTable(cat)
		g.others[cat] = t
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

// ofLife is the key by which a context says that it ends with a gateway's life.
type ofLife struct{}

// whileServing derives the context of a call that lasts as long as its request: it
// ends with the gateway, too, and for the same reason.
func (g *Gateway) whileServing(request context.Context) (context.Context, context.CancelFunc) {
	if request.Value(ofLife{}) != nil {
		return request, func() {}
	}
	ctx, cancel := context.WithCancelCause(request)
	forget := context.AfterFunc(g.life, func() { cancel(context.Cause(g.life)) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// spawn runs fn beside everything else, and Close waits for it. It reports
// false when the gateway is closed.
func (g *Gateway) spawn(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.wg.Go(fn)
	}
	return !g.closed
}

// digestTicks is for how many ticks no request runs before a gateway that waited for
// calls stops: their clients may have something to ask before they take the answer.
const digestTicks = 15

// Drain refuses new calls and waits for running ones, as long as ctx lasts. Then
// those that are left are cut off, and their callers told so. Streams that would stay
// open are ended.
func (g *Gateway) Drain(ctx context.Context) {
	if !g.draining.CompareAndSwap(false, true) {
		return
	}
	g.stopOpen()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for quiet := digestTicks; quiet < digestTicks || g.inflight.Load() > 0; quiet++ {
		if g.inflight.Load() > 0 {
			quiet = 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			g.end(&upstream.CutOff{Waited: g.reg.Catalog().Config.Limits.Drain})
			return
		}
	}
}

// Settle waits for the requests that Close and the end of the registry cut off
// to be answered and written down, as long as ctx lasts. It reports whether all
// of them were.
func (g *Gateway) Settle(ctx context.Context) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for g.handlers.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Close ends every client and waits for what the gateway started. Clients are
// remembered and come back with the next gateway.
func (g *Gateway) Close() {
	g.draining.Store(true)
	g.end(nil)
	g.environments.Close()
	g.pending.closeAll()
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
	g.fetches.close()
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
	g.guard.Load().Close()
}
