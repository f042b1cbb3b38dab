// Package docker is the driver that runs MCP servers in containers, by the API
// of a Docker Engine or of Podman.
//
// # How a container outlives us
//
// It lives in the engine. An instance has a folder of its own (0700):
//
//	docker.json  which engine and which container it is
//	stderr       what it wrote to its standard error, and stderr.old the part before
//
// A server that speaks stdio is attached to, twice: its input and output are one
// connection, which is read when a message is wanted, and its standard error another,
// which is always read. What it writes while no gateway is attached is lost, for the
// engine keeps none of it: its log would hold every message. The next gateway attaches
// again, and ends a line that may be half written.
//
// Podman closes the input of a container when the attached client goes. A server there
// that speaks stdio ends with the gateway, and one that speaks HTTP does not.
//
// # What a server remembers
//
// The state of a server is what its config declares. A path is a volume, which
// every instance on that state has at the path; "root" is the container itself,
// which stays when an instance ends and is started again by the next one. A
// folder of state or of a snapshot holds a record that names the volumes and the image:
// the owner of the record owns them, and what no record names has no owner. A fork
// pauses the container, copies the volumes, commits the root, and lets it go on.
//
// # Nothing is left over
//
// Everything has labels: the gateway, session, server, ordinal and instance. What is
// labelled with this gateway and has no owner in it is removed when the gateway starts.
// What can't be removed because the engine is away is tried again until it is back.
package docker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

const driverName = "docker"

// Options of New.
type Options struct {
	Gateway   string        // the owner of the state folder; in labels
	Dir       string        // a folder for what the driver keeps on the host; made when it is needed
	MaxFrame  int           // bytes of one message from a server; default 64 MiB
	StopGrace time.Duration // how long to ask before killing, where the spec does not say; default 10s
	LogLimit  int64         // bytes of standard error kept of an instance, about; default 1 MiB
	Log       *slog.Logger

	ListenWait  time.Duration // how long a server may take until it listens; default 60s
	ImportBytes int64         // of the files of a snapshot that is imported; default 64 GiB
	ImportFiles int           // how many, with directories and links; default a million
	MaxLayers   int           // of an image, before it is made one again; default 100, engines take 125
}

// Driver runs containers. Make it with New.
type Driver struct {
	opts    Options
	buffers *sync.Pool
	turns   *turns // of making a template or an image

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // what goes on in the background

	mu      sync.Mutex
	closed  bool
	engines map[string]*engine
	retried map[string]bool // removals that are tried again
	live    map[string]bool // what this driver has made, by key or name
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
	_ driver.Keeper  = (*Driver)(nil)
)

// New returns a driver. It talks to no engine until a container is wanted, or
// one of an earlier gateway is to be looked for.
func New(opts Options) *Driver {
	if opts.MaxFrame <= 0 {
		opts.MaxFrame = 64 << 20
	}
	if opts.StopGrace <= 0 {
		opts.StopGrace = 10 * time.Second
	}
	if opts.LogLimit <= 0 {
		opts.LogLimit = 1 << 20
	}
	if opts.ListenWait <= 0 {
		opts.ListenWait = time.Minute
	}
	if opts.ImportBytes <= 0 {
		opts.ImportBytes = 64 << 30
	}
	if opts.ImportFiles <= 0 {
		opts.ImportFiles = 1_000_000
	}
	if opts.MaxLayers <= 0 {
		opts.MaxLayers = 100
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{
		opts: opts, buffers: lines.NewBuffers(), turns: newTurns(),
		engines: make(map[string]*engine), retried: make(map[string]bool), live: make(map[string]bool),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name: driverName, Adopts: true, Scopes: []string{config.ScopeSession, config.ScopeShared}, Commands: true, Walls: true,
		Transport: transport,
		Mends: driver.Mends{
			Gone:   "check that it listens at servers.ID.docker.port on every address of the container",
			Locked: "a server in a container is shown no credentials; have it want none",
			Moved:  "set servers.ID.docker.path to that if it is right",
		},
	}
}

// transport is how a server in a container speaks.
func transport(spec driver.Spec) string {
	if c := options(spec); c != nil && (c.Transport == config.ContainerHTTP || c.Transport == "" && c.Port != 0) {
		return config.ContainerHTTP
	}
	return config.ContainerStdio
}

// Close ends what goes on in the background and the connections to engines.
// Instances should be stopped or left before.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, e := range d.engines {
		errs = append(errs, e.cli.Close())
	}
	clear(d.engines)
	return errors.Join(errs...)
}
