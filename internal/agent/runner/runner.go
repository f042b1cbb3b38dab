// Package runner does runs on this machine: it claims them, opens their worlds, starts
// their executors, follows and stops them, and adopts them after a restart.
//
// It knows the coordinator as a Queue and the sessions as Worlds, which are filled by
// the gateway that it is part of, or by a client of one that runs elsewhere.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// A Claim is a run that a runner has claimed. What its blueprint says may have
// placeholders of the runner (${runner.*}) left, and no others: Blueprint.Fill gives the
// Agent, Config and Env of the Job, and the Servers and Inline of the World, which are
// empty until then.
type Claim struct {
	Run       string
	Number    int64     // goes with every report
	Until     time.Time // unless it is renewed
	Blueprint blueprint.Resolved
	Job       executor.Job
	World     World
	// Adopted says that this runner had claimed it before: its executor may still run. If
	// it has been reported to run, Running is set.
	Adopted bool
	Running bool
	// Time is how long it may take; zero for as long as it wants. Began is when its executor
	// began to run; zero if it has not.
	Time  time.Duration
	Began time.Time
	// Events is how many events of it are recorded.
	Events int
	// Trace is what the program goes on with; empty for none.
	Trace telemetry.Parent
}

// A World is the session of an agent as its runner opens it.
type World struct {
	Session string
	Owner   string
	Pinned  json.RawMessage // see identity.Pin
	Labels  map[string]string
	// From is the snapshot that it begins with; empty for none.
	From string
	// Servers are references to servers of the config, and Inline servers of the
	// blueprint, as entries of a config by their names.
	Servers []string
	Inline  map[string]json.RawMessage
	// Made says who defined the inline servers: file for files of the operator, operator
	// for a principal with that role; empty for anybody else, who may not define what runs
	// on the gateway's machine.
	Made   string
	Parent string
}

// Worlds are the sessions of agents. Every method may be repeated with the same input
// and then changes nothing.
type Worlds interface {
	// Open opens the session of a world, or brings the servers of one that is open to
	// those of the world: new ones join, removed ones vanish, kept ones stay pinned.
	Open(ctx context.Context, w World) error
	// Mint makes a token for a run, which reaches the world's session, and in it only
	// these servers. With a ttl of zero it lasts as long as the session. Each call makes
	// another token.
	Mint(ctx context.Context, session, run string, servers []string, ttl time.Duration) (token string, err error)
	// Revoke ends the tokens of a run.
	Revoke(ctx context.Context, session, run string) error
	// URL is where an executor reaches a server of the session.
	URL(session, server string) string
}

// A Report is what a runner tells of a run.
type Report struct {
	// Running says that the executor has been started.
	Running bool
	Events  []executor.Event // the next ones
	// Ended says that it is over, with a result or an error. With an error of kind lost the
	// runner did not see it to its end, and the blueprint says whether it is done again.
	Ended  bool
	Result *api.RunResult
	Error  *api.Error
}

// An Answer to a renewal or a report says what the coordinator wants of the run.
type Answer struct {
	Until time.Time
	Stop  bool
}

// ErrStale is the error for a claim that is not the last one of its run: another runner
// has the run, or it has ended.
var ErrStale = errors.New("the run is not this runner's any more")

// Queue is the coordinator as a runner sees it. Renew and Report fail with ErrStale for
// a claim that is not the run's last one, and for a run that has ended. A failed Report
// has changed nothing.
type Queue interface {
	// Claimed are the runs that a runner has claimed, at this start or an earlier one, and
	// that have not ended.
	Claimed(ctx context.Context, runner string) ([]string, error)
	// Claim waits for a run that fits the runner. After a start it returns those first
	// that this runner has claimed before.
	Claim(ctx context.Context, me Description) (Claim, error)
	Renew(ctx context.Context, run string, number int64) (Answer, error)
	Report(ctx context.Context, run string, number int64, r Report) (Answer, error)
	// Stopping waits until the run is to be stopped, or fails with ErrStale.
	Stopping(ctx context.Context, run string, number int64) error
}

// A Description is what a runner says of itself; demands are matched with it.
type Description struct {
	ID string
	// Instance is made anew at each start of the runner. One with another instance has
	// started again: it adopts the runs of the one before, whose claims become stale.
	Instance  string
	Hostname  string
	Tags      []string
	Executors []string
	// Places is how many runs it works at, at once; zero for any number, and less for none
	// but those that it had. A run that waits for another one takes no place.
	Places int
	// ProjectDirs are folders that it works in; empty for any.
	ProjectDirs []string
}
