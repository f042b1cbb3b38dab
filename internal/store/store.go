// Package store is the contract of durable state: what a gateway must still
// know after a restart. One folder below this one is one implementation, and
// storetest holds the suite that each of them passes.
//
// A Put that returned nil survives the death of the gateway. Callers write
// first, then change memory, then answer.
package store

import (
	"context"
	"encoding/json"
	"time"
)

// A Store keeps everything of one state folder. Its methods may run at once.
// Deleting what is not there is no error. Lists are ordered by key.
type Store interface {
	Overrides
	Handles
	Sessions
	Clients
	Tokens
	Credentials
	Calls

	// GatewayID names the owner of this state. It is made at the first call and
	// stays, so that what a gateway labels as its own is known after a restart.
	GatewayID(ctx context.Context) (string, error)
	// Close may be called twice. Every other method fails after it.
	Close() error
}

// Override is what was changed at run time about a server of the config. Nil
// fields are as in the config.
type Override struct {
	Enabled *bool
	// Set holds keys of the server's entry, as JSON. It may hold secrets.
	Set json.RawMessage
}

// Overrides keeps what was changed at run time, by the server's id.
type Overrides interface {
	PutOverride(ctx context.Context, server string, o Override) error
	DeleteOverride(ctx context.Context, server string) error
	Overrides(ctx context.Context) (map[string]Override, error)
}

// Handle is what is needed to find a running instance again.
type Handle struct {
	Key      string // unique among handles; the caller's choice
	Driver   string
	Server   string
	Session  string // empty when shared
	Dir      string
	Data     json.RawMessage // the driver's own
	SpecHash string          // of the spec it was started with, to see whether the config has changed since
	Link     json.RawMessage // what the connection knows, such as the answer to initialize
	Created  time.Time
}

// Handles keeps the handles of running instances.
type Handles interface {
	PutHandle(ctx context.Context, h Handle) error
	DeleteHandle(ctx context.Context, key string) error
	Handles(ctx context.Context) ([]Handle, error)
}

// Session is one session.
type Session struct {
	ID      string
	Owner   string // the principal
	Kind    string
	Created time.Time
	Used    time.Time
	Data    json.RawMessage
}

// Sessions keeps the sessions.
type Sessions interface {
	PutSession(ctx context.Context, s Session) error
	DeleteSession(ctx context.Context, id string) error
	Sessions(ctx context.Context) ([]Session, error)
	// TouchSessions moves Used forward, never back, for all of used at once.
	// Ids that are not there are passed over.
	TouchSessions(ctx context.Context, used map[string]time.Time) error
}

// Client is the transport session of one MCP client that has a handshake.
type Client struct {
	ID        string // its Mcp-Session-Id
	Session   string
	View      string
	Principal string
	Protocol  string
	Init      json.RawMessage // the parameters of its initialize
	Created   time.Time
	Used      time.Time
}

// Clients keeps the transport sessions of clients, so that they come back.
type Clients interface {
	PutClient(ctx context.Context, c Client) error
	DeleteClient(ctx context.Context, id string) error
	// DeleteClientsOf deletes every client of one session.
	DeleteClientsOf(ctx context.Context, session string) error
	Clients(ctx context.Context) ([]Client, error)
	// TouchClients is to clients what TouchSessions is to sessions.
	TouchClients(ctx context.Context, used map[string]time.Time) error
}

// Token is a bearer token that was made at run time. The token itself is never
// kept.
type Token struct {
	Name    string
	Hash    string // sha256 in hex
	Role    string
	Created time.Time
	Expires time.Time // zero for never
}

// Tokens keeps them by name.
type Tokens interface {
	PutToken(ctx context.Context, t Token) error
	DeleteToken(ctx context.Context, name string) error
	Tokens(ctx context.Context) ([]Token, error)
}

// Credential is what somebody who logged in to a server got: the server's
// tokens, as the one who uses them writes them. It is secret.
type Credential struct {
	Server    string
	Principal string // empty for one that all share
	Data      json.RawMessage
	Changed   time.Time
}

// Credentials keeps them by server and principal.
type Credentials interface {
	PutCredential(ctx context.Context, c Credential) error
	DeleteCredential(ctx context.Context, server, principal string) error
	// Credential returns one; ok is false when there is none.
	Credential(ctx context.Context, server, principal string) (c Credential, ok bool, err error)
	// CredentialsOf returns all of a server, of every principal.
	CredentialsOf(ctx context.Context, server string) ([]Credential, error)
}
