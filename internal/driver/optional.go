package driver

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A Placer is a driver whose programs see files of the host, where a path may be
// taken. Programs of other drivers see the workspace at Spec.WorkspacePath.
type Placer interface {
	// Place is where its instances see the workspace that is wanted at a path: there,
	// at another path that is the same for all sessions, or, empty, where it lies.
	// Where it is not the path, why says so.
	Place(path string) (at, why string)
}

// An Identified is an instance that is a process or a container.
type Identified interface {
	// Process says which. It asks nothing of the other side.
	Process() api.Process
}

// A Sweeper is a driver whose instances can be left over: a gateway that was
// killed between starting one and writing its handle leaves a folder that no
// handle names, and perhaps a process.
type Sweeper interface {
	// Sweep ends and removes every instance of this driver whose folder lies in
	// root and is not in known, which holds the Dir of each handle that stays.
	// It returns the folders that it removed. What is in root and not of this
	// driver is left alone. No Start may run meanwhile, and the caller must own
	// the state folder.
	Sweep(ctx context.Context, root string, known map[string]bool) ([]string, error)
}

// A Rememberer is a Keeper of whose servers some remember nothing by themselves,
// though a fork carries all that they have.
type Rememberer interface {
	Remembers(spec Spec) bool
}

// A Preparer is a Keeper that can make instances of a snapshot ahead of time, so
// that a Start on a state which was seeded from it is a hand-over.
type Preparer interface {
	// Ready asks for count instances of the snapshot to be ready, made in the
	// background and parked until they are handed over; zero releases the ready ones,
	// and must be asked for before the snapshot is discarded. The spec is that of the
	// server, with neither session nor folders. Ready does not wait.
	Ready(spec Spec, from Snapshot, count int) error
	// Expect says that count instances are about to be started at once, from a
	// snapshot that is not known yet, so that what can be prepared for them is from
	// now on; over says that all of them were started, or that none is. The spec is as
	// Ready's, with the workspace of some session where the server sees one. Neither
	// waits.
	Expect(spec Spec, count int) (over func())
	// Pools says what there is of each server.
	Pools() []Pool
}

// A Pool is what a Preparer has of one server.
type Pool struct {
	Server string
	Slots  int // prepared, of no snapshot
	Ready  int // made of a snapshot, and not taken
	Live   int // instances that run, parked ones too
	Parked int // instances that rest and use no CPU
}

// A Fetcher is a driver that has the packages of some programs fetched before they
// start, which may take much longer than a start.
type Fetcher interface {
	// Fetch returns when the packages of a spec's program are on this machine, at once
	// where it needs none. Callers that want the same wait for one fetch. It goes on when
	// they leave, for as long as most, and ends with the driver.
	Fetch(ctx context.Context, spec Spec, most time.Duration) error
	// Fetching says how far the fetch for a spec is; nil where none is running.
	Fetching(spec Spec) *api.Fetch
	// Refetch has the packages of a spec looked for again by the next Fetch: a start
	// with them took too long, as one does that fetches by itself.
	Refetch(spec Spec)
}

// A Looker is a driver that looks at the host for every start, in a process that may lose
// the right to.
type Looker interface {
	// Look finds what another start of the server will need. It is called before a
	// front is put before an instance of it, which may confine the process. What can't
	// be found a start says.
	Look(ctx context.Context, spec Spec)
}

// A Suspender is an instance whose memory can outlive it.
type Suspender interface {
	// Suspend ends the instance as Stop does, with all that it has in memory kept in
	// its state: the next Start on it goes on from there. hello is as in Snapshot. An
	// instance that can't be suspended is an error, and runs on.
	Suspend(ctx context.Context, hello json.RawMessage) error
	// Greeted is about an instance that goes on where another was suspended or
	// frozen, whose server is initialized already: what the server said in its
	// handshake, as in Snapshot.Hello, and whether the instance is one of several
	// copies; nil where it was started anew.
	Greeted() (hello json.RawMessage, forked bool)
}

// A Parker is an instance that is parked, and costs next to nothing, while it is not
// used.
type Parker interface {
	// Acquire is called before a call, and Release after it. What is sent to the
	// instance wakes it in any case.
	Acquire()
	Release()
}
