// Package api holds the wire types of Tine's control API and its errors. It
// imports the standard library only, so that any program may use it.
package api

import (
	"encoding/json"
	"time"
)

// Version is the prefix of every control API path.
const Version = "/v1"

// Kind says whose failure an error is.
type Kind string

// The kinds of failure. A tool's own isError result is never one of these.
const (
	KindTool           Kind = "tool"           // the server's tool or protocol answer was an error
	KindInfrastructure Kind = "infrastructure" // the server could not be started, reached or understood
	KindTimeout        Kind = "timeout"        // it took longer than allowed
	KindRefused        Kind = "refused"        // refused by a policy, auth or a limit
	KindInvalid        Kind = "invalid"        // the request was wrong
	KindLost           Kind = "lost"           // its server died during the call, which may have taken effect; or its session has ended by itself
)

// Error is the body of every failed control API answer, and stands in
// _meta["tine/error"] of failed MCP calls.
type Error struct {
	Kind      Kind   `json:"kind"`
	Message   string `json:"message"`
	Server    string `json:"server,omitempty"`
	Retryable bool   `json:"retryable"`
	// RetryAfter is how many seconds to wait before another try can help; zero
	// when that is not known.
	RetryAfter int `json:"retry_after,omitempty"`
	// Status is the HTTP status that came with it. It is not part of the body:
	// clients fill it in, so that callers can tell 401 from 404.
	Status int `json:"-"`
	// Words is what the server wrote to its standard error before it failed. Not
	// every caller may read it, so it is not part of the body: the gateway adds it
	// to the message for callers who may. Own says that the instance belongs to one
	// session alone.
	Words string `json:"-"`
	Own   bool   `json:"-"`
	// Final says that another attempt fails until a person changes something.
	Final bool `json:"-"`
	// Causes are the errors of several servers, where each failed by itself.
	Causes []*Error `json:"causes,omitempty"`
	// Code is one of the codes below, where a program must tell a mistake from others.
	Code string `json:"error,omitempty"`
	// ValidationErrors are what is wrong with parameters, each with its place.
	ValidationErrors []ValidationError `json:"validation_errors,omitempty"`
}

// Codes of errors of new runs.
const (
	CodeParameters = "parameter_validation_failed"
	CodeNoResume   = "procedural_agent_no_resume"
	CodeServerRef  = "mcp_ref_resolution_failed"
	CodeServerKeys = "missing_required_mcp_config"
)

// ValidationError is one thing that does not fit a JSON Schema. The paths are JSON
// Pointers.
type ValidationError struct {
	Path       string `json:"path"`
	Message    string `json:"message"`
	SchemaPath string `json:"schema_path"`
}

func (e *Error) Error() string { return e.Message }

// States of a server.
const (
	StateIdle     = "idle"     // not started yet; starts at first use
	StateFetching = "fetching" // its packages are being fetched; starts then
	StateStarting = "starting" // being started or connected
	StateReady    = "ready"    // answering
	StateFailed   = "failed"   // the last start or connection failed; tried again with backoff
	StateDisabled = "disabled" // switched off
)

// Server is one configured server as the gateway sees it.
type Server struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Driver string `json:"driver"`
	Scope  string `json:"scope"`
	// Transport is how its instances speak, stdio or http; empty where they are
	// inside of the gateway.
	Transport string `json:"transport,omitempty"`
	Enabled   bool   `json:"enabled"`
	// Overridden is true when something was changed at run time and differs from
	// the config; Overrides names what, such as enabled or policy.retry.attempts.
	Overridden bool      `json:"overridden"`
	Overrides  []string  `json:"overrides,omitempty"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"` // why it is failed or disabled
	Words      string    `json:"words,omitempty"`  // what it wrote to its standard error before it failed, for operators
	Since      time.Time `json:"since"`            // when it entered the state
	Fetch      *Fetch    `json:"fetch,omitempty"`  // of its packages, where they are being fetched
	Protocol   string    `json:"protocol,omitempty"`
	ServerName string    `json:"server_name,omitempty"`
	ServerVer  string    `json:"server_version,omitempty"`
	Instances  int       `json:"instances"`
	Restarts   int       `json:"restarts"`
	Target     string    `json:"target"` // command or URL, without secrets

	Breaker   string      `json:"breaker,omitempty"` // closed, open or half-open; empty without one
	InFlight  int         `json:"in_flight"`
	Queue     int         `json:"queue"` // calls that wait for a limit
	Calls     int64       `json:"calls"` // since the gateway started
	Failures  int64       `json:"failures"`
	Latency   *Latency    `json:"latency,omitempty"` // of the last calls; nil before the first
	LastError *LastError  `json:"last_error,omitempty"`
	Policy    *Policy     `json:"policy,omitempty"` // only where one server is asked for
	Login     *LoginState `json:"login,omitempty"`  // of servers that want a person
}

// Breaker states.
const (
	BreakerClosed   = "closed"
	BreakerOpen     = "open"
	BreakerHalfOpen = "half-open"
)

// Latency is how long a server's last calls took, in milliseconds.
type Latency struct {
	Count int     `json:"count"` // number of calls
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
}

// LastError is the last failure of a server or of the connection to it. A tool's own
// error, a caller's mistake and a refusal of the caller do not count; that the server or
// its authorization server refuses the gateway does. Nothing secret is in it.
type LastError struct {
	At      time.Time `json:"at"`
	Kind    Kind      `json:"kind"`
	Message string    `json:"message"`
}

// Policy is the current policy for a server's calls. Durations are written like
// 30s; empty or zero where there is none.
type Policy struct {
	Timeout        string   `json:"timeout"`
	ConnectTimeout string   `json:"connect_timeout"`
	MaxTimeout     string   `json:"max_timeout"`
	Retry          int      `json:"retry_attempts"`
	Breaker        int      `json:"breaker_failures"`
	BreakerOpen    string   `json:"breaker_open,omitempty"`
	Rate           float64  `json:"rate,omitempty"` // calls a second
	Burst          int      `json:"burst,omitempty"`
	Concurrency    int      `json:"concurrency,omitempty"`
	Queue          int      `json:"queue,omitempty"`
	QueueWait      string   `json:"queue_wait,omitempty"`
	CacheLists     string   `json:"cache_lists,omitempty"`
	CacheResults   string   `json:"cache_results,omitempty"`
	CacheTools     []string `json:"cache_tools,omitempty"`
	Journal        string   `json:"journal"`
}

// LoginState says whether there is a login at a server that needs one, for the
// caller.
type LoginState struct {
	Credential string    `json:"credential"` // shared or per-principal
	LoggedIn   bool      `json:"logged_in"`
	Expires    time.Time `json:"expires,omitzero"` // of the access token; it is renewed before
	Reason     string    `json:"reason,omitempty"` // why an earlier login no longer works
}

// ServerList answers GET /v1/servers.
type ServerList struct {
	Servers []Server `json:"servers"`
}

// ServerPatch is the body of PATCH /v1/servers/{id}. Nil fields stay.
type ServerPatch struct {
	Enabled *bool `json:"enabled,omitempty"`
	// Set holds keys as they stand below servers.ID in tine.yaml, such as
	// {"timeout":"10s","policy":{"retry":{"attempts":5}}} or
	// {"headers":{"Authorization":"Bearer ..."}}. They are merged over the config
	// and over earlier settings. Only keys that do not change what is run may be
	// set: timeout, connect_timeout, policy, journal, headers, auth, tools.
	Set json.RawMessage `json:"set,omitempty"`
	// Unset names keys that go back to the config, such as policy.retry.
	Unset []string `json:"unset,omitempty"`
	// Reset drops all changes made at run time.
	Reset bool `json:"reset,omitempty"`
}

// Tool is one tool of the merged view.
type Tool struct {
	Name        string          `json:"name"`   // as in the merged view, or as POST /v1/call takes it
	Server      string          `json:"server"` // whose it is
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// ToolList answers GET /v1/tools[?server=ID&session=ID].
type ToolList struct {
	Tools []Tool `json:"tools"`
	// Missing names servers that are left out, with the reason.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is a server that is not in a list.
type Missing struct {
	Server string `json:"server"`
	Reason string `json:"reason"`
	// Kind is the kind of error that a call to the server would get. It is empty where
	// only one tool of the server is left out.
	Kind Kind `json:"kind,omitempty"`
}

// CallRequest is the body of POST /v1/call: one tool call.
type CallRequest struct {
	Tool      string          `json:"tool"` // as in the merged view, or with a member before it, as memory~1__read_graph
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Session is the session of the call: by default the caller's default session,
	// or the one whose token the caller shows.
	Session string `json:"session,omitempty"`
	// Meta is an object that is sent to the server as _meta, and kept in the trajectory.
	// What the gateway says itself, such as progressToken, must not be in it.
	Meta json.RawMessage `json:"meta,omitempty"`
	// Timeout is how long the call may take, such as 30s, where that is less than the
	// server's own timeout.
	Timeout string `json:"timeout,omitempty"`
}

// CallResponse answers POST /v1/call. Result is the tool's CallToolResult as
// the server sent it.
type CallResponse struct {
	Result json.RawMessage `json:"result"`
	Call   string          `json:"call,omitempty"` // the id of the call; empty where the journal has none
}

// CallEvent is one line of the answer to POST /v1/call if the caller accepts
// application/x-ndjson and the server reports progress: the progress of the call,
// and in the last line its result or its error.
type CallEvent struct {
	Progress *CallProgress   `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Call     string          `json:"call,omitempty"` // as in CallResponse
	Error    *Error          `json:"error,omitempty"`
	Status   int             `json:"status,omitempty"` // the HTTP status that the error has elsewhere
}

// CallProgress is the progress that a server reports for a running call.
type CallProgress struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"` // zero where the server does not say
	Message  string  `json:"message,omitempty"`
}

// LogEntry is the answer of GET /v1/servers/{id}/logs: one instance's standard
// error, newest last.
type LogEntry struct {
	Instance string    `json:"instance"`
	Session  string    `json:"session,omitempty"`
	Ended    time.Time `json:"ended,omitzero" jsonschema:"when it failed; missing for one that runs"`
	Text     string    `json:"text"`
}

// LogList answers GET /v1/servers/{id}/logs?bytes=N.
type LogList struct {
	Instances []LogEntry `json:"instances"`
}

// Status answers GET /v1/status.
type Status struct {
	Version   string    `json:"version"`
	Gateway   string    `json:"gateway"` // id of the state folder's owner
	Listen    string    `json:"listen"`
	URL       string    `json:"url"`
	Config    string    `json:"config,omitempty"`
	State     string    `json:"state"` // the state folder
	Started   time.Time `json:"started"`
	Sessions  int       `json:"sessions"`
	InFlight  int       `json:"in_flight"`
	Draining  bool      `json:"draining"`
	PID       int       `json:"pid"`
	Protocols []string  `json:"protocols"`
	// NotReloaded is there while the config file has changed and the config of before
	// stays, for viewers.
	NotReloaded *NotReloaded `json:"not_reloaded,omitempty"`
}

// NotReloaded is why a changed config is not used. Nothing secret is in it.
type NotReloaded struct {
	At     time.Time `json:"at"` // when it was last tried
	Reason string    `json:"reason"`
}

// Health answers /healthz and /readyz.
type Health struct {
	Status string `json:"status"` // ok, or starting, or draining
}
