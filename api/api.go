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
	KindRefused        Kind = "refused"        // policy, auth or a limit said no
	KindInvalid        Kind = "invalid"        // the request was wrong
	KindLost           Kind = "lost"           // it was under way when something died; unknown whether it happened
)

// Error is the body of every failed control API answer, and stands in
// _meta["tine/error"] of failed MCP calls.
type Error struct {
	Kind      Kind   `json:"kind"`
	Message   string `json:"message"`
	Server    string `json:"server,omitempty"`
	Retryable bool   `json:"retryable"`
	// Status is the HTTP status that came with it. It is not part of the body:
	// clients fill it in, so that callers can tell 401 from 404.
	Status int `json:"-"`
}

func (e *Error) Error() string { return e.Message }

// States of a server.
const (
	StateIdle     = "idle"     // not started yet; starts at first use
	StateStarting = "starting" // being started or connected
	StateReady    = "ready"    // answering
	StateFailed   = "failed"   // the last start or connection failed; tried again with backoff
	StateDisabled = "disabled" // switched off
)

// Server is one configured server as the gateway sees it.
type Server struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Driver  string `json:"driver"`
	Scope   string `json:"scope"`
	Enabled bool   `json:"enabled"`
	// Overridden is true when enabled was changed at run time and differs from
	// the config.
	Overridden bool      `json:"overridden"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"` // why it is failed or disabled
	Since      time.Time `json:"since"`            // when it entered the state
	Protocol   string    `json:"protocol,omitempty"`
	ServerName string    `json:"server_name,omitempty"`
	ServerVer  string    `json:"server_version,omitempty"`
	Instances  int       `json:"instances"`
	Restarts   int       `json:"restarts"`
	Target     string    `json:"target"` // command or URL, without secrets
}

// ServerList answers GET /v1/servers.
type ServerList struct {
	Servers []Server `json:"servers"`
}

// ServerPatch is the body of PATCH /v1/servers/{id}. Nil fields stay.
type ServerPatch struct {
	Enabled *bool `json:"enabled,omitempty"`
	// Reset drops what was changed at run time and goes back to the config.
	Reset bool `json:"reset,omitempty"`
}

// Tool is one tool of the merged view.
type Tool struct {
	Name        string          `json:"name"`   // as in the merged view
	Server      string          `json:"server"` // whose it is
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// ToolList answers GET /v1/tools[?server=ID].
type ToolList struct {
	Tools []Tool `json:"tools"`
	// Missing names servers that are left out, with why.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is a server that a list had to do without.
type Missing struct {
	Server string `json:"server"`
	Reason string `json:"reason"`
}

// CallRequest is the body of POST /v1/call: one tool call on the caller's
// default session.
type CallRequest struct {
	Tool      string          `json:"tool"` // as in the merged view
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// CallResponse answers POST /v1/call. Result is the tool's CallToolResult as
// the server sent it.
type CallResponse struct {
	Result json.RawMessage `json:"result"`
}

// LogEntry is the answer of GET /v1/servers/{id}/logs: one instance's standard
// error, newest last.
type LogEntry struct {
	Instance string `json:"instance"`
	Session  string `json:"session,omitempty"`
	Text     string `json:"text"`
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
}

// Health answers /healthz and /readyz.
type Health struct {
	Status string `json:"status"` // ok, or starting, or draining
}
