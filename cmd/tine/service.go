package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	front "github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/gateway/conns"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream/credential"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// serviceOptions configure a gateway.
type serviceOptions struct {
	Config  *config.Config
	Load    func() (*config.Config, error) // reads the config again
	Options config.Options
	State   string
	// StateFlag is the flag that names this state folder in commands; see cli.stateFlag.
	StateFlag string
	Listen    bool // over HTTP
	Keep      bool // leave instances running for the next gateway
	// Lists keeps the lists of servers if the state folder does not last; nil to keep
	// them there.
	Lists store.ServerLists
	// Orchestrate serves the orchestration API too.
	Orchestrate bool
	// Closed is called when all has ended, while the state folder is still this
	// gateway's; nil for nothing to do.
	Closed func()
	// RLM are for the kernels of tine rlm.
	RLM     rlmOptions
	Version string
	Redact  *telemetry.Redactor // what Log masks by
	Log     *slog.Logger
}

// A service is a whole gateway as a value: made, run, closed.
type service struct {
	o        serviceOptions
	cfg      *config.Config
	unlock   func()
	store    *sqlite.DB
	hub      store.Hub
	journal  *journal.Journal
	wallet   *credential.Wallet
	metrics  *telemetry.Metrics
	tracing  *telemetry.Tracing
	networks *networkLog
	plugins  *plugins
	private  atomic.Pointer[[]string] // files of the config, which no sandbox may see
	// readable is what rlm_load of each server may read by the config that holds.
	readable atomic.Pointer[map[string][]string]
	registry *session.Registry
	agents   *agents
	gateway  *front.Gateway
	listener *conns.Pool
	server   *http.Server
	token    string // of this machine's operator
	url      string
	local    string // without TLS, for programs on this machine

	notReloaded atomic.Pointer[api.NotReloaded]

	mu     sync.Mutex
	closed bool
}

// newService takes the state folder, restores what was left there and listens. It
// answers no request before Run.
func newService(ctx context.Context, o serviceOptions) (_ *service, err error) {
	p := &service{o: o, cfg: o.Config}
	p.hide(o.Config.Private())
	p.allow(o.Config)
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w; choose another with --state", err)
	}
	if p.unlock, err = store.Lock(o.State); err != nil {
		return nil, inUse(err, "use the gateway that runs, or give this one a folder of its own with --state")
	}
	db, id, err := openDatabase(ctx, o.State, o.StateFlag)
	if err != nil {
		return nil, err
	}
	p.store = db
	if o.Listen {
		// Before anything is adopted: a port that is taken must not disturb
		// what runs.
		if err := p.listen(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.instruments(ctx, id); err != nil {
		return nil, err
	}
	control := &front.Control{} // the gateway's, which is made last but used by plugins made before
	if p.networks, err = newNetworkLog(o.Log); err != nil {
		return nil, err
	}
	if p.plugins, err = newPlugins(pluginOptions{
		State: o.State, Gateway: id, Sandbox: p.cfg.SandboxBinary, MaxFrame: int(p.cfg.Limits.Message), Sessions: control, Agents: control, Authorize: authorizer(p.cfg, p.wallet),
		Network: p.networks.add, Private: func() []string { return *p.private.Load() }, RLM: o.RLM, Log: o.Log,
		Readable: func(server string) []string { return (*p.readable.Load())[server] },
	}); err != nil {
		return nil, err
	}
	seal, err := session.OpenSeal(filepath.Join(o.State, "snapshot.key"))
	if err != nil {
		return nil, err
	}
	p.registry, err = session.Open(ctx, p.cfg, session.Options{
		Drivers: p.plugins.drivers, Workspaces: p.plugins.workspaces, Local: p.store, Shared: p.store, Lists: o.Lists, Seal: seal, Starts: access.Owners,
		Dir: filepath.Join(o.State, "instances"), States: o.State, StateFlag: o.StateFlag, Restored: restoredLately(o.State, time.Now()), Wallet: p.wallet, Learn: true, Unfit: o.RLM.Unfit, Closed: p.sessionClosed, Hub: &p.hub, Log: o.Log,
		Record: record.Options{Journal: p.journal, Metrics: p.metrics, Tracing: p.tracing, Redact: o.Redact, Log: o.Log, Trouble: &record.Trouble{}},
	})
	if err != nil {
		return nil, err
	}
	p.networks.start(p.registry.Network)
	p.token = identity.NewToken()
	var coordinator *agent.Service
	var book *agent.Book
	var executors front.Executors
	var readmitted func()
	if o.Listen { // executors reach the gateway over HTTP
		a, err := newAgents(ctx, p, id)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.agents = a
		p.mu.Unlock()
		coordinator, book, executors, readmitted = a.service, a.book, a.runner, a.readmitted
	}
	gateway, err := front.New(ctx, p.cfg, front.Options{
		Registry: p.registry, Clients: p.store, Creations: p.store, Tokens: p.store, Operator: p.token, Version: o.Version,
		ID: id, StateDir: o.State, Reload: p.reload, NotReloaded: p.notReloaded.Load, Orchestrate: o.Orchestrate, Control: control, Agents: coordinator, Book: book, Executors: executors, Readmitted: readmitted, Wallet: p.wallet, Journal: p.journal, Feed: p.store, Hub: &p.hub, Metrics: p.metrics,
		Tracing: p.tracing, Redact: o.Redact, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	gateway.Secrets()
	p.mu.Lock()
	p.gateway = gateway
	p.mu.Unlock()
	if p.agents != nil {
		p.agents.worlds.set(gateway)
	}
	return p, nil
}

// sessionClosed is told of each session that has ended.
func (p *service) sessionClosed(id string) {
	p.mu.Lock()
	a := p.agents
	p.mu.Unlock()
	if a != nil {
		a.sessionClosed(id)
	}
}

// hide says which files no sandbox that starts from now on may see.
func (p *service) hide(files []string) { p.private.Store(&files) }

// allow says what rlm_load may read from now on, in open sessions too.
func (p *service) allow(cfg *config.Config) {
	readable := make(map[string][]string)
	for _, s := range cfg.Servers {
		if s.Front != body.Front.Name {
			continue
		}
		if set, err := body.ReadSettings(s.Settings); err == nil { // else the config is refused
			readable[s.ID] = set.AllowRead
		}
	}
	p.readable.Store(&readable)
}

// databaseOf is the database of a state folder.
func databaseOf(state string) string { return filepath.Join(state, "tine.db") }

// instruments opens the journal, metrics and traces.
func (p *service) instruments(ctx context.Context, id string) (err error) {
	cfg, o := p.cfg, p.o
	p.journal, err = journal.Open(ctx, journal.Options{
		Dir: filepath.Join(o.State, "journal"), Index: p.store,
		MaxAge: cfg.Journal.MaxAge, MaxSize: cfg.Journal.MaxSize, Log: o.Log,
		Wanted: p.hasStory, Hub: &p.hub,
	})
	if err != nil {
		return err
	}
	p.wallet = credential.New(credential.Options{Store: p.store, Learn: o.Redact.Learn, Log: o.Log})
	p.metrics = telemetry.NewMetrics(o.Version, p.snapshot)
	if t := cfg.Telemetry.OTLP; t.Endpoint != "" {
		p.tracing, err = telemetry.NewTracing(ctx, telemetry.Options{
			Endpoint: t.Endpoint, Headers: t.Headers, Sample: t.Sample, CAFile: t.CAFile,
			Version: o.Version, Gateway: id, Redact: o.Redact, Log: o.Log,
		})
	}
	return err
}

// hasStory reports whether the calls of a session outlast the journal's bounds:
// those of an opened session, and of one with forks, last as long as its record. In
// doubt they are kept.
func (p *service) hasStory(id string) bool {
	ctx := context.Background()
	s, ok, err := p.store.Session(ctx, id)
	if err != nil || !ok || s.Kind == session.KindOpened {
		return ok || err != nil
	}
	forks, err := p.store.FindSessions(ctx, store.SessionFilter{Parent: id, Closed: true, Limit: 1})
	return err != nil || len(forks) > 0
}

// snapshot is the source of the metrics, which may be scraped before all is ready.
func (p *service) snapshot() telemetry.Snapshot {
	p.mu.Lock()
	g := p.gateway
	p.mu.Unlock()
	if g == nil {
		return telemetry.Snapshot{}
	}
	return g.Snapshot()
}

// checkExposure refuses a config that would admit any caller. The tokens of the
// state folder count.
func (p *service) checkExposure(ctx context.Context, cfg *config.Config) error {
	kept, err := p.store.Tokens(ctx)
	if err != nil {
		return err
	}
	err = cfg.CheckExposure(len(kept) > 0)
	var exposed *config.ExposedError
	if errors.As(err, &exposed) {
		exposed.StateFlag = p.o.StateFlag
	}
	return err
}

func (p *service) listen(ctx context.Context) error {
	if err := p.checkExposure(ctx, p.cfg); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w; choose another address with --listen or the config's listen", err)
	}
	p.local = "http://" + reachable(l.Addr())
	p.url = scheme(p.cfg) + reachable(l.Addr())
	most, warning := connections(p.cfg.Limits.Connections, openFiles())
	if warning != "" {
		p.o.Log.Warn(warning + "; " + moreFiles)
	}
	p.listener = conns.New(front.WriteDeadlines(l), most, p.o.Log)
	return nil
}

// scheme is how the URL of a gateway with a config begins.
func scheme(cfg *config.Config) string {
	if cfg.TLS.Cert != "" {
		return "https://"
	}
	return "http://"
}

// reachable is the address by which this machine reaches a listener.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}

// Run serves until ctx ends, then stops taking calls and waits for running ones.
func (p *service) Run(ctx context.Context) error {
	// The gateway's own heap is a megabyte or two, and the collector would run
	// hundreds of times a second for it. Memory that is never touched is never
	// resident; it only makes the heap look large enough to collect less often,
	// and counts for nothing once the heap is. With a thousand sessions it is, and
	// a collection takes long enough to be felt: half as many cost half as much.
	debug.SetGCPercent(200)
	ballast := make([]byte, 8<<20)
	defer runtime.KeepAlive(ballast)
	p.server = &http.Server{
		Handler:           p.gateway.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       front.RequestTime, // the gateway lifts it once the body is read
		IdleTimeout:       min(2*time.Minute, p.cfg.Limits.Idle),
		MaxHeaderBytes:    p.cfg.Limits.Header,
		ErrorLog:          slog.NewLogLogger(p.o.Log.Handler(), slog.LevelDebug),
	}
	p.listener.Attach(p.server)
	file := gatewayFile{URL: p.url, Token: p.token, PID: os.Getpid()}
	if p.cfg.Path != "" {
		var err error
		if file.Config, err = filepath.Abs(p.cfg.Path); err != nil { // it is read in other folders
			return err
		}
	}
	if p.cfg.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(p.cfg.TLS.Cert, p.cfg.TLS.Key)
		if err != nil {
			return fmt.Errorf("read the certificate: %w; mend tls.cert and tls.key", err)
		}
		p.server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
		file.Cert = fingerprint(pair.Certificate[0])
	}
	if err := writeGatewayFile(p.o.State, file); err != nil {
		return err
	}
	served := make(chan error, 1)
	var l net.Listener = p.listener
	if p.server.TLSConfig != nil {
		l = p.listener.Secured(p.server.TLSConfig)
	}
	go func() { served <- p.server.Serve(l) }()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { p.watch(watching) })
	wg.Go(func() { p.backups(watching) })
	if p.agents != nil {
		wg.Go(func() { p.agents.run(watching) })
	}
	defer wg.Wait()
	defer stop()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	p.o.Log.Info("stopping", "calls", p.gateway.InFlight())
	p.mu.Lock()
	allowed := p.cfg.Limits.Drain
	p.mu.Unlock()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), allowed)
	defer cancel()
	p.gateway.Drain(drain)
	// Answers that were just given still have to be written.
	flush, cancelFlush := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancelFlush()
	_ = p.server.Shutdown(flush)
	return nil
}

// closeInstruments closes them when no call runs any more, before the store that
// they write to.
func (p *service) closeInstruments(ctx context.Context) {
	if p.wallet != nil {
		p.wallet.Close()
	}
	if p.tracing != nil {
		p.tracing.Close(ctx)
	}
	if p.journal != nil {
		if err := p.journal.Close(); err != nil {
			p.o.Log.Warn("journal not closed in order", "err", err)
		}
	}
}

// endTime is how long servers have to end in order; some write their memory to
// disk.
const endTime = 2 * time.Minute

// Close ends everything the service owns. It may be called twice.
func (p *service) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.mu.Unlock()
	if p.server != nil {
		_ = p.server.Close()
	} else if p.listener != nil {
		_ = p.listener.Close()
	}
	if p.agents != nil {
		p.agents.close(p.o.Keep)
	}
	if p.gateway != nil {
		p.gateway.Close()
	}
	if p.registry != nil {
		end, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		p.registry.Close(end, p.o.Keep)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if p.plugins != nil {
		if err := p.plugins.close(); err != nil {
			p.o.Log.Warn("states not closed in order", "err", err)
		}
	}
	if p.networks != nil {
		p.networks.close() // the last connections have ended with the drivers
	}
	if p.gateway != nil {
		settle, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if !p.gateway.Settle(settle) {
			p.o.Log.Warn("some calls that were cut off are not in the journal")
		}
	}
	if p.url != "" {
		if err := removeGatewayFile(p.o.State, os.Getpid()); err != nil {
			p.o.Log.Debug("gateway file not removed", "err", err)
		}
	}
	p.closeInstruments(ctx)
	if p.gateway != nil {
		p.backup(context.Background())
	}
	if p.store != nil {
		if err := p.store.Close(); err != nil {
			p.o.Log.Warn("store not closed in order", "err", err)
		}
	}
	if p.unlock != nil {
		if p.o.Closed != nil && p.gateway != nil {
			p.o.Closed()
		}
		p.unlock()
	}
}
