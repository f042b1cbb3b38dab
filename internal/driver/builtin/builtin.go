// Package builtin is the driver of the MCP servers inside the binary. An
// instance is one mcp.Server; a link to it is a pair of short queues of
// messages, with no process, pipe or socket in between.
//
// Instances live and die with the gateway, and what they remember does not: it
// is a state in layers, which the next instance on the same folder opens again
// with every change that was answered. So there is nothing to adopt and nothing
// to lose. A fork seals the state, which costs the same whatever it holds.
package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/workspace"
)

// Name is the driver's name in configs and handles.
const Name = "builtin"

// A Kind is one kind of built-in server.
type Kind struct {
	// New makes a server. The closer, which may be nil, is closed when the
	// server's last MCP session has ended and the instance stops; nothing else
	// that the server starts may outlive its sessions.
	New func(Env) (*mcp.Server, io.Closer, error)
	// Edition changes with what a front lists; empty for a kind without a body.
	Edition string
	// Remembers is whether it has state of its own, which is at Env.State.
	Remembers bool
	// Import fills the empty state at Env.State from a template, a file or a
	// directory; nil where there is no way to. progress is never nil.
	Import func(ctx context.Context, env Env, template string, progress func(done, total int64)) error
	// Read tells what is in the state at Env.State, which no server works on; nil where
	// there is no way to.
	Read func(ctx context.Context, env Env, each func(driver.Item) error) error
}

// Env is what a server is made with.
type Env struct {
	Server    string
	Session   string // whose it is; empty where all share it
	Settings  map[string]any
	Body      *driver.Body // of a front; nil where it is asked only what it lists
	Layers    *layer.Store
	State     string       // the folder of its state in Layers; empty where it has none
	Workspace workspace.FS // nil where it does not see one
	Log       *slog.Logger // never nil
}

// Options of a Driver.
type Options struct {
	// Kinds are the servers, by the names they have in the config.
	Kinds map[string]Kind
	// Layers holds the states of this driver's servers and no others: Recover removes
	// what it does not know. It may be nil where no kind remembers anything, and is
	// closed after the driver.
	Layers *layer.Store
	// Dir is a folder for templates that are being imported. What is in it is the
	// driver's.
	Dir string
}

// Driver starts built-in servers and keeps their states.
type Driver struct {
	kinds     map[string]Kind
	layers    *layer.Store
	dir       string
	templates *templates
	fronts    sync.WaitGroup // goroutines that serve the links of fronts

	mu sync.Mutex
	// Snapshots that were not discarded yet, by id. Several may be the same layer,
	// each with a reference of its own, and one must not be given back twice.
	snapshots map[string]layer.Ref
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Keeper     = (*Driver)(nil)
	_ driver.Rememberer = (*Driver)(nil)
)

// New returns a driver. Close it when all instances have stopped.
func New(o Options) *Driver {
	return &Driver{
		kinds: maps.Clone(o.Kinds), layers: o.Layers, dir: o.Dir,
		templates: newTemplates(o.Layers), snapshots: map[string]layer.Ref{},
	}
}

// Close ends running imports and releases what they made. It waits for fronts whose
// links were closed.
func (d *Driver) Close() {
	d.templates.close()
	d.fronts.Wait()
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: Name, Scopes: []string{config.ScopeSession, config.ScopeShared}, Light: true}
}

// kind finds what a spec asks for.
func (d *Driver) kind(spec driver.Spec) (Kind, error) {
	k, ok := d.kinds[cmp.Or(spec.Front, spec.Builtin)]
	if !ok || (k.Edition != "") != (spec.Front != "") {
		return Kind{}, d.unknown(spec)
	}
	if k.Remembers && (spec.State == "" || d.layers == nil) {
		return Kind{}, fmt.Errorf("server %q: built-in server %q remembers things and was given no folder for them", spec.Server, spec.Builtin)
	}
	return k, nil
}

// unknown is the error of a spec whose server is not in the binary.
func (d *Driver) unknown(spec driver.Spec) error {
	return fmt.Errorf("server %q: there is no built-in server %q; set servers.%s.builtin to one of %s",
		spec.Server, spec.Builtin, spec.Server, strings.Join(slices.Sorted(maps.Keys(d.kinds)), ", "))
}

func (d *Driver) env(spec driver.Spec) Env {
	log := spec.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := Env{Server: spec.Server, Session: spec.Session, Settings: spec.Settings, Layers: d.layers, State: spec.State, Log: log}
	if spec.Workspace != nil {
		at := cmp.Or(spec.WorkspacePath, config.DefaultWorkspace)
		e.Workspace = spec.Workspace.At(at, config.DefaultWorkspace)
	}
	return e
}

// Start implements [driver.Driver].
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("server %q: start: %w", spec.Server, err)
	}
	kind, err := d.kind(spec)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string]string{"builtin": spec.Builtin})
	if err != nil {
		return nil, fmt.Errorf("server %q: write the handle: %w", spec.Server, err)
	}
	env := d.env(spec)
	server, closer, err := kind.New(env)
	var due atomic.Pointer[error]
	if cut := (*layer.Cut)(nil); errors.As(err, &cut) {
		// It is written down now, so that the server can go on with what is left.
		lost := d.lost(spec, err)
		due.Store(&lost)
		server, closer, err = kind.New(env)
	}
	if err != nil {
		return nil, fmt.Errorf("server %q: built-in server %q: %w", spec.Server, spec.Builtin, d.lost(spec, err))
	}
	grace := spec.StopGrace
	if grace == 0 {
		grace = 5 * time.Second
	}
	i := &instance{
		handle: driver.Handle{Driver: Name, Server: spec.Server, Session: spec.Session, Dir: spec.Dir, Data: data},
		server: server,
		closer: closer,
		grace:  grace,
		log:    env.Log,
		done:   make(chan struct{}),
	}
	server.AddReceivingMiddleware(through(&i.gate), d.verified(spec, &due), containPanics(spec.Server, env.Log))
	return i, nil
}

// Adopt implements [driver.Driver]. There is never anything to adopt, and what
// an earlier gateway left of the instance's folder is removed; its state is
// elsewhere, and the next Start goes on with it.
func (d *Driver) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	if h.Dir != "" {
		if err := os.RemoveAll(h.Dir); err != nil {
			return nil, fmt.Errorf("server %q: remove the folder of an ended instance: %w", h.Server, err)
		}
	}
	return nil, fmt.Errorf("server %q: built-in servers end with the gateway and start again on what they remember: %w", h.Server, driver.ErrGone)
}
