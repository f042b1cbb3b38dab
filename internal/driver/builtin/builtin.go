// Package builtin is the driver of the MCP servers inside the binary. An
// instance is one mcp.Server; a link to it is a pair of short queues of
// messages, with no process, pipe or socket in between.
//
// Instances live and die with the gateway: nothing is adopted.
package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// Name is the driver's name in configs and handles.
const Name = "builtin"

// A Factory makes a server from its settings. What the server starts must end
// with the sessions of the server: there is nothing else to close.
type Factory func(settings map[string]any) (*mcp.Server, error)

// Driver starts built-in servers.
type Driver struct {
	factories map[string]Factory
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver for the given servers, by the names they have in the
// config.
func New(factories map[string]Factory) *Driver {
	return &Driver{factories: maps.Clone(factories)}
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: Name, Scopes: []string{config.ScopeSession, config.ScopeShared}}
}

// Start implements [driver.Driver].
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("server %q: start: %w", spec.Server, err)
	}
	factory, ok := d.factories[spec.Builtin]
	if !ok {
		return nil, fmt.Errorf("server %q: there is no built-in server %q; set servers.%s.builtin to one of %s",
			spec.Server, spec.Builtin, spec.Server, strings.Join(slices.Sorted(maps.Keys(d.factories)), ", "))
	}
	server, err := factory(spec.Settings)
	if err != nil {
		return nil, fmt.Errorf("server %q: built-in server %q: %w", spec.Server, spec.Builtin, err)
	}
	data, err := json.Marshal(map[string]string{"builtin": spec.Builtin})
	if err != nil {
		return nil, fmt.Errorf("server %q: write the handle: %w", spec.Server, err)
	}
	log := spec.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	grace := spec.StopGrace
	if grace == 0 {
		grace = 5 * time.Second
	}
	server.AddReceivingMiddleware(containPanics(spec.Server, log))
	return &instance{
		handle: driver.Handle{Driver: Name, Server: spec.Server, Session: spec.Session, Dir: spec.Dir, Data: data},
		server: server,
		grace:  grace,
		log:    log,
		done:   make(chan struct{}),
	}, nil
}

// Adopt implements [driver.Driver]. There is never anything to adopt, and what
// an earlier gateway left of the instance's folder is removed.
func (d *Driver) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	if h.Dir != "" {
		if err := os.RemoveAll(h.Dir); err != nil {
			return nil, fmt.Errorf("server %q: remove the folder of an ended instance: %w", h.Server, err)
		}
	}
	return nil, fmt.Errorf("server %q: built-in servers end with the gateway: %w", h.Server, driver.ErrGone)
}
