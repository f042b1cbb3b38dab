package api

import (
	"encoding/json"
	"time"
)

// Kinds of sessions.
const (
	SessionOpened  = "opened"  // by API, CLI or tool, or by a fork
	SessionDefault = "default" // a principal's own, at /mcp
	SessionNamed   = "named"   // a principal's own, at /mcp?session=NAME
	SessionClient  = "client"  // of one client connection, and ends with it
)

// ClientAway is how long a client may have neither a request nor an open stream
// before it counts as gone: its programs end.
const ClientAway = 10 * time.Minute

// Session is one session: an isolated environment.
type Session struct {
	ID      string            `json:"id"`
	Kind    string            `json:"kind"`
	Name    string            `json:"name,omitempty"` // of a durable one, which can be used in place of the id
	Owner   string            `json:"owner,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Parent  string            `json:"parent,omitempty"`
	From    string            `json:"from,omitempty"` // the snapshot it was opened from
	Depth   int               `json:"depth"`          // how many forks away from the first
	Created time.Time         `json:"created"`
	Used    time.Time         `json:"used"`
	Expires time.Time         `json:"expires,omitzero"` // closed then in any case
	Idle    string            `json:"idle,omitempty"`   // closed when unused for that long
	Lease   string            `json:"lease,omitempty"`  // closed when it runs out
	Closed  time.Time         `json:"closed,omitzero"`
	Reason  string            `json:"reason,omitempty"` // why it was closed, or why an open one is not served
	Damaged []Damage          `json:"damaged,omitempty"`
	// URL is where its MCP endpoint is; /{server} behind it is one server's.
	URL       string     `json:"url,omitempty"`
	Members   []Member   `json:"members,omitempty"`   // only where one session is asked for
	Workspace *Workspace `json:"workspace,omitempty"` // likewise
	Calls     int64      `json:"calls"`               // since the gateway started
	InFlight  int        `json:"in_flight"`
}

// Member is a session's part of one server.
type Member struct {
	Server   string `json:"server"` // with ~1 and so on for the second and further instances
	Ordinal  int    `json:"ordinal,omitempty"`
	Driver   string `json:"driver"`
	Scope    string `json:"scope"`
	State    string `json:"state"` // as of a server
	Reason   string `json:"reason,omitempty"`
	Words    string `json:"words,omitempty"` // what it wrote to its standard error before it failed
	Own      bool   `json:"-"`               // the session has the instance for itself
	Instance bool   `json:"instance"`        // one is running
	// Process is what the instance is, where its driver knows; for shared ones to viewers.
	Process *Process `json:"process,omitempty"`
	Fork    string   `json:"fork"` // what a fork carries: memory, files, fresh, share or refuse
	Why     string   `json:"why,omitempty"`
}

// Process is the process or the container of an instance.
type Process struct {
	PID       int       `json:"pid,omitempty"` // on the gateway's machine
	Container string    `json:"container,omitempty"`
	Image     string    `json:"image,omitempty"` // of the container
	Started   time.Time `json:"started,omitzero"`
}

// Workspace is a session's directory.
type Workspace struct {
	Kind string `json:"kind"` // tree, or folder where a program sees it
	Path string `json:"path"`
}

// Autosnapshot keeps a ring of snapshots to rewind to.
type Autosnapshot struct {
	Every  int      `json:"every,omitempty"`  // calls; zero for never
	Before []string `json:"before,omitempty"` // tools as server__tool, globs
	Keep   int      `json:"keep,omitempty"`   // how many; default 8
}

// NewSession is the body of POST /v1/sessions. An Idempotency-Key header makes
// a repeated request give the same session.
type NewSession struct {
	From    string            `json:"from,omitempty"` // a snapshot, by name or id
	Labels  map[string]string `json:"labels,omitempty"`
	TTL     string            `json:"ttl,omitempty"`     // such as 2h; default the config's
	Idle    string            `json:"idle,omitempty"`    // likewise
	Servers []string          `json:"servers,omitempty"` // only these; default those that the snapshot was made with, or all
	Eager   bool              `json:"eager,omitempty"`   // start every member now
	// Members says more about some servers, by their ids.
	Members      map[string]NewMember `json:"members,omitempty"`
	Autosnapshot *Autosnapshot        `json:"autosnapshot,omitempty"`
	Wait         string               `json:"wait,omitempty"` // for room; default the config's
	// Lease is the id of a lease of the caller's: the session and its forks are closed when
	// it runs out.
	Lease string `json:"lease,omitempty"`
}

// NewMember is what a new session has of one server.
type NewMember struct {
	// Instances is how many it has, each with a state of its own; default 1. The
	// first is called like the server, the others server~1 and so on.
	Instances int `json:"instances,omitempty" min:"1"`
	// Template is what their state begins with: a string that names a snapshot, or
	// a path under template_roots; for a server that an orchestrator runs, any
	// template of that orchestrator.
	Template json.RawMessage `json:"template,omitempty"`
}

// OpenedSession answers it, and stands in Forks.
type OpenedSession struct {
	Session
	// Token is a bearer token for this session alone. It is shown once.
	Token string `json:"token"`
}

// SessionList answers GET /v1/sessions?owner=&parent=&label=k=v&closed=&limit=&
// after=: the newest first.
type SessionList struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next,omitempty"` // the after of the next page; empty on the last
}

// SessionPatch is the body of PATCH /v1/sessions/{id}. Nil fields stay.
type SessionPatch struct {
	Labels map[string]string `json:"labels,omitempty"` // replaces all
	TTL    *string           `json:"ttl,omitempty"`    // from now on; "0s" for no end
	Idle   *string           `json:"idle,omitempty"`
}

// ForkRequest is the body of POST /v1/sessions/{id}/forks. With the parent's own
// token the children last no longer than the parent.
type ForkRequest struct {
	Count  int               `json:"count,omitempty" min:"1"` // default 1
	Labels map[string]string `json:"labels,omitempty"`        // on top of the parent's
	TTL    string            `json:"ttl,omitempty"`
	Idle   string            `json:"idle,omitempty"`
	Wait   string            `json:"wait,omitempty"` // for running calls to end, and for room
}

// Forks answers it.
type Forks struct {
	Parent   string          `json:"parent"`
	Sessions []OpenedSession `json:"sessions"`
	Call     string          `json:"call,omitempty"` // the last call that the children remember
	Paused   float64         `json:"paused_ms"`      // how long the parent's calls had to wait
}

// SnapshotRequest is the body of POST /v1/sessions/{id}/snapshots.
type SnapshotRequest struct {
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Wait   string            `json:"wait,omitempty"`
}

// Snapshot is the frozen state of a session; with a name it is a template.
type Snapshot struct {
	ID      string            `json:"id"`
	Name    string            `json:"name,omitempty"`
	Owner   string            `json:"owner,omitempty"`
	Session string            `json:"session,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
	Auto    bool              `json:"auto,omitempty"`
	Size    int64             `json:"size"`
	Call    string            `json:"call,omitempty"` // the last call in it
	Servers []SnapshotMember  `json:"servers"`
	Damaged []Damage          `json:"damaged,omitempty"` // the session's damage when it was made
}

// SnapshotMember is what a snapshot has of one server.
type SnapshotMember struct {
	Server  string `json:"server"`
	Driver  string `json:"driver"`
	Carries string `json:"carries"` // memory, files or fresh
	Size    int64  `json:"size"`
}

// SnapshotList answers GET /v1/snapshots?owner=&label=k=v&auto=&limit=&after=,
// without those of rings unless auto says so, and GET /v1/sessions/{id}/snapshots
// ?limit=&after=: the newest first.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
	Next      string     `json:"next,omitempty"`
}

// RewindRequest is the body of POST /v1/sessions/{id}/rewind.
type RewindRequest struct {
	Snapshot string `json:"snapshot,omitempty"` // by name or id; default the newest of the session
	Wait     string `json:"wait,omitempty"`
}

// Step is one line of a trajectory, GET /v1/sessions/{id}/trajectory: newline-
// delimited, from the first session of the line to this one, nothing cut or
// masked.
type Step struct {
	Type    string    `json:"type"` // session, tools, call, network, annotation, fork, snapshot, rewind, damage or close
	Session string    `json:"session,omitempty"`
	At      time.Time `json:"at,omitzero"`
	// Step counts the calls of the line that reached a server from 1; of others, and of
	// calls that were refused, it is the one before.
	Step int64 `json:"step"`
	// Of is the session whose trajectory the line is of, in GET /v1/trajectories. The last
	// line there has the type end and Sessions, how many there are; without it the answer
	// broke off.
	Of       string `json:"of,omitempty"`
	Sessions *int   `json:"sessions,omitempty"`

	// Of calls, and of connections that servers made; of annotations the id.
	ID        string          `json:"id,omitempty"`
	Run       string          `json:"run,omitempty"` // of the token that a call was made with
	Server    string          `json:"server,omitempty"`
	Method    string          `json:"method,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Duration  float64         `json:"ms,omitempty"`
	Outcome   string          `json:"outcome,omitempty"`
	Error     string          `json:"error,omitempty"`
	Journal   string          `json:"journal,omitempty"` // full or meta
	Note      string          `json:"note,omitempty"`    // what is missing of it, and why
	// Meta is the _meta that the caller sent with a call, without the keys of the protocol
	// and of Tine.
	Meta json.RawMessage `json:"meta,omitempty"`
	// Undone is set on calls that a later rewind undid, and on annotations that were made
	// before that rewind or are of such a call.
	Undone bool `json:"undone,omitempty"`

	// Of tools: the list as MCP lists it that the session saw from then on, of Server or
	// of all.
	Tools json.RawMessage `json:"tools,omitempty"`

	// Of annotations.
	Call     string          `json:"call,omitempty"` // the call that it is of; empty for the session
	Reward   *float64        `json:"reward,omitempty"`
	Text     string          `json:"text,omitempty"`
	TokenIDs []int64         `json:"token_ids,omitempty"`
	Logprobs []Logprob       `json:"logprobs,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`

	// Of the others.
	Parent   string            `json:"parent,omitempty"`
	Children []string          `json:"children,omitempty"`
	Snapshot string            `json:"snapshot,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Kept     string            `json:"kept,omitempty"`  // of a damage: nothing, files or part
	Words    string            `json:"words,omitempty"` // of a damage: what the server wrote to its standard error before it
}

// Tree answers GET /v1/sessions/{id}/tree: the family of a session from its
// first ancestor on.
type Tree struct {
	Session  Session `json:"session"`
	Children []Tree  `json:"children,omitempty"`
	// More is how many sessions below this one are left out, since they are too
	// deep for JSON parsers; GET /v1/sessions/{id}/forks lists them.
	More int `json:"more,omitempty"`
}
