// Package remote is the driver for servers that an orchestrator runs: it is asked for an
// instance, says where it is, and gets a request to remove it when it is not needed any
// more.
//
// # The orchestrator's API
//
//	POST   {url}{create}    {resource_type_identifier, num_instances: 1, session_id,
//	                         instance_scoping, template_details}
//	                        answers [{remote_instance_id, mcp_endpoint_url,
//	                         instance_id?, access_token?}], or one of them
//	DELETE {url}{delete}    404 and 410 are as good as 200
//	GET    {url}{delete}    optional: a second opinion when an instance seems gone
//	POST   {url}{call}      {tool_name, arguments} answers a tool's result, or JSON
//	POST   {url}{fork}      {count: 1} answers like create
//	POST   {url}{snapshot}  {} answers {snapshot_id}; an instance begins from one
//	                        with template_details {"snapshot_id": "..."}
//	DELETE {url}/snapshots/{snapshot_id}
//	GET    {url}{health}
//
// Without call the instance's endpoint is spoken to as MCP, with its own access
// token and nothing else of ours. With call the orchestrator passes the calls on,
// and the list of tools is asked for at the endpoint. An instance that has none
// shows no tools, but each can be called. An orchestrator of type mcp is an MCP
// server whose tools do all this.
//
// # What is left
//
// Everything that is made is in a ledger before it is asked for, and until it is
// removed. What a killed gateway leaves is removed by the next one, and what an
// orchestrator does not remove now is tried again later. A request whose answer
// was lost is sent once more with the same Idempotency-Key, to learn what came of
// it. An orchestrator that ignores the key makes a second instance then, of which
// it says the name; the first stays with it, as its name is not known.
//
// # State
//
// Where the API can fork or make snapshots, a state is the instance itself: it
// lives as long as the state, and Stop only lets go of it. One that the
// orchestrator forgets ends with driver.ErrLost, and the next Start begins anew.
// Adopt asks for nothing: an instance that was forgotten meanwhile says so at its first
// call.
package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/routes"
)

// Name is the driver's name in configs and handles.
const Name = "remote"

// Options of a Driver.
type Options struct {
	// Dir is the folder of the ledger, which is the driver's alone.
	Dir string
	// MaxFrame bounds one result of a tool, in bytes; zero for 64 MiB.
	MaxFrame int
	// Authorize returns what puts the credentials of a server on requests, nil
	// where its headers are enough. It is asked where no spec says it, such as for
	// what an earlier gateway left. It may be nil.
	Authorize func(server string) func(http.RoundTripper) http.RoundTripper
	Log       *slog.Logger
}

// Driver has instances made by orchestrators.
type Driver struct {
	o        Options
	log      *slog.Logger
	ledger   ledger
	maxFrame int
	late     time.Duration // how long an answer may take that no caller waits for
	pause    time.Duration // before what was not removed is tried again
	places   chan struct{} // of those that remove

	life context.Context
	end  context.CancelFunc

	pool routes.Pool

	mu      sync.Mutex
	closed  bool
	work    sync.WaitGroup
	learned map[string]wrapper    // by server and origin
	reaping map[string]*removal   // by key
	asking  map[string][]*removal // removals of lost answers, by what they are about
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Keeper  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
)

// New returns a driver. Close it when all instances have stopped or were left.
func New(o Options) *Driver {
	d := &Driver{
		o: o, log: o.Log, ledger: ledger{o.Dir}, maxFrame: o.MaxFrame,
		late: 5 * time.Minute, pause: time.Second, places: make(chan struct{}, removing),
		learned: make(map[string]wrapper), reaping: make(map[string]*removal), asking: make(map[string][]*removal),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.maxFrame <= 0 {
		d.maxFrame = 64 << 20
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// Close ends what goes on in the background. The next gateway goes on with it.
func (d *Driver) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.work.Wait()
}

var errClosed = errors.New("the gateway is stopping")

// spawn does something in the background, until Close.
func (d *Driver) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}

// newKey makes the key of a request.
func newKey() string { return "tine-" + rand.Text() }

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name: Name, Adopts: true, Details: true, Scopes: []string{config.ScopeSession, config.ScopeShared},
		Transport: func(driver.Spec) string { return "http" },
		Address:   address,
		Mends: driver.Mends{
			Gone:   "check that the orchestrator at servers.ID.remote.url names an mcp_endpoint_url that can be reached from here",
			Locked: "the orchestrator at servers.ID.remote.url must give an access_token that it takes",
			Moved:  "have the orchestrator at servers.ID.remote.url name that if it is right",
		},
	}
}

// address is where the orchestrator of a server is.
func address(spec driver.Spec) string {
	if options(spec) == nil {
		return ""
	}
	return options(spec).URL
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("server %q: start: %w", spec.Server, err)
	}
	a, err := accessOf(spec)
	if err != nil {
		return nil, err
	}
	var e *entry
	if kept(a, spec.State) {
		e, err = d.resume(ctx, a, spec)
	} else if e, err = newEntry(a, spec, newKey(), template(spec)); err == nil {
		e.Dir = spec.Dir
		e, err = d.obtain(ctx, e)
	}
	if err != nil {
		return nil, err
	}
	inst, err := d.instance(e, driver.Handle{Driver: Name, Server: spec.Server, Session: spec.Session, Dir: spec.Dir}, spec.StopGrace, false)
	if err != nil && e.State == "" {
		d.dispose(e)
	}
	if err != nil {
		return nil, err
	}
	return inst, nil
}

// resume returns the instance that a state is, which is made where there is none
// yet.
func (d *Driver) resume(ctx context.Context, a access, spec driver.Spec) (*entry, error) {
	key, err := readState(spec.State)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", spec.Server, err)
	}
	if key != "" {
		e, err := d.ledger.get(key)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", spec.Server, err)
		}
		if e != nil && e.ID != "" {
			e.Access = a.instead(e.Access)
			return e, nil
		}
		if err := writeState(spec.State, ""); err != nil {
			return nil, fmt.Errorf("server %q: %w", spec.Server, err)
		}
		return nil, fmt.Errorf("server %q: the instance that its state was is not known any more: %w", spec.Server, driver.ErrLost)
	}
	e, err := newEntry(a, spec, newKey(), template(spec))
	if err != nil {
		return nil, err
	}
	e.State = spec.State
	if e, err = d.obtain(ctx, e); err != nil {
		return nil, err
	}
	return e, d.settle(spec.State, e)
}

// Adopt implements driver.Driver.
func (d *Driver) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	var data handleData
	_ = json.Unmarshal(h.Data, &data) // what is unreadable names nothing
	e, err := d.ledger.get(data.Key)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", h.Server, err)
	}
	there := e != nil && e.ID != "" && e.Left.IsZero()
	if there && e.State != "" {
		key, err := readState(e.State)
		there = err == nil && key == e.Key
	}
	if !there {
		if h.Dir != "" {
			if err := os.RemoveAll(h.Dir); err != nil {
				return nil, fmt.Errorf("server %q: remove the folder of an ended instance: %w", h.Server, err)
			}
		}
		return nil, fmt.Errorf("server %q: the orchestrator was asked to remove the instance: %w", h.Server, driver.ErrGone)
	}
	return d.instance(e, h, 0, true)
}
