package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// Options say what an Upstream runs and how.
type Options struct {
	Spec driver.Spec
	// Member is what the session calls it; the server's id where it is empty.
	Member string
	Driver driver.Driver
	// Front stands before the instances; nil for servers that are programs alone.
	Front driver.Fronter
	// Startup is asked of every new instance; nil for the handshake alone.
	Startup *Startup
	// OnFork is how an instance learns that it is a copy of another; nil for not at
	// all.
	OnFork *config.OnFork
	Conn   ConnOptions

	ConnectTimeout time.Duration
	CallTimeout    time.Duration // of one call, from its last progress; zero for none
	MaxTimeout     time.Duration // of one call, in spite of progress
	Eager          bool
	// FetchTime is how long the fetch of its packages may take; nil for as long as
	// the driver lets it.
	FetchTime func() time.Duration

	// Wrap puts the policies of the server around its calls; nil for none.
	Wrap func(Caller) Caller
	// Closed is called when the Upstream has released everything; may be nil.
	Closed func()
	// Heard is called when the server announced a changed list, or when all of them
	// may have changed; nil if no lists are kept.
	Heard func(method string)

	// Ready is called when an instance runs and can be called; may be nil. It must
	// not take long.
	Ready func()

	// Unanswered is why an instance that serves no session in particular did not give a
	// list, or with no method any, in time; nil if it did. It counts until this Upstream
	// is asked itself. It may be nil.
	Unanswered func(method string) *api.Error

	// Prepare completes the spec before an instance is started or adopted, such as
	// with the state it works on; nil where nothing is missing.
	Prepare func(ctx context.Context, spec *driver.Spec) error

	// Room is asked for before an instance is started or adopted, and may wait. The
	// function that it returns is called once the instance has ended. nil if there
	// is always room.
	Room func(ctx context.Context) (giveBack func(), err error)

	// Memory says what is lost when an instance ends.
	Memory Memory

	// Health is that of the server, shared by all its Upstreams; nil if this is the
	// only one.
	Health *Health

	// Keep records an instance's handle and what its server said, before it is
	// used; Drop forgets them. Both may be nil.
	Keep func(h driver.Handle, hello json.RawMessage) error
	Drop func()
	// Unended is called with an instance that could not be stopped when the
	// Upstream was closed, and a function that tries again and drops its handle. It
	// may be nil.
	Unended func(stop func(context.Context) error)

	// Adopt is the handle of an instance that an earlier gateway left, with
	// what its server said. It is tried before a new instance is started.
	Adopt *Adoption

	Log *slog.Logger
}

// Adoption is what an earlier gateway knew of an instance.
type Adoption struct {
	Handle driver.Handle
	Hello  json.RawMessage
}

// Status is how an Upstream is doing.
type Status struct {
	State    string // of the api package
	Reason   string
	Words    string     // what the server wrote to its standard error before it failed
	Own      bool       // one session alone has the instance
	Fetch    *api.Fetch // of its packages; nil where none is running
	Since    time.Time
	Hello    Hello
	Restarts int
	Instance bool         // one is running
	Process  *api.Process // which it is, where the driver knows
	Unlisted bool         // it failed because a list did not come, and can be called
}
