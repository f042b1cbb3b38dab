// Package driver is the contract between Tine and whatever makes running MCP
// servers: a Driver starts instances, an Instance is one running server, and a
// Link is how bytes reach it. One folder below this one is one driver.
//
// # Lifecycle
//
//	inst, err := d.Start(ctx, spec)   // running; its handle is worth keeping
//	store.Put(inst.Handle())          // durable before it is used
//	link, err := inst.Dial(ctx)       // bytes flow
//	...                               // the gateway may die here
//	inst, err = d.Adopt(ctx, handle)  // the next gateway goes on with it
//	inst.Stop(ctx)                    // asked, insisted, killed; twice is fine
//
// The caller of Start or Adopt owns the Instance and must Stop it or Leave it.
//
// # State
//
// What a server remembers outlives its instances: it lies in the folder
// Spec.State, which a Keeper seeds before the first start and which a crash, a
// restart and the next gateway find again. A fork freezes it and seeds others:
//
//	k.Seed(ctx, spec, Source{})              // empty, or from its template
//	inst, err := d.Start(ctx, spec)          // works on spec.State
//	release, err := inst.Hold(ctx)           // quiet
//	snap, err := k.Freeze(ctx, spec, inst, dir)
//	release()                                // goes on
//	k.Seed(ctx, child, Source{From: &snap})  // each child has its own
//	k.Discard(ctx, snap)                     // children don't need it any more
//	inst.Stop(ctx); k.Erase(ctx, spec)       // nothing is left
//
// # What a driver may do besides
//
// A caller that needs one of these asks for it with a type assertion, of a driver:
//
//	Keeper      all but url                       session, for states, forks and snapshots
//	Rememberer  builtin                           session, for what a server has of its own
//	Preparer    sandbox                           session, for warm servers and forks
//	Placer      process                           session, for the path of a workspace
//	Sweeper     process, sandbox, docker, remote  session, when it starts; tine state
//	Fetcher     process, sandbox                  upstream, before a start
//	Fronter     builtin                           upstream, where a server has a front and a body
//
// and of an instance:
//
//	Suspender   sandbox                           upstream and session, where one ends and goes on
//	Parker      sandbox                           upstream, around calls
//	Porter      process, sandbox, docker          a front, to give its body a file
//	Identified  process, sandbox, docker          upstream, to show which process it is
//	Execer      process, sandbox, docker          session, to run a command beside the server
//
// All but Keeper are in optional.go. What a driver is, and not does, is in its Info.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/internal/workspace"
)

// ErrGone reports that the instance a handle names no longer runs, or that
// something else has its name now. Adopt returns it wrapped; the caller drops
// the handle.
var ErrGone = errors.New("instance is gone")

// ErrLost reports that an instance ended together with what it remembered, through a
// fault of the machine or the network: an engine that was restarted, an orchestrator
// that forgot. Err, Adopt and Freeze return it wrapped. The next instance begins anew,
// from the state that there is.
var ErrLost = errors.New("instance is lost")

// ErrKept reports, beside ErrGone, that what the instance remembered is in its state: it
// was suspended, or it was not used since it was resumed. The next instance goes on from
// there.
var ErrKept = errors.New("its memory is kept")

// ErrUnfit reports that a snapshot can't be used here, and that another attempt
// can't change it: it is of another machine, another program, another driver, or it is
// damaged. Seed and Import return it wrapped. So does a Start for the memory in the
// state that it works on, which stays there: it may fit again, and Spec.Anew goes on
// without it.
var ErrUnfit = errors.New("the snapshot does not fit")

// ErrFinal reports that another attempt fails in the same way until a person changes
// something.
var ErrFinal = errors.New("another attempt fails in the same way")

// Final is an error that is ErrFinal too, in its own words.
func Final(err error) error { return finalError{err} }

type finalError struct{ error }

func (e finalError) Unwrap() []error { return []error{e.error, ErrFinal} }

// Info says what a driver can do, as data, so that a config that asks for more
// fails at load and not at the first call.
type Info struct {
	Name string
	// Adopts is whether instances outlive the gateway and Adopt finds them.
	Adopts bool
	// Scopes lists the scopes that make sense with this driver.
	Scopes []string
	// Light is whether starting an instance costs next to nothing and can't fail
	// for reasons outside of Tine, so that the members of a fork start when they
	// are first used.
	Light bool
	// Memory is whether what an instance has in memory is what its server remembers,
	// so that an unexpected end of it is a loss.
	Memory bool
	// Details is whether a template may be anything that the other side knows, and
	// not only a path.
	Details bool
	// Commands is whether its instances are Execers, and Walls whether what runs there is
	// kept from the files and processes of the host.
	Commands bool
	Walls    bool
	// Transport is how the instances of a spec speak: stdio or http; nil where they are
	// inside of this process.
	Transport func(Spec) string
	// Address is the URL at which a server, or the orchestrator of it, is reached, and
	// which its credentials are for; nil where servers run here.
	Address func(Spec) string
	// Mends are for servers that are reached over HTTP, and Hints for what programs
	// say in their logs and only this driver can explain.
	Mends Mends
	Hints Hints
}

// What a fork carries of a server.
const (
	CarryMemory = "memory" // all of it, as it is at that moment
	CarryFiles  = "files"  // its declared state; the server starts anew on it
	CarryNone   = ""       // nothing
)

// Spec is everything needed to start one instance. It is resolved: no
// placeholder is left in it. Drivers ignore what is not theirs.
type Spec struct {
	Server  string // the server's id
	Session string // the session that owns the instance; empty when shared
	Dir     string // a private folder (0700) for this instance; the driver may fill it and removes it on Stop

	// State is the folder (0700) of what the server remembers; empty when it
	// remembers nothing. A Keeper seeds it; instances come and go on it.
	State string
	// Dirs are the declared directories of a program's state. In Args, Env and
	// Cwd ${state.NAME} stands for the path of one, and ${workspace} for the
	// workspace's.
	Dirs []StateDir
	// Template is what a state without a snapshot is seeded from: a file or a
	// directory. Empty for nothing.
	Template string
	// Details are a template in the orchestrator's terms, as JSON; for drivers with
	// Info.Details.
	Details json.RawMessage
	// Ordinal tells several instances of one server in a session apart. Server is
	// the same for all of them.
	Ordinal int
	// Workspace is the session's directory; nil where the server does not see it.
	Workspace *workspace.Workspace `json:"-"`
	// WorkspacePath is where the server is to see it. It is known before the
	// session's directory is; empty means config.DefaultWorkspace.
	WorkspacePath string

	// A program that speaks stdio.
	Command string
	Args    []string
	Env     map[string]string // what the config gives, on top of the driver's base environment
	Cwd     string

	// A server that is reached and not run.
	URL       string
	Header    http.Header
	Transport string // auto, streamable or sse
	CAFile    string
	// Public has it reach public addresses only: who defined it may not use the others
	// that this machine reaches.
	Public bool
	// Authorize puts the server's credentials on requests that its headers alone
	// don't let in; nil where they do.
	Authorize func(http.RoundTripper) http.RoundTripper `json:"-"`

	// Options are what the config says below the key that is named as the driver, of
	// the type that the driver's kind has for it; nil for a driver without such a key.
	// An orchestrator is asked with Header and Authorize.
	Options any
	// Anew lets a Start begin anew where the memory in its state does not fit, which
	// is removed when the instance is used.
	Anew bool
	// Carry is what a Freeze is to carry: CarryMemory or CarryFiles; empty for the
	// most that the driver can.
	Carry string

	// A server inside the binary, by name, with its settings. With Front the same
	// stands in front of the program, and the gateway speaks with it alone.
	Builtin  string
	Front    string
	Settings map[string]any

	StopGrace time.Duration // how long to ask before killing; zero means the driver's default
	Log       *slog.Logger

	// Shared says that several sessions use the instance and its state.
	Shared bool `json:"-"`

	// OnDamage hears that what is stored of the server, or of the workspace as it
	// uses it, is damaged. It returns when that is written down. It may be nil.
	OnDamage func(error) `json:"-"`
}

// Options are those of a spec; nil where they are another driver's.
func Options[T any](spec Spec) *T {
	t, _ := spec.Options.(*T)
	return t
}

// StateDir is one directory of a program's state.
type StateDir struct {
	Name     string
	Template string // a directory it is seeded from; empty for none
}

// Handle is what is needed to find an instance again after a restart. It is
// written to the store before the instance is used.
type Handle struct {
	Driver  string          `json:"driver"`
	Server  string          `json:"server"`
	Session string          `json:"session,omitempty"`
	Dir     string          `json:"dir,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"` // the driver's own
}

// A Driver makes instances. Its methods may run at once.
type Driver interface {
	Info() Info
	// Start runs a new instance and returns when it exists, not when it
	// answers. Errors name the thing and the mend. Nothing is left behind by a
	// Start that failed. The ctx bounds the start, not the life.
	Start(ctx context.Context, spec Spec) (Instance, error)
	// Adopt finds the instance of an earlier gateway. Errors wrapping ErrGone
	// mean there is nothing to adopt and nothing left over.
	Adopt(ctx context.Context, h Handle, log *slog.Logger) (Instance, error)
}

// Snapshot is the frozen state of one member. It is durable: it is kept in the
// store and outlives the gateway.
type Snapshot struct {
	Driver  string          `json:"driver"`
	Server  string          `json:"server"`
	Carries string          `json:"carries"`        // CarryMemory or CarryFiles
	Dir     string          `json:"dir,omitempty"`  // a folder that is the snapshot's own
	Data    json.RawMessage `json:"data,omitempty"` // the driver's own
	Size    int64           `json:"size"`           // bytes that are there because of it, about
	// Hello is what the server said in its handshake, where its memory is carried:
	// a restored server is already initialized.
	Hello json.RawMessage `json:"hello,omitempty"`
	// Runs is whether what was imported holds the program itself, as a memory or
	// the root of a container does: its author decides what is run.
	Runs bool `json:"runs,omitempty"`
}

// A Source is what a state is seeded from.
type Source struct {
	// From is a snapshot; nil for the spec's template, or nothing.
	From *Snapshot
	// Take lets Seed use the snapshot up: it is the last one to be seeded from it,
	// and it is discarded afterwards.
	Take bool
	// Progress gets how many bytes are copied of how many; may be nil.
	Progress func(done, total int64)
}

// A Keeper looks after state that outlives instances: a driver whose servers
// remember something, and the workspace. Its methods may run at once for
// different states. What fails leaves nothing behind.
type Keeper interface {
	// Carries says what a fork of a server with this spec carries. Where it is
	// nothing, why says the reason and, after a semicolon, what would mend it: the
	// caller goes on with ", or" and what can be done besides. Where it is files, why
	// says the same of the memory; empty where no server of this driver has it carried.
	Carries(spec Spec) (carries, why string)
	// Seed makes the state at spec.State, which does not exist or is empty. It is
	// whole when Seed returns. A file of the folder whose name begins with a dot stays
	// as long as the state does: one that is missing is damage.
	Seed(ctx context.Context, spec Spec, src Source) error
	// Freeze makes a snapshot of the state at spec.State. inst is the running
	// instance, which the caller holds, or nil when none runs. dir is a folder
	// that does not exist, for the snapshot's own use.
	Freeze(ctx context.Context, spec Spec, inst Instance, dir string) (Snapshot, error)
	// Discard removes a snapshot. Discarding twice, or one that does not exist, is fine.
	Discard(ctx context.Context, s Snapshot) error
	// Erase removes the state at spec.State, with no instance on it. Twice is fine.
	Erase(ctx context.Context, spec Spec) error
	// CheckExport says, before anything is written, what can be known of why an Export
	// would fail or Import refuse what it writes.
	CheckExport(ctx context.Context, s Snapshot) error
	// Export writes a snapshot so that Import, of this or another gateway, can
	// make it again. Import's dir is as Freeze's. It trusts nothing that it reads.
	Export(ctx context.Context, s Snapshot, w io.Writer) error
	Import(ctx context.Context, server, dir string, r io.Reader) (Snapshot, error)
	// Recover is called once at start, before anything else, with every state
	// folder and every snapshot that stays. With sure these are all there are: what
	// the Keeper has besides has no owner and is removed. Without, there may be
	// others, and only what is marked as unfinished is removed.
	Recover(ctx context.Context, states []string, snapshots []Snapshot, sure bool) error
}

// An Instance is one running server. Its methods may run at once.
type Instance interface {
	Handle() Handle
	// Hold keeps the instance quiet until release is called: no byte enters, and
	// as far as the driver can make it so nothing it keeps changes. A second Hold
	// waits for the first. An instance may end while it is held. release may be
	// called twice. An error begins `server "ID" can't be held: `.
	Hold(ctx context.Context) (release func(), err error)
	// Dial opens the instance's link. Instances with a Stream have one link at a
	// time; a second Dial before the first is closed is an error.
	Dial(ctx context.Context) (Link, error)
	// Done is closed when the instance has ended, by itself or by Stop, and what
	// it had started is ended too; Err says why then, and is nil when it was
	// Stop. After Leave it stays open.
	Done() <-chan struct{}
	Err() error
	// Logs returns what the instance wrote to its standard error, newest last,
	// at most max bytes. Drivers without one return an empty reader.
	Logs(max int64) (io.ReadCloser, error)
	// Stop ends the instance and everything it started, and removes what it
	// owned. It returns when all is gone. The end of ctx cuts the asking short
	// and not the ending. Calling it twice is fine.
	Stop(ctx context.Context) error
	// Leave lets go of the instance without ending it: its link is closed and
	// it waits for the next gateway. Instances that can't be adopted are
	// stopped instead.
	Leave() error
}

// A Link is how to talk to an instance. Exactly one of Stream and HTTP is set.
type Link struct {
	Stream Stream
	HTTP   *Endpoint
	// Own says that the other side is part of Tine: a JSON-RPC error of it with our
	// code is an error of the API.
	Own bool
	// Save has a server write what it remembers into its state, which is frozen then
	// without its memory; nil where there is nothing to do.
	Save func(ctx context.Context) error
}

// A Stream carries JSON-RPC messages, one a frame, in both directions. A frame
// that was read has no newline in it and none at its end. One goroutine may read while many
// write.
type Stream interface {
	// ReadFrame returns the next message. The slice is the caller's. After an
	// error every further call fails: io.EOF when the instance has closed its
	// side, an error wrapping os.ErrClosed after Close. A frame over the limit
	// is reported as a *FrameTooLarge error as soon as it passes it, and skipped; a
	// line that is no message as a *StrayLine. Reading may go on after both.
	ReadFrame() ([]byte, error)
	// WriteFrame sends one message whole or fails. A peer that does not read
	// makes it fail when ctx ends; when part of a frame was written by then, the
	// next write ends the torn line first. Line breaks inside the frame, which
	// JSON allows between tokens, are sent as spaces.
	WriteFrame(ctx context.Context, frame []byte) error
	// Close ends running reads and writes and frees the instance for the next Dial.
	// It does not end the instance. Calling it twice is fine.
	Close() error
}

// StrayLine is the error of a line that is no message. Servers and their launchers
// print banners to standard output; a program that prints nothing else is no server.
type StrayLine struct{ Text []byte }

// MaxStray is how many bytes of it a StrayLine has.
const MaxStray = 1 << 10

func (e *StrayLine) Error() string { return "a line of its output is no message" }

// FrameTooLarge is the error of a frame that passed the stream's limit.
type FrameTooLarge struct{ Limit int }

func (e *FrameTooLarge) Error() string {
	return "message is larger than the limit of " + byteCount(e.Limit)
}

// Endpoint is a URL that speaks MCP over HTTP.
type Endpoint struct {
	URL       string
	Client    *http.Client
	Header    http.Header // sent with every request: credentials live here
	Transport string      // auto, streamable or sse
}
