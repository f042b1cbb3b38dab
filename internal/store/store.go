// Package store is the contract of durable state: what a gateway must still know
// after a restart. Each folder below is one implementation, and storetest holds the
// suite that each of them passes.
//
// A Put that returned nil survives the death of the gateway. Callers write
// first, then change memory, then answer.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// Local is the state of one gateway on its machine: its instances, the connections of
// its clients, the index of its journal, the folders that all its sessions share, and
// what its servers listed. No other gateway has a use for it. A handle or a client may
// outlast its session, which is in Shared: a gateway removes those when it starts.
//
// Its methods may run at once, as those of Shared. Deleting something that does not
// exist is no error. Lists are ordered by key.
type Local interface {
	Owner
	Handles
	Clients
	Calls
	SharedStates
	ServerLists
	Closer
}

// Shared is the state that several gateways which serve the same sessions would have in
// common. No method changes both, so that the two may be two databases.
type Shared interface {
	Sessions
	Feed
	Snapshots
	Catalogs
	Overrides
	Tokens
	SessionTokens
	Credentials
	Creations
	Leases
	ToolLists
	Agents
	Blueprints
	Closer
}

// A Store is both in one database.
type Store interface {
	Local
	Shared
}

// Closer ends a store. Close may be called twice. Every other method fails after it.
type Closer interface{ Close() error }

// Owner names the gateway of a state folder.
type Owner interface {
	// GatewayID is made at the first call and stays, so that a gateway recognizes
	// objects with its label after a restart.
	GatewayID(ctx context.Context) (string, error)
	// SetGatewayID gives an owner to a state that has none yet; it fails if the
	// state has another one.
	SetGatewayID(ctx context.Context, id string) error
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
	// ChangeOverride shows change what there is of a server, and writes what change
	// returns; an empty Override is removed. It is one transaction. An error of change
	// is returned as it is, and nothing is written.
	ChangeOverride(ctx context.Context, server string, change func(Override) (Override, error)) error
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

// Handles keeps the handles of running instances, each until its instance has ended.
type Handles interface {
	PutHandle(ctx context.Context, h Handle) error
	DeleteHandle(ctx context.Context, key string) error
	Handles(ctx context.Context) ([]Handle, error)
}

// Session is one session. Its record stays after its end while the lineage of
// another session needs it.
type Session struct {
	ID      string
	Owner   string // the principal
	Kind    string
	Created time.Time
	Used    time.Time
	Closed  time.Time // zero while it is open
	Parent  string    // the session it was forked from
	Token   string    // sha256 of its token in hex; empty for none
	// Catalog is the key of the servers it was made with. Servers are those servers:
	// where they are given, they are written with the session, in one transaction. They
	// are not read back with it; see Catalogs.
	Catalog string
	Servers json.RawMessage
	Data    json.RawMessage // further data of the package session
}

// Sessions keeps the sessions, and what happened to them.
type Sessions interface {
	// PutSessions writes all of them or none, open ones and closed ones. It deletes the
	// SessionTokens of closed ones.
	PutSessions(ctx context.Context, s ...Session) error
	// DeleteSession forgets a session, its events and its tokens. The events of its runs stay
	// while its AgentSession is there.
	DeleteSession(ctx context.Context, id string) error
	// Sessions returns those that are not closed.
	Sessions(ctx context.Context) ([]Session, error)
	// Session returns one, closed or not; ok is false when there is none.
	Session(ctx context.Context, id string) (s Session, ok bool, err error)
	// FindSessions returns sessions, the newest first, and those of one moment by
	// their ids.
	FindSessions(ctx context.Context, f SessionFilter) ([]Session, error)
	// TouchSessions moves Used forward, never back, for all of used at once.
	// Unknown ids are skipped.
	TouchSessions(ctx context.Context, used map[string]time.Time) error
	// DropSessions forgets sessions that were closed before a moment and have no
	// descendant that stays, as DeleteSession does, and returns their ids, also of those it
	// had forgotten before an error.
	DropSessions(ctx context.Context, before time.Time) ([]string, error)

	// PutEvents adds events, all or none, and fills in N.
	PutEvents(ctx context.Context, e ...Event) error
	// Events returns the events of a session, the oldest first, without those of its runs.
	Events(ctx context.Context, session string) ([]Event, error)
}

// SessionFilter chooses sessions. Zero fields choose all.
type SessionFilter struct {
	Owner  *string // nil for all
	Parent string
	Closed bool   // closed ones too
	Before string // an id: sessions after it in the list; ErrUnknown if there is no such session
	Limit  int    // zero for 100
}

// Snapshot is the frozen state of a session.
type Snapshot struct {
	ID      string
	Name    string // unique among those of an owner; may be empty
	Owner   string
	Session string // that it was made of
	Created time.Time
	// Temporary ones belong to a running fork; one that is found at a start is left
	// over.
	Temporary bool
	Auto      bool // of a ring to rewind to
	Size      int64
	Call      int64           // the Seq of the last call in it
	Catalog   string          // as in Session
	Servers   json.RawMessage // as in Session
	Data      json.RawMessage
}

// ErrExists is the error for a name that is taken.
var ErrExists = errors.New("exists already")

// ErrUnknown is the error for an unknown id, or for a session that is not open where it
// must be.
var ErrUnknown = errors.New("no such session")

// ErrDamaged is the error for a database that can't be read completely.
var ErrDamaged = errors.New("the state database is damaged")

// Snapshots keeps them by id.
type Snapshots interface {
	// PutSnapshot fails with ErrExists when the owner has another one of that name.
	PutSnapshot(ctx context.Context, s Snapshot) error
	DeleteSnapshot(ctx context.Context, id string) error
	// Snapshots returns all, in the order of ids.
	Snapshots(ctx context.Context) ([]Snapshot, error)
}

// Catalogs keeps lists of servers as they were when sessions or snapshots were
// made with them. They come with those (Session.Servers) and may hold secrets.
type Catalogs interface {
	Catalog(ctx context.Context, key string) (servers json.RawMessage, ok bool, err error)
	// MendCatalog writes the servers behind a key of an open session or a snapshot
	// anew. For any other key it does nothing.
	MendCatalog(ctx context.Context, key string, servers json.RawMessage) error
	// DropCatalogs forgets those that no open session and no snapshot has.
	DropCatalogs(ctx context.Context) error
}

// SharedStates records which states of shared servers were made, by the names of
// their folders, and their marks. Those of sessions are in the sessions' records.
type SharedStates interface {
	PutSharedState(ctx context.Context, name, mark string) error
	SharedStates(ctx context.Context) (map[string]string, error)
}

// ServerList is the last list of a server, in the form of the package session.
type ServerList struct {
	Key       string // of the server's definition
	Principal string // whose list it is; empty for a public one
	Data      json.RawMessage
	Changed   time.Time
}

// Bounds of the stored lists. The oldest are dropped.
const (
	MostServerLists     = 2000
	MostServerListBytes = 64 << 20
)

// ServerLists keeps them by key and principal.
type ServerLists interface {
	PutServerList(ctx context.Context, l ServerList) error
	DeleteServerList(ctx context.Context, key, principal string) error
	// ServerList returns one; ok is false if there is none. A wrong checksum is an
	// ErrDamaged.
	ServerList(ctx context.Context, key, principal string) (l ServerList, ok bool, err error)
}

// Creation records the answer to a request that must not be done twice.
type Creation struct {
	Owner   string
	Key     string          // the caller's idempotency key
	Request string          // a hash of the request
	Answer  json.RawMessage // may hold secrets; nil while it is pending
	At      time.Time
}

// Mark is put on everything that a creation makes, so that results that were never
// answered are recognized.
func (c Creation) Mark() string {
	sum := sha256.Sum256([]byte(c.Owner + "\x00" + c.Key))
	return hex.EncodeToString(sum[:12])
}

// Creations keeps them by owner and key.
type Creations interface {
	// BeginCreation notes a key. If there is one already that is not older than
	// since, it returns that and ok is false.
	BeginCreation(ctx context.Context, c Creation, since time.Time) (old Creation, ok bool, err error)
	// EndCreation notes the answer; with nil the key is free again.
	EndCreation(ctx context.Context, owner, key string, answer json.RawMessage) error
	// Unanswered returns the pending ones. A creation whose answer was noted is not
	// one, even if the store has lost the answer.
	Unanswered(ctx context.Context) ([]Creation, error)
	// DropCreations forgets creations older than a moment; with pending, at a
	// start, also all that an earlier gateway did not answer.
	DropCreations(ctx context.Context, before time.Time, pending bool) error
}

// Lease is what keeps sessions open that were opened under it, as long as its owner renews
// it. When it was renewed is not kept.
type Lease struct {
	ID      string
	Owner   string
	TTL     time.Duration
	Created time.Time
	Data    json.RawMessage // further data of the package session
}

// Leases keeps them by id.
type Leases interface {
	PutLease(ctx context.Context, l Lease) error
	DeleteLease(ctx context.Context, id string) error
	Leases(ctx context.Context) ([]Lease, error)
}

// EventTools is the kind of an event that names a list of tools; see ToolLists.
const EventTools = "tools"

// ToolLists keeps the lists of tools that sessions saw, each once, by a digest. The
// data of an event of the kind EventTools names one as "tools".
type ToolLists interface {
	// PutToolList keeps a list, unless it is there, and an event that names it, in one
	// transaction.
	PutToolList(ctx context.Context, digest string, tools json.RawMessage, e Event) error
	ToolList(ctx context.Context, digest string) (tools json.RawMessage, ok bool, err error)
	// DropToolLists forgets those that no event names.
	DropToolLists(ctx context.Context) error
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

// Clients keeps the transport sessions of clients, so that they survive a restart.
type Clients interface {
	PutClient(ctx context.Context, c Client) error
	DeleteClient(ctx context.Context, id string) error
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
	// Unconfirmed is set by a restore: the token may have been revoked after the
	// backup was made, and is refused until an operator confirms it.
	Unconfirmed bool
}

// Tokens keeps them by name.
type Tokens interface {
	// ChangeToken shows change the token of a name, nil where there is none, and writes
	// what change returns, under that name; nil removes it. It is one transaction. An
	// error of change is returned as it is, and nothing is written.
	ChangeToken(ctx context.Context, name string, change func(*Token) (*Token, error)) error
	Tokens(ctx context.Context) ([]Token, error)
	// TokensLost reports whether there were tokens that a restore could not bring
	// back. Callers without a token are then refused, until there is a valid token
	// or an operator accepts the loss (ConfirmLost).
	TokensLost(ctx context.Context) (bool, error)
	ConfirmLost(ctx context.Context) error
}

// SessionToken is a further token of a session, besides the one in Session.Token. The
// token itself is never kept.
type SessionToken struct {
	ID      string
	Session string
	Hash    string   // sha256 in hex
	Run     string   // what it was made for; may be empty
	Servers []string // that it reaches; nil for all, empty for none
	Allow   []string // what it may do with the session besides calling servers
	Created time.Time
	Expires time.Time // zero for the end of the session
}

// SessionTokens keeps them by id. They are deleted with their session, and when it is
// closed.
type SessionTokens interface {
	// PutSessionToken fails with ErrUnknown unless the session is open.
	PutSessionToken(ctx context.Context, t SessionToken) error
	// DeleteSessionTokens deletes all of them or none.
	DeleteSessionTokens(ctx context.Context, ids ...string) error
	// SessionTokens returns those of all sessions, in the order of ids.
	SessionTokens(ctx context.Context) ([]SessionToken, error)
}

// Credential is the result of a login to a server: the server's tokens, in the form
// of the package credential. It is secret.
type Credential struct {
	Server    string
	Principal string // empty for a shared one
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
