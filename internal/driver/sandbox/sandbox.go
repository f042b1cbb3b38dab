// Package sandbox is the driver that runs MCP servers behind walls: unmodified
// programs in gVisor, which is in tine-sandbox, without a daemon and without an
// image. A fork carries their memory.
//
// # How a sandbox outlives us
//
// An instance has a folder of its own (0700):
//
//	sandbox.json  which sandbox it is, and which binary made it
//	config.json   what it may see and do, as gVisor reads it
//	in, out       named FIFOs (0600), the program's standard input and output
//	stderr        what it wrote to its standard error, and stderr.old the part before
//
// A sandbox is two processes that need no parent. The helper, a process of
// tine-sandbox, makes, freezes and ends them, and may die with
// the gateway: the next one's helper finds them again. The binary is copied to the
// driver's folder as runsc-HASH and stays there for as long as a sandbox or a
// snapshot refers to it, so that one that was upgraded can still deal with the
// sandboxes and snapshots of the one before.
//
// # What a program sees
//
// A root that is put together by the kernel, not by gVisor, in the helper's mount
// namespace: by default the parts of the host's that programs need, read-only,
// with masks over what no program may see. What a program writes there is kept in
// memory, and frozen and forked with it. Directories of its state and the
// workspace are the host's, and cloned with a fork.
//
// # What a server remembers
//
// A folder of state or of a snapshot holds
//
//	state.json  what it is of
//	image/      the memory of a server that does not run yet: files of gVisor
//	dirs/NAME   the directories that its config declares
//
// Where there is an image, Start goes on from it. It is removed when the handle of
// the instance is safe. A server whose instance ends by itself loses its memory,
// and begins anew on the directories.
package sandbox

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

const driverName = "sandbox"

// Options of New.
type Options struct {
	Dir string // the driver's own folder, 0700; made when it is needed
	// Hide are paths that no sandbox may see, whatever its config says: the state
	// folder.
	Hide []string
	// Private are files of the gateway's config as it is now, which no sandbox may
	// see either; nil for none. Those that run already stay as they are.
	Private func() []string
	// Binary is tine-sandbox, which has gVisor in it; default the one beside the
	// program that runs, or on PATH.
	Binary string
	// Programs is the folder of copies of tine-sandbox, which serve sandboxes that exist
	// already. Several drivers may share it, and its owner removes what is old; default
	// Dir, where the driver does.
	Programs string
	// Start starts tine-sandbox; default as a child of this process.
	Start func(Command) (Running, error)
	// Blind reports whether this process can't look at the host any more, so that programs
	// see what was found before; nil for never. See Driver.Look.
	Blind func() bool
	// Memory is the bytes that a sandbox takes, of which the process and its gofer are
	// given; nil where this process can see it itself.
	Memory func(pid, gofer int) (int64, error)
	// MemoryFlag is how the memory of a sandbox is set, for messages; default the key of
	// the config.
	MemoryFlag string
	Environ    []string // of the gateway: where PATH and HOME are looked up; default os.Environ()

	MaxFrame  int           // bytes of one message from a server; default 64 MiB
	StopGrace time.Duration // how long to ask before killing, where the spec does not say; default 5s
	LogLimit  int64         // bytes of standard error kept of an instance, about; default 1 MiB
	ParkAfter time.Duration // how long an instance is unused before it is parked; default 5s, negative for never

	ListenWait  time.Duration // how long a server may take until it listens; default 60s
	ImportBytes int64         // of the files of a snapshot that is imported; default 64 GiB
	ImportFiles int           // how many, with directories and links; default a million

	// Network gets every connection that a sandbox made or was refused; may be nil.
	Network func(driver.Network)
	Log     *slog.Logger
}

// A Command is how tine-sandbox is started.
type Command struct {
	Path   string
	Arg    string
	Files  []*os.File // from descriptor 3 on
	Stderr io.Writer
	// Apart is whether it gets a mount namespace of its own, and of an ordinary user a
	// user namespace in which it is root.
	Apart bool
}

// Running is tine-sandbox as it runs.
type Running interface {
	Wait() error
	Kill()
}

func (o *Options) fill() {
	if o.Programs == "" {
		o.Programs = o.Dir
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = 64 << 20
	}
	if o.StopGrace <= 0 {
		o.StopGrace = 5 * time.Second
	}
	if o.LogLimit <= 0 {
		o.LogLimit = 1 << 20
	}
	if o.ParkAfter == 0 {
		o.ParkAfter = 5 * time.Second
	}
	if o.ListenWait <= 0 {
		o.ListenWait = time.Minute
	}
	if o.ImportBytes <= 0 {
		o.ImportBytes = 64 << 30
	}
	if o.ImportFiles <= 0 {
		o.ImportFiles = 1_000_000
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name: driverName, Adopts: true, Memory: true, Scopes: []string{config.ScopeSession, config.ScopeShared}, Commands: true, Walls: true,
		Transport: transport,
		Mends: driver.Mends{
			Gone:   "check that it listens at servers.ID.sandbox.port",
			Locked: "a server in a sandbox is shown no credentials; have it want none",
			Moved:  "set servers.ID.sandbox.path to that if it is right",
		},
		Hints: hints,
	}
}

// transport is how a server in a sandbox speaks.
func transport(spec driver.Spec) string {
	if box := options(spec); box != nil && box.Transport == config.ContainerHTTP {
		return config.ContainerHTTP
	}
	return config.ContainerStdio
}
