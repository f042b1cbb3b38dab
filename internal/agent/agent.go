// Package agent is the coordinator of agents: it keeps their sessions and runs, gives
// runs to runners, and tells agents how the agents that they have started ended.
//
// An agent session has the id of the session of the gateway that is its world. A run is
// one piece of work in it, and there is at most one at a time that has not ended. All
// that is accepted is in the store before it is answered, and memory only repeats what
// the store says: a coordinator that is killed at any moment goes on where it was.
//
// The life of a run:
//
//	Start, Resume ─ blueprint resolved, hooks, limits
//	     │  one transaction: agent session, run, its first event
//	     ▼
//	  pending ──── Stop ───────────────────────────────────────────▶ stopped
//	   │  ▲  └──── no runner that fits for Options.Match ──────────▶ failed
//	   │  └────────────────────────────┐
//	 Claim: number + 1, lease          │ lease over, and the blueprint retries
//	   ▼                               │
//	  claimed ── Report{Running} ──▶ running ── Report{Ended} ─────▶ completed | failed
//	   │  │                            │  └──── lease over ────────▶ failed (kind lost)
//	   │  └──────────── Stop ──────────┤
//	   │                               ▼
//	   │                            stopping ── Report{Ended}, or lease over ─▶ stopped
//	   └── Report{Ended}, or lease over ───────────────────────────▶ failed
//
// A runner that reports the error lost did not see the run to its end: that is as if the
// lease were over. Reports with the number of an earlier claim are refused
// (runner.ErrStale). After a
// start of the coordinator every lease begins anew, so that runners have time to come
// back; a runner that has started again claims the runs that it had, with a new number.
//
// The life of a callback, which is how a parent learns that a run in the mode
// async_callback has ended:
//
//	the child's run ends ─ in the same transaction ─▶ waiting
//	                                                    │ the parent is idle, and was not stopped
//	         ┌───────── the carrier failed ────────────▶│ since, by itself or with its tree
//	         │          before it ran                   │
//	         │                        a run that resumes the parent (the carrier), with
//	         │                        all that waits in one prompt: one transaction
//	         │                                          ▼
//	         └───────────────────────────────────── carried ── the carrier runs ──▶ forgotten
//
// While the parent is busy, or after a stop, callbacks wait; the end of the
// parent's next run has them delivered. The parent has one run at a time, so that one
// carrier is in flight. A parent that has ended is told nothing.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// Blueprints are the definitions of agents.
type Blueprints interface {
	// Resolve makes of a blueprint what a run needs. An error that a caller can mend is
	// an *api.Error.
	Resolve(ctx context.Context, name string, in Input) (Resolved, error)
	// Finished runs the hooks of the end of a run, and fails where it could not run them all.
	// It may be called once more for the same run then, and after a restart.
	Finished(ctx context.Context, hooks []blueprint.Command, run api.Run) error
	// List returns all, with what keeps a caller from starting them.
	List(ctx context.Context, who identity.Principal) ([]api.Agent, error)
}

// Input is what a blueprint is resolved with.
type Input struct {
	Run, Session string // their ids
	Resume       bool
	// Callback says that the parameters are those that the session was started with, and a
	// prompt of the coordinator's, which the blueprint's schema says nothing about.
	Callback    bool
	Parameters  map[string]any
	Scope       map[string]string
	ProjectDir  string
	Parent      string // the session of the agent that starts it; empty for none
	ParentAgent string // its name
	// Owner and Pinned are for whom the servers are used; see identity.Pin.
	Owner  string
	Pinned json.RawMessage
}

// Resolved is what a run needs of its blueprint.
type Resolved struct {
	blueprint.Resolved
	// Procedural says that a program does the work, which can't be resumed.
	Procedural bool
	// Made says who defined its servers; see runner.World.
	Made string
}

// Worlds are the sessions of agents, as far as the coordinator ends them.
type Worlds interface {
	// CloseWorld closes a session. One that is closed, or was never opened, is no error.
	CloseWorld(ctx context.Context, session string) error
}

// Bounds are what may be changed while the coordinator is open.
type Bounds struct {
	// Limits are for blueprints that set none, and the most that one may set; without any,
	// DefaultLimits.
	Limits blueprint.Limits
	Match  time.Duration // how long a run waits for a runner that fits; zero for 5 m
	Lease  time.Duration // zero for 30 s
	Idle   time.Duration // how long a session may be without a run until it is closed; zero for 7 d
	Keep   time.Duration // how long ended sessions are kept; zero for 7 d
}

// Options of Open.
type Options struct {
	Store      store.Agents
	Blueprints Blueprints
	Worlds     Worlds
	Bounds
	// Queue is how many runs that have not ended there may be; zero for 10000.
	Queue int
	// Told is called with events that are in the store, in their order, and must not
	// wait; nil for nothing.
	Told func([]store.Event)
	// Admits reports whether the owner of a session may come in now; see identity.Pin. Nil
	// is for everyone. It fails when ctx ends.
	Admits func(ctx context.Context, owner string, pinned json.RawMessage) (bool, error)
	// Secret is told the secrets of runs that are brought back; nil for nothing.
	Secret  func(values []string)
	Tracing *telemetry.Tracing // nil for none
	Log     *slog.Logger
}

// DefaultLimits are those of a blueprint and a config that say nothing.
var DefaultLimits = blueprint.Limits{Depth: 5, Children: 16, Runs: 1000}

func (b Bounds) filled() *Bounds {
	set := func(d *time.Duration, standard time.Duration) {
		if *d <= 0 {
			*d = standard
		}
	}
	set(&b.Match, 5*time.Minute)
	set(&b.Lease, 30*time.Second)
	set(&b.Idle, 7*24*time.Hour)
	set(&b.Keep, 7*24*time.Hour)
	if b.Limits == (blueprint.Limits{}) {
		b.Limits = DefaultLimits
	}
	return &b
}

func (o Options) filled() Options {
	if o.Queue <= 0 {
		o.Queue = 10000
	}
	if o.Told == nil {
		o.Told = func([]store.Event) {}
	}
	if o.Secret == nil {
		o.Secret = func([]string) {}
	}
	if o.Admits == nil {
		o.Admits = func(context.Context, string, json.RawMessage) (bool, error) { return true, nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Service is the coordinator. Its operations may run at once.
type Service struct {
	o      Options
	bounds atomic.Pointer[Bounds]

	turn   chan struct{} // has one place, for the change that is made
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // that a deadline has come nearer

	mu      sync.Mutex
	live    map[string]*live // the runs that have not ended
	going   sync.Map         // of these, by their sessions: a going
	waiting chan struct{}    // closed, and made anew, when there is something to claim
	runners map[string]*known
	served  map[string]int64 // owners, by when one of their runs was claimed last
	serving int64
	due     map[string]*task
	next    time.Time // when the deadlines are looked at; zero while they are
	last    time.Time // the newest time of a creation
	unsure  bool      // what the store has may differ from live
}

var _ runner.Queue = (*Service)(nil)

// ErrClosed is the error of what waits while the coordinator closes.
var ErrClosed = errors.New("the coordinator of agents is closing")

// Open brings back the coordinator of a store. The caller must Close it.
func Open(ctx context.Context, o Options) (*Service, error) {
	s := &Service{
		o: o.filled(), turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), waiting: make(chan struct{}),
		live: make(map[string]*live), runners: make(map[string]*known), served: make(map[string]int64), due: make(map[string]*task),
	}
	s.Change(o.Bounds)
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.recover(ctx); err != nil {
		s.cancel()
		return nil, err
	}
	s.work.Go(s.keepTime)
	return s, nil
}

// Change puts other bounds in force. Runs that wait keep the time that they have.
func (s *Service) Change(b Bounds) { s.bounds.Store(b.filled()) }

// Close ends what runs in the background. Runs stay as they are.
func (s *Service) Close() {
	s.cancel()
	s.work.Wait()
}
