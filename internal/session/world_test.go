package session_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
	"github.com/tine-mcp/tine/internal/workspace"
)

// A world is a machine, a state folder, and one gateway's registry after the
// other.
type world struct {
	*session.Registry
	t       *testing.T
	m       *machine
	dir     string
	db      *sqlite.DB
	wrap    func(store.Store) store.Store
	also    map[string]driver.Driver // besides those of the machine
	without string                   // a driver of the machine that is not there
	boxes   *boxes                   // the driver whose forks carry memory; nil for none
	layers  *layer.Store
	spaces  *workspace.Store
	journal *journal.Journal // only where a test records
	records bool
	change  func(*session.Options) // nil for nothing
}

func parse(t *testing.T, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(yaml), config.Options{Path: "tine.yaml", Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatalf("%v in\n%s", err, yaml)
	}
	return cfg
}

func newWorld(t *testing.T, yaml string) *world {
	t.Helper()
	return makeWorld(t, yaml, func(*world) {})
}

// makeWorld is newWorld with something else about it.
func makeWorld(t *testing.T, yaml string, with func(*world)) *world {
	t.Helper()
	m := newMachine(t)
	w := &world{t: t, m: m, dir: filepath.Join(t.TempDir(), "state")}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	with(w)
	w.open(yaml)
	t.Cleanup(func() {
		m.forgive()
		if w.Registry != nil {
			w.close(false)
		}
		for _, p := range m.procs {
			p.kill()
		}
	})
	return w
}

func (w *world) open(yaml string) {
	w.t.Helper()
	ctx := context.Background()
	w.db = sqlitetest.Open(w.t, w.dir)
	var err error
	if w.layers, err = layer.OpenStore(layer.Options{Dir: filepath.Join(w.dir, "layers")}); err != nil {
		w.t.Fatal(err)
	}
	w.spaces = workspace.NewStore(w.layers, workspace.Options{Dir: filepath.Join(w.dir, "work")})
	gen := w.m.generation()
	drivers := map[string]driver.Driver{"process": &desk{w.m, gen, "process"}, "builtin": &desk{w.m, gen, "builtin"}}
	if w.boxes != nil {
		w.boxes.desk = &desk{w.m, gen, boxKind}
		drivers[boxKind] = w.boxes
	}
	maps.Copy(drivers, w.also)
	delete(drivers, w.without)
	o := session.Options{
		Drivers: drivers, Dir: filepath.Join(w.dir, "instances"), States: w.dir,
		Workspaces: w.spaces, Log: slog.New(slog.DiscardHandler),
	}
	var st store.Store = &tap{w.db, w.m, gen}
	if w.wrap != nil {
		st = w.wrap(st)
	}
	o.Local, o.Shared = st, st
	if w.records {
		w.journal, err = journal.Open(ctx, journal.Options{Dir: filepath.Join(w.dir, "journal"), Index: w.db})
		if err != nil {
			w.t.Fatal(err)
		}
		o.Record.Journal = w.journal
	}
	if w.change != nil {
		w.change(&o)
	}
	if w.Registry, err = session.Open(ctx, parse(w.t, yaml), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close(keep bool) {
	w.Registry.Close(context.Background(), keep)
	w.closeStores()
}

func (w *world) closeStores() {
	if w.journal != nil {
		_ = w.journal.Close()
	}
	_ = w.spaces.Close()
	_ = w.layers.Close()
	_ = w.db.Close()
}

// reopen is a restart of the gateway.
func (w *world) reopen(yaml string) {
	w.t.Helper()
	w.close(true)
	w.open(yaml)
}

// handleFiles are the handles beside the folders of instances.
func (w *world) handleFiles() []string {
	all, err := filepath.Glob(filepath.Join(w.dir, "instances", "*.handle"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// crash is a restart after a death in which nothing could be tidied up.
func (w *world) crash(yaml string) {
	w.t.Helper()
	dead := w.Registry
	_ = w.db.Close()
	w.m.crash()
	files := make(map[string][]byte) // which the dead one must not tidy up either
	for _, path := range w.handleFiles() {
		files[path], _ = os.ReadFile(path)
	}
	dead.Close(context.Background(), true)
	w.closeStores()
	for path, b := range files {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	w.open(yaml)
}

func (w *world) apply(yaml string) {
	w.t.Helper()
	if err := w.Apply(context.Background(), parse(w.t, yaml)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) session(owner string) *session.Session {
	w.t.Helper()
	s, err := w.Default(context.Background(), owner)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// call calls a tool of a server in a session and returns the result, or the
// error as "kind: message".
func call(t *testing.T, s *session.Session, server, tool string) string {
	t.Helper()
	up, _, err := s.Upstream(server)
	if err == nil {
		p, _ := wire.ScanParams(wire.MethodCallTool, []byte(`{"name":"`+tool+`"}`))
		var res *upstream.Result
		res, err = up.Call(context.Background(), &upstream.Request{Method: wire.MethodCallTool, Params: p, Name: tool, Client: &upstream.Client{Key: "k"}})
		if err == nil {
			return string(res.Result) + string(res.Error)
		}
	}
	var fail *api.Error
	if !errors.As(err, &fail) {
		t.Errorf("not an API error: %v", err)
		return err.Error()
	}
	return string(fail.Kind) + ": " + fail.Message
}

func later(t *testing.T, s *session.Session, server, tool string) <-chan string {
	out := make(chan string, 1)
	go func() { out <- call(t, s, server, tool) }()
	return out
}

// runs waits until exactly these servers run.
func (w *world) runs(want string) {
	w.t.Helper()
	testkit.Eventually(w.t, fmt.Sprintf("what runs is %q", want), func() bool { return w.m.running() == want })
}

func (w *world) handles() string {
	w.t.Helper()
	hs, err := w.db.Handles(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, h := range hs {
		out = append(out, h.Server)
	}
	return strings.Join(out, " ")
}

// ear hears for a client.
type ear struct {
	can    bool
	reply  string
	client string // its key; that of call where it is empty

	mu    sync.Mutex
	heard []string
}

func (e *ear) Note(server, method string, params []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, strings.TrimSpace(server+" "+method+" "+string(params)))
}

func (e *ear) Ask(_ context.Context, server, method string, _ []byte) (upstream.Reply, bool) {
	e.Note(server, method, []byte("asked"))
	return upstream.Reply{Result: []byte(e.reply)}, true
}

func (e *ear) CanAsk(string) bool { return e.can }

func (e *ear) Client() string { return cmp.Or(e.client, "k") }

func (e *ear) has(part string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Contains(strings.Join(e.heard, "|"), part)
}
