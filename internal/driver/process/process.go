// Package process is the driver that runs stdio MCP servers as child processes
// which outlive the gateway.
//
// # How a child outlives us
//
// An instance has a folder of its own (0700):
//
//	process.json  its identity: a random token, and once it runs its pid and start time
//	in, out       named FIFOs (0600), the child's standard input and output
//	stderr        what it wrote to its standard error, and stderr.old the part before
//
// The child has both FIFOs open for reading and writing, so it sees no end of
// its input when the gateway dies, and no broken pipe: it waits, with at most a
// pipe's worth of output. The next gateway opens the FIFOs again. A line that
// the dead one left half written is ended by a newline, a line that it left half
// read is dropped because it is no JSON.
//
// The price is that closing our end says nothing to the child: a server is asked
// to stop with SIGTERM.
//
// # Nothing is left over
//
// A child is the leader of its own session and process group. The group is
// ended whole. What has left the group is found by the token, which every
// descendant inherits in its environment, and by the FIFOs it has open; a child
// that was started in the moment the gateway was killed, before anything could
// be written about it, is found the same way by Sweep. A process that leaves the
// session, clears its environment and closes the pipes can't be found: a server that
// does so on purpose needs a driver with walls.
//
// On Windows there are no such FIFOs: the child is in a job that ends with the
// gateway.
//
// # Where a server sees the workspace
//
// The folder of a session's workspace has another path in each fork, and a path that a
// server has learned must be good in all of them. On Linux a child is in a
// mount namespace of its own, in which the folder is bound to a path that is the
// same for all sessions: this program is started in it, does that, and becomes
// the server (see Main). It needs root, or user namespaces. The mount ends with
// the namespace, which ends with the last process in it.
//
// # Packages
//
// npx, uvx and pipx fetch before they start a program. They are run ahead, without the
// program, so that a fetch takes nothing of the time of a start (see Fetch): what they
// fetch is in their own caches.
//
// # What a server remembers
//
// A program's state is what its config declares: directories, each at
// Spec.State/NAME, which args and environment name as ${state.NAME}. A fork stops
// the processes of the instance, clones the directories, lets them go on, and
// starts another server on the clone. What a server keeps in its memory and has
// not written is not carried, as after a crash.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/life"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// Options of New. The zero value is useful.
type Options struct {
	MaxFrame  int           // bytes of one message from a server; default 64 MiB
	StopGrace time.Duration // how long to ask before killing, where the spec does not say; default 5s
	LogLimit  int64         // bytes of standard error kept of an instance, about; default 1 MiB
	Environ   []string      // the environment of the gateway; default os.Environ()

	// Self is this program, which calls Main first: by it children are started that
	// see the workspace at a path of its own. Empty for none: they see it where it
	// lies.
	Self string
	// Place is a folder for the workspace to be seen at where the path that is wanted
	// is taken or can't be made; it is made when it is needed. Empty for none.
	Place string

	// Fetched is a folder for notes on the packages that npx, uvx and pipx have
	// fetched; empty where they fetch when they are started.
	Fetched string
	Log     *slog.Logger

	ImportBytes int64 // of the files of a snapshot that is imported; default 64 GiB
	ImportFiles int   // how many, with directories and links; default a million
}

// Driver runs child processes. Make it with New.
type Driver struct {
	opts    Options
	buffers *sync.Pool
	census  census
	places  places
	fetches fetching
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
	_ driver.Keeper  = (*Driver)(nil)
	_ driver.Placer  = (*Driver)(nil)
)

// New returns a driver. It owns nothing until something is started.
func New(opts Options) *Driver {
	if opts.MaxFrame <= 0 {
		opts.MaxFrame = 64 << 20
	}
	if opts.StopGrace <= 0 {
		opts.StopGrace = 5 * time.Second
	}
	if opts.LogLimit <= 0 {
		opts.LogLimit = 1 << 20
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	if opts.ImportBytes <= 0 {
		opts.ImportBytes = 64 << 30
	}
	if opts.ImportFiles <= 0 {
		opts.ImportFiles = 1_000_000
	}
	d := &Driver{opts: opts, buffers: lines.NewBuffers()}
	d.places = places{self: opts.Self, other: opts.Place}
	return d
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name: "process", Adopts: adopts, Scopes: []string{"session", "shared"}, Commands: adopts,
		Transport: func(driver.Spec) string { return "stdio" },
	}
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	inst, err := d.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", spec.Server, err)
	}
	return inst, nil
}

func (d *Driver) start(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if spec.Dir == "" {
		return nil, errors.New("no folder for the instance is given")
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the instance's folder: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, recordName)); err == nil {
		return nil, fmt.Errorf("folder %s belongs to another instance", dir)
	}
	defer func() {
		if err != nil {
			folder.Remove(dir, recordName)
		}
	}()
	if err := intact(spec); err != nil {
		return nil, err
	}
	m := d.mountOf(spec)
	if spec, err = fillIn(spec, m); err != nil {
		return nil, err
	}
	if err := checkCwd(spec, m); err != nil {
		return nil, err
	}
	rec := newRecord(spec.StopGrace, d.opts.StopGrace)
	if len(spec.Dirs) > 0 {
		rec.State, rec.Dirs = spec.State, spec.Dirs
		if err := dirs.Note(spec.State, spec.State, spec.Dirs); err != nil {
			return nil, fmt.Errorf("note the directories of its state: %w", err)
		}
	}
	env := family.NewEnvironment(d.opts.Environ, spec.Env, spec.Cwd, rec.Token)
	path, err := lookup(spec, env, m)
	if err != nil {
		return nil, driver.Final(err)
	}

	if err := folder.Make(dir); err != nil {
		return nil, err
	}
	// Before the child exists, so that a gateway killed right after finds it.
	if err := rec.write(dir); err != nil {
		return nil, err
	}
	stderr, err := lines.OpenLog(dir, d.opts.LogLimit)
	if err != nil {
		return nil, err
	}
	child, conn, err := d.launch(dir, launchSpec{path: path, args: spec.Args, env: env, cwd: spec.Cwd, stderr: stderr.File(), mount: m}, &rec)
	if err != nil {
		stderr.Close()
		return nil, startError(spec, path, err)
	}
	h := driver.Handle{Driver: "process", Server: spec.Server, Session: spec.Session, Dir: dir, Data: rec.data()}
	return d.newInstance(h, rec, child, conn, false, stderr, spec.Log), nil
}

// launchSpec is a program that was found, with all it is given.
type launchSpec struct {
	path   string
	args   []string
	env    *family.Environment
	cwd    string
	stderr *os.File
	mount  *mount // of the workspace; nil where it is seen where it lies
}

// newInstance takes over a running child. From here on Stop ends it.
func (d *Driver) newInstance(h driver.Handle, rec record, c *child, p lines.Pipe, torn bool, stderr *lines.Log, log *slog.Logger) *instance {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	i := &instance{
		Life: life.New(h.Server), d: d, h: h, rec: rec, grace: rec.grace(), log: log, child: c, stderr: stderr, watched: make(chan struct{}),
	}
	i.conn = lines.NewConn(p, lines.Options{Server: h.Server, Limit: d.opts.MaxFrame, Buffers: d.buffers, Log: log, Torn: torn, Mark: filepath.Join(h.Dir, lines.MarkName)})
	go i.watch()
	return i
}
