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
