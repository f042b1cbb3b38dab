package store

import (
	"context"
	"encoding/json"
	"time"
)

// AgentSession is the session of an agent. Its id is that of the session that is the
// agent's world, which is opened by the runner of its first run, and may be closed
// before or after.
type AgentSession struct {
	ID      string
	Agent   string
	Owner   string
	Parent  string // the session of the agent that started it; empty for none
	State   string // one of the package api
	Created time.Time
	Changed time.Time
	Data    json.RawMessage // the coordinator's; may hold secrets
}

// Run is one piece of work in an agent's session.
type Run struct {
	ID      string
	Session string
	Agent   string
	Owner   string
	Parent  string // as in AgentSession
	State   string // one of the package api
	// Claim is the number of the last claim, zero before the first. A report with another
	// one is refused.
	Claim  int64
	Runner string // that has claimed it last
	// Until is when the claim ends unless it is renewed, or, of a pending run, when it
	// fails unless a runner claims it.
	Until   time.Time
	Created time.Time
	Changed time.Time
	Data    json.RawMessage // the coordinator's; may hold secrets
}

// Callback is the end of a child's run that its parent has not been told yet. One without
// a parent is something else that the coordinator has to do after an end.
type Callback struct {
	N      int64 // grows with every callback
	Parent string
	Child  string
	Run    string // of the child
	// Carrier is the run of the parent that tells it; empty while it waits.
	Carrier string
	At      time.Time
	Data    json.RawMessage
}

// RunFilter chooses runs. Zero fields choose all.
type RunFilter struct {
	Owner   *string // nil for all
	Session string
	Parent  string
	Agent   string
	Runner  string
	States  []string // any of them
	Before  string   // an id: runs after it in the list; ErrUnknown if there is no such run
	Limit   int      // zero for 100
}

// AgentFilter chooses agent sessions. Zero fields choose all.
type AgentFilter struct {
	Owner  *string // nil for all
	Parent string
	Agent  string
	States []string
	// Unchanged chooses those that were changed last before a moment; zero for all.
	Unchanged time.Time
	Before    string // as in RunFilter
	Limit     int    // zero for 100
}

// AgentTx reads and writes what belongs together, in one transaction. It is for the
// function that it is given to and for no other goroutine.
type AgentTx interface {
	Run(id string) (r Run, ok bool, err error)
	AgentSession(id string) (s AgentSession, ok bool, err error)
	// Runs is as that of Agents, and has what the transaction has written.
	Runs(f RunFilter) ([]Run, error)
	// Callbacks returns those of a parent, the oldest first.
	Callbacks(parent string) ([]Callback, error)

	PutRun(r Run) error
	PutAgentSession(s AgentSession) error
	// PutCallback adds one whose N is zero, and changes one otherwise.
	PutCallback(c Callback) error
	DeleteCallback(n int64) error
	// PutEvents adds events and fills in N.
	PutEvents(e ...Event) error
}

// Agents keeps agent sessions, their runs, and callbacks.
type Agents interface {
	// ChangeAgents is one transaction. An error of change is returned as it is, and
	// nothing is written.
	ChangeAgents(ctx context.Context, change func(tx AgentTx) error) error
	Run(ctx context.Context, id string) (r Run, ok bool, err error)
	// Runs returns the newest first, and those of one moment by their ids.
	Runs(ctx context.Context, f RunFilter) ([]Run, error)
	AgentSession(ctx context.Context, id string) (s AgentSession, ok bool, err error)
	// AgentSessions returns the newest first, and those of one moment by their ids.
	AgentSessions(ctx context.Context, f AgentFilter) ([]AgentSession, error)
	// WaitingCallbacks returns all that no run carries, the oldest first.
	WaitingCallbacks(ctx context.Context) ([]Callback, error)
	// DropAgents forgets sessions that ended before a moment and have no descendant
	// that stays, with their runs, the events of those, and the callbacks to them. It
	// returns their ids, also of those it had forgotten before an error.
	DropAgents(ctx context.Context, before time.Time) ([]string, error)
}
