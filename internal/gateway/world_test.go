package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/driver/process"
	"github.com/tine-mcp/tine/internal/driver/url"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream/credential"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/workspace"
)

// A world is one gateway with what it needs, on a port of its own. Its address
// stays when the gateway is closed and opened again.
type world struct {
	t      *testing.T
	yaml   string
	dir    string
	native map[string]builtin.Kind
	log    *testkit.Log
	change func(*gateway.Options) // nil for nothing

	ts      *httptest.Server
	handler atomic.Pointer[http.Handler]
	http    *http.Client

	plugins []io.Closer // of the drivers, in the order they were opened
	db      *sqlite.DB
	hub     store.Hub
	journal *journal.Journal
	wallet  *credential.Wallet
	metrics *telemetry.Metrics
	tracing *telemetry.Tracing // set before start to trace
	rg      *session.Registry
	gw      *gateway.Gateway
}

// operator is the token of the machine's own user.
const operator = "operator-operator-operator"

// open starts a gateway on a config. Servers of the builtin driver come from
// native, by the name in the config.
func open(t *testing.T, yaml string, native ...map[string]builtin.Kind) *world {
	t.Helper()
	return openWith(t, yaml, nil, native...)
}

// openWith changes what the gateway works with, each time it is started.
func openWith(t *testing.T, yaml string, change func(*gateway.Options), native ...map[string]builtin.Kind) *world {
	t.Helper()
	w := &world{t: t, yaml: yaml, dir: t.TempDir(), log: new(testkit.Log), native: map[string]builtin.Kind{}, change: change}
	for _, n := range native {
		for name, f := range n {
			w.native[name] = f
		}
	}
	w.ts = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*w.handler.Load()).ServeHTTP(rw, r)
	}))
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	w.http = &http.Client{Transport: tr}
	w.start()
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		w.stop(false)
		w.ts.Close()
		tr.CloseIdleConnections()
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", w.log)
		}
	})
	return w
}

func parse(t *testing.T, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(yaml), config.Options{Path: "tine.yaml", Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatalf("config: %v\n%s", err, yaml)
	}
	return cfg
}

func (w *world) start() {
	w.t.Helper()
	ctx := context.Background()
	cfg := parse(w.t, w.yaml)
	redact := telemetry.NewRedactor()
	redact.Set(cfg.Secrets())
	log := telemetry.NewLogger(w.log, "debug", "text", redact)
	w.db = sqlitetest.Open(w.t, w.dir)
	id, err := w.db.GatewayID(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.journal, err = journal.Open(ctx, journal.Options{
		Dir: filepath.Join(w.dir, "journal"), Index: w.db, MaxAge: cfg.Journal.MaxAge, MaxSize: cfg.Journal.MaxSize, Hub: &w.hub, Log: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.wallet = credential.New(credential.Options{Store: w.db, Learn: redact.Learn, Log: log})
	w.metrics = telemetry.NewMetrics("1.2.3", func() telemetry.Snapshot { return w.gw.Snapshot() })
	layers := func(name string) *layer.Store {
		s, err := layer.OpenStore(layer.Options{Dir: filepath.Join(w.dir, "layers", name), Log: log})
		if err != nil {
			w.t.Fatal(err)
		}
		w.plugins = append(w.plugins, s)
		return s
	}
	inside := layers("builtin")
	workspaces := workspace.NewStore(layers("workspace"), workspace.Options{})
	within := builtin.New(builtin.Options{Kinds: w.native, Layers: inside, Dir: filepath.Join(w.dir, "templates")})
	w.plugins = append(w.plugins, workspaces, closer(within.Close))
	seal, err := session.OpenSeal(filepath.Join(w.dir, "snapshot.key"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.rg, err = session.Open(ctx, cfg, session.Options{
		Drivers: map[string]driver.Driver{"url": url.New(), "builtin": within, "process": process.New(process.Options{})},
		Local:   w.db, Shared: w.db, Dir: filepath.Join(w.dir, "instances"), States: filepath.Join(w.dir, "states"), Workspaces: workspaces,
		Wallet: w.wallet, Hub: &w.hub, Log: log, Starts: access.Owners, Seal: seal,
		Record: record.Options{Journal: w.journal, Metrics: w.metrics, Tracing: w.tracing, Redact: redact, Log: log},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	agents, book := w.coordinator(ctx, cfg)
	o := gateway.Options{
		Registry: w.rg, Clients: w.db, Creations: w.db, Tokens: w.db, Operator: operator, Version: "1.2.3", ID: id, StateDir: w.dir,
		Agents: agents, Book: book, Wallet: w.wallet, Journal: w.journal, Feed: w.db, Hub: &w.hub, Metrics: w.metrics, Tracing: w.tracing, Redact: redact, Log: log,
	}
	if w.change != nil {
		w.change(&o)
	}
	w.gw, err = gateway.New(ctx, cfg, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.gw.Secrets()
	h := w.gw.Handler()
	w.handler.Store(&h)
}

func (w *world) stop(keep bool) {
	w.gw.Close()
	w.rg.Close(context.Background(), keep)
	for _, p := range slices.Backward(w.plugins) {
		_ = p.Close()
	}
	w.plugins = nil
	w.wallet.Close()
	_ = w.journal.Close()
	_ = w.db.Close()
}

// closer is a Close that can't fail.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// restart closes the gateway as one that will come back and opens a new one on
// the same state.
func (w *world) restart() {
	w.t.Helper()
	w.stop(true)
	w.start()
}

// at is the address of a path of the gateway.
func (w *world) at(path string) string { return w.ts.URL + path }

// factory makes a builtin server that every instance shares the making of.
func factory(make func() *mcp.Server) builtin.Kind {
	return builtin.Kind{New: func(builtin.Env) (*mcp.Server, io.Closer, error) { return make(), nil, nil }}
}

// servers renders a config of url servers: pairs of an id and either an address
// or a flow mapping with more keys.
func servers(pairs ...string) string {
	var b strings.Builder
	b.WriteString("servers:\n")
	for i := 0; i < len(pairs); i += 2 {
		entry := pairs[i+1]
		if !strings.HasPrefix(entry, "{") {
			entry = "{url: \"" + entry + "\"}"
		}
		b.WriteString("  " + pairs[i] + ": " + entry + "\n")
	}
	return b.String()
}
