package api

import (
	"encoding/json"
	"time"
)

// Call is one call in the journal. In listings secrets are masked by key and
// pattern.
type Call struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal,omitempty"`
	Session   string          `json:"session,omitempty"`
	Run       string          `json:"run,omitempty"` // of the token that it was made with
	Server    string          `json:"server"`
	Method    string          `json:"method"`
	Name      string          `json:"name,omitempty"` // tool, prompt or resource
	Duration  float64         `json:"ms"`
	Outcome   string          `json:"outcome"`         // ok, cancelled or an error kind
	Error     string          `json:"error,omitempty"` // first line of what went wrong
	Journal   string          `json:"journal"`         // full or meta
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"` // only where one call is asked for
	Trace     string          `json:"trace,omitempty"`
	// Withheld says that the content of the call is left out, because only its
	// caller and operators may see it: arguments, result, the text of an error, and
	// the name of a resource.
	Withheld bool `json:"withheld,omitempty"`
	// Missed is how many calls before this one a follower will not see: the journal
	// dropped them before the follower read them.
	Missed int64 `json:"missed,omitempty"`
}

// OutcomeOK is the outcome of a call that did not fail, and OutcomeCancelled that of
// one whose client cancelled it or left, or that a stop of the gateway cut off. All
// others are error kinds; KindTool is a tool's own isError or protocol error.
const (
	OutcomeOK        = "ok"
	OutcomeCancelled = "cancelled"
)

// CallList answers GET /v1/calls?server=&session=&principal=&failed=&since=&
// before=&limit=: newest first. With follow=1 the answer is a stream of
// newline-delimited Call objects, oldest first, of calls from now on.
type CallList struct {
	Calls []Call `json:"calls"`
	// Next is the before of the next page; empty on the last.
	Next string `json:"next,omitempty"`
}

// Replay answers POST /v1/calls/{id}/replay: the call made again with the same
// arguments, and its result.
type Replay struct {
	ID     string          `json:"id"` // of the new call
	Result json.RawMessage `json:"result"`
}

// Token is a bearer token of the state folder, never the token itself.
type Token struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Config  bool      `json:"config"` // it is in the config and can't be revoked by the API
	// Unconfirmed is set for a token that came back with a backup: it is refused
	// until it is confirmed.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

// TokenList answers GET /v1/tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
	// Lost is set after a restore of the database that found no tokens although there
	// were some: callers without a token are refused until a token is made, or POST
	// /v1/tokens/confirm.
	Lost bool `json:"lost,omitempty"`
}

// NewToken is the body of POST /v1/tokens.
type NewToken struct {
	Name    string    `json:"name"`
	Role    string    `json:"role,omitempty"` // user unless given
	Expires time.Time `json:"expires,omitzero"`
}

// CreatedToken answers it: the one time the token is shown.
type CreatedToken struct {
	Token
	Secret string `json:"token"`
}

// Roles of principals. Each may do what those before it may.
const (
	RoleUser     = "user"     // call what it is allowed to; see its own calls
	RoleViewer   = "viewer"   // see all servers and metrics, and calls without their content
	RoleOperator = "operator" // read everything; change servers, tokens and credentials
)

// LoginRequest is the body of POST /v1/servers/{id}/login: it begins a login at a
// server that needs one.
type LoginRequest struct {
	// Redirect is where the caller listens for the answer, on loopback.
	Redirect string `json:"redirect"`
}

// LoginStart answers it. The person opens URL; the query of the redirect goes to
// POST /v1/servers/{id}/login/{flow}.
type LoginStart struct {
	Flow     string    `json:"flow"`
	URL      string    `json:"url"`
	Redirect string    `json:"redirect"` // where to listen; it may be a fixed one of the config
	Expires  time.Time `json:"expires"`
}

// LoginFinish is the body of POST /v1/servers/{id}/login/{flow}: the query of
// the redirect.
type LoginFinish struct {
	Query string `json:"query"`
}
