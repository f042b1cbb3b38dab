// Package control is what can be done to sessions, snapshots, servers and tokens, and
// what can be read of the journal, once for every way in: the control API, the
// orchestration API, and servers inside the gateway. Each operation takes a principal,
// applies the rules of package access, and answers without URLs: where a session is
// reached is known to the adapters, which are in package gateway.
package control

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream/credential"
)

// A Host is what the services need of the gateway that they are part of.
type Host interface {
	// Enter gives a request of a principal a place among the running ones.
	Enter(who identity.Principal) (leave func(), err error)
	// Alone refuses what would take a session away from others who are connected to it
	// than the caller: conn is the connection of the caller, nil for none.
	Alone(s *session.Session, conn any, what string) error
	// EndSession closes a session with its clients and their streams.
	EndSession(ctx context.Context, s *session.Session) error
	// Admit changes who may come in: what change has written holds when it returns.
	Admit(ctx context.Context, change func(ctx context.Context) error) error
	// Readmit checks all connected principals again.
	Readmit()
	// Again is a principal as it is by now; ok is false where it may not come in any more.
	Again(who identity.Principal) (now identity.Principal, ok bool)
	// Admits reports whether the owner of a session may come in now; see identity.Pin.
	Admits(owner string, pinned []byte) bool
	// Secrets has what is secret in the config, as it is now, kept out of what is shown.
	Secrets()
	// Stopping is closed when requests are not to wait any longer.
	Stopping() <-chan struct{}
}

// Options of New.
type Options struct {
	Registry  *session.Registry
	Tokens    store.Tokens
	Creations store.Creations
	Journal   *journal.Journal // nil for none
	Feed      store.Feed
	Hub       *store.Hub         // that Feed's writers, and Journal, raise
	Gateway   string             // its id
	Wallet    *credential.Wallet // nil for none
	Redact    *telemetry.Redactor
	StateDir  string // the gateway's own, which no inline server may be given
	Log       *slog.Logger
}

// Services are the services of one gateway.
type Services struct {
	Sessions  *Sessions
	Snapshots *Snapshots
	Instances *Instances
	Servers   *Servers
	Tokens    *Tokens
	Journal   *Journal
	Leases    *Leases
	Events    *Events
	Worlds    *Worlds
}

// core is what the services share.
type core struct {
	host   Host
	reg    *session.Registry
	redact *telemetry.Redactor
	log    *slog.Logger
	once   creations
}

// New makes the services.
func New(host Host, o Options) *Services {
	c := &core{host: host, reg: o.Registry, redact: o.Redact, log: o.Log, once: creations{store: o.Creations, log: o.Log}}
	snapshots := &Snapshots{core: c}
	sessions := &Sessions{core: c, snapshots: snapshots}
	snapshots.sessions = sessions
	return &Services{
		Sessions: sessions, Snapshots: snapshots,
		Instances: &Instances{core: c, sessions: sessions, snapshots: snapshots},
		Servers:   &Servers{core: c, wallet: o.Wallet},
		Tokens:    &Tokens{core: c, store: o.Tokens},
		Journal:   &Journal{core: c, journal: o.Journal},
		Leases:    &Leases{core: c},
		Events:    &Events{core: c, sessions: sessions, journal: &Journal{core: c, journal: o.Journal}, feed: o.Feed, hub: o.Hub, place: placeOf(o.Gateway)},
		Worlds:    &Worlds{core: c, snapshots: snapshots, entries: config.Options{State: o.StateDir}},
	}
}

// A Request says who wants an operation that changes something.
type Request struct {
	Who identity.Principal
	// Key makes the same request give the same answer and do nothing twice; empty for
	// none. What is what the key is for, besides the input: a method and a path.
	Key, What string
	Conn      any // as in Host.Alone
	// Placed says that the request has a place among the running ones already.
	Placed bool
}

// Invalid is the error of a request that is wrong.
func Invalid(format string, args ...any) *api.Error {
	return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf(format, args...)}
}

// Clip bounds what an error repeats of a request.
func Clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// NoServer is the answer for a server that is not there, and for one that is not to be
// known of.
func NoServer(id string) error {
	return &api.Error{Kind: api.KindInvalid, Server: id, Message: "there is no server \"" + id + "\" here; `tine servers` lists them"}
}
