// Package session is the heart of Tine: sessions, the servers they are made
// of, and the instances they own. A session is the application's handle on a
// world: it has instances of its own of the session-scoped servers and shares
// the others.
package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/credential"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/workspace"
)

// drainTime is how long the calls of a server that was changed or removed may
// go on.
const drainTime = 5 * time.Minute

// Local is what a Registry keeps of its own gateway.
type Local interface {
	store.Handles
	store.SharedStates
	store.ServerLists
}

// Shared is what a Registry keeps of its sessions.
type Shared interface {
	Records
	store.Overrides
	store.Creations
	store.Leases
	store.SessionTokens
	store.ToolLists
}

// Records are what there is a copy of in the folders of sessions and snapshots.
type Records interface {
	store.Sessions
	store.Snapshots
	store.Catalogs
}

// Options are what a Registry works with.
type Options struct {
	Drivers map[string]driver.Driver
	Local   Local
	Shared  Shared
	// Lists keeps what servers list; nil for Local.
	Lists  store.ServerLists
	Dir    string // for instances
	States string // for what sessions remember, and for snapshots
	// StateFlag is what commands that the log advises need to mean this state folder,
	// such as "--state /srv/tine"; empty for nothing.
	StateFlag string
	// Workspaces has the directories of sessions; nil where there are none.
	Workspaces *workspace.Store
	// Restored says that the store was brought back from a backup not long ago: what
	// seems to belong to no session stays for now.
	Restored bool
	// Wallet has what servers want to be shown; nil where none wants anything.
	Wallet *credential.Wallet
	Record record.Options
	// Seal marks the files of exported snapshots as this gateway's own; nil for no
	// mark, so that none is known again.
	Seal *Seal
	// Starts makes of a config who may have a member of a session started: by the
	// owner's name, and Owner.Pinned where there is one. Nil lets every owner do so.
	Starts func(*config.Config) func(owner string, pinned []byte, member string) bool
	// Unfit hears of a memory that does not fit. Where it returns true the server begins
	// anew at once: its front tells what is lost. Nil has a call told first.
	Unfit func(server, why string) bool
	// Hub hears of events that are written, and of how servers are doing; nil for none.
	Hub *store.Hub
	// Closed hears of each session whose end is written down; nil for none.
	Closed func(session string)
	// Learn has servers that nothing is known of asked for their lists from the start.
	Learn bool
	Log   *slog.Logger
}

// A Registry holds the sessions of one gateway and its servers. Its methods
// may run at once.
//
// Who holds a lock takes only locks that stand in a line further down, of any
// session:
//
//	Registry.changing, Registry.defaulting    a new catalog; a default session
//	Registry.sharedSeeding, Session.seeding   a state is made or exchanged
//	space.making                              a workspace is made
//	snapshot.verifying                        the files of a snapshot are read
//	learners.mu, known.writing                what servers list
//	Session.changing                          the facts of a session are written down
//	stock.granting                            how many instances stand ready
//	Session.mu                                what a session has
//	Registry.mu                               what the registry has
//	Catalogs.mu, stock.mu, budget.mu, gate.mu, spaces.mu, ring.mu, known.mu
//
// The store, drivers and servers are waited for only under the locks above
// Session.mu, and never under Session.mu or one further down.
type Registry struct {
	o        Options
	catalogs *catalog.Catalogs
	// changing is held while the next catalog is made from the current one, so
	// that a reload and a switch at once don't undo each other.
	changing sync.Mutex

	mu       sync.Mutex
	closed   bool
	sessions map[string]*Session
	defaults map[string]*Session        // by owner and name
	shared   map[string]*part           // by server
	ending   map[string][]chan struct{} // by server, of shared ones that were replaced
	tokens   map[string]tokenHolder     // by their hashes
	joints   map[string]*joint          // by origin and server
	// sharedStates are the marks of the states in the home that all sessions share.
	sharedStates map[string]string
	// unrecorded are closed sessions whose end could not be written down yet.
	unrecorded map[string]*Session
	unserved   map[string]Unserved
	leases     map[string]*lease // by id
	started    time.Time
	defaulting sync.Mutex // held while a default session is made
	snapshots  map[string]*snapshot
	// beginning are sessions that are being opened with an id that was given.
	beginning map[string]chan struct{}
	past      pastHomes
	// unsure says that there are files on the disk of which it is not known what
	// they need; only at the start.
	unsure   bool
	opened   int            // sessions that were asked for
	perOwner map[string]int // the same, by owner
	budget   budget

	displaced sync.Once // logs that programs see workspaces elsewhere

	sharedSeeding sync.Mutex // held while the state of a shared server is made

	known    known
	learners learners

	stock *stock

	ends     chan struct{} // taken by what closes sessions whose time is over, and the like
	life     context.Context
	end      context.CancelFunc
	retiring sync.WaitGroup
	reaper   sync.WaitGroup
}

// Open makes the registry of a config and brings back what an earlier gateway
// left: its sessions, and their instances where they still run.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Registry, error) {
	if o.Lists == nil {
		o.Lists = o.Local
	}
	r := &Registry{
		o: o, sessions: make(map[string]*Session),
		defaults: make(map[string]*Session), shared: make(map[string]*part), ending: make(map[string][]chan struct{}),
		tokens: make(map[string]tokenHolder),
		joints: make(map[string]*joint), unrecorded: make(map[string]*Session), unserved: make(map[string]Unserved), started: time.Now(), snapshots: make(map[string]*snapshot),
		leases: make(map[string]*lease), beginning: make(map[string]chan struct{}),
		perOwner: make(map[string]int),
		unsure:   o.Restored,
	}
	r.learners.of, r.learners.slot = make(map[string]*learner), make(chan struct{}, learnAtOnce)
	r.ends = make(chan struct{}, parallel)
	r.stock = newStock(r)
	r.budget.short = make(chan need, 1)
	r.limit(cfg)
	r.life, r.end = context.WithCancel(context.Background())
	r.catalogs = catalog.New(catalog.Options{
		Drivers: o.Drivers, Store: o.Shared, States: o.States, Record: o.Record, Starts: o.Starts, InUse: r.views, Changed: r.serverChanged, Log: o.Log,
	})
	overrides, err := o.Shared.Overrides(ctx)
	if err != nil {
		return nil, err
	}
	r.catalogs.Set(r.catalogs.Make(cfg, overrides))
	if err := r.restore(ctx); err != nil {
		r.end()
		r.dropGovernors(nil)
		return nil, err
	}
	r.startEager(nil)
	if restored := r.Sessions(); len(restored) > 0 {
		r.startEager(restored)
	}
	r.armLeases()
	r.reaper.Go(r.reap)
	r.reaper.Go(r.stock.yield)
	r.stock.update(r.Catalog())
	r.learnAll(r.Catalog())
	return r, nil
}

// sessionPrefix begins the id of every session.
const sessionPrefix = "ses_"

// IsID reports whether a session is meant by its id, and not by a name.
func IsID(ref string) bool { return strings.HasPrefix(ref, sessionPrefix) }

// newID makes a session's id.
func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return sessionPrefix + hex.EncodeToString(b[:])
}

// Default returns the default session of a principal, made at its first use.
// All callers without a name and a connection are the empty owner.
func (r *Registry) Default(ctx context.Context, owner string) (*Session, error) {
	r.mu.Lock()
	s := r.defaults[owner]
	r.mu.Unlock()
	if s != nil {
		s.Touch()
		return s, nil
	}
	return r.open(ctx, owner, KindDefault, "", nil)
}

// ForClient opens the session of one client connection.
func (r *Registry) ForClient(ctx context.Context, owner string, caps []byte) (*Session, error) {
	return r.open(ctx, owner, KindClient, "", caps)
}

func (r *Registry) open(ctx context.Context, owner, kind, name string, caps []byte) (*Session, error) {
	s := r.newSession(newID(), owner, kind, time.Now().UTC(), facts{Caps: caps, Name: name})
	key := defaultKey(owner, name)
	rec, err := s.record(s.known())
	if err != nil {
		return nil, err
	}
	if kind == KindDefault {
		r.defaulting.Lock()
		defer r.defaulting.Unlock()
	}
	r.mu.Lock()
	closed, other := r.closed, r.defaults[key]
	r.mu.Unlock()
	if closed {
		return nil, errStopping
	}
	if kind == KindDefault && other != nil {
		return other, nil
	}
	if err := r.o.Shared.PutSessions(ctx, rec); err != nil {
		return nil, fmt.Errorf("recording the session: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // the next gateway has it
		return nil, errStopping
	}
	r.sessions[s.ID] = s
	if kind == KindDefault {
		r.defaults[key] = s
	}
	r.retiring.Go(func() { r.startEager([]*Session{s}) })
	return s, nil
}

func (r *Registry) newSession(id, owner, kind string, created time.Time, f facts) *Session {
	s := &Session{
		ID: id, Owner: owner, Kind: kind, Created: created, name: f.Name, caps: f.Caps, pinnedOwner: f.Owner, facts: f, r: r,
		parts: make(map[string]*part), ending: make(map[string][]chan struct{}), watchers: make(map[*watch]struct{}),
		ahead: make(map[string]*ahead), lease: r.leaseOf(f.Lease), own: catalog.NewHome(id),
	}
	s.Touch()
	return s
}

// Get returns a session by id, nil when there is none.
func (r *Registry) Get(id string) *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[id]
}

// Sessions returns all sessions.
func (r *Registry) Sessions() []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		out = append(out, s)
	}
	return out
}

// UpstreamsOf returns every hold on an entry's server: in all sessions, or of one that
// stands in no config in its own.
func (r *Registry) UpstreamsOf(e *catalog.Entry) []*upstream.Upstream {
	if !e.Inline {
		return r.Upstreams(e.ID)
	}
	if s := r.Get(e.Session()); s != nil {
		return s.holdsOn(e.Base(), true)
	}
	return nil
}

// Upstreams returns every hold on a server of the config: shared, of a session, or of
// neither.
func (r *Registry) Upstreams(id string) []*upstream.Upstream {
	r.mu.Lock()
	var out []*upstream.Upstream
	if p := r.shared[id]; p != nil {
		out = append(out, p.up)
	}
	sessions := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
	}
	r.mu.Unlock()
	for _, s := range sessions {
		for _, up := range s.holdsOn(id, false) {
			if !slices.Contains(out, up) {
				out = append(out, up)
			}
		}
	}
	return append(out, r.learnersOf(id)...)
}

// Servers returns every server that there is or that a session was made with.
func (r *Registry) Servers() []config.Server { return r.catalogs.Servers() }

// views are the catalogs that sessions have.
func (r *Registry) views() map[*catalog.Catalog]bool {
	used := make(map[*catalog.Catalog]bool)
	for _, s := range r.Sessions() {
		used[s.view.Load()] = true
	}
	return used
}

// background runs something that the registry waits for when it ends; false when
// it is ending already.
func (r *Registry) background(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.retiring.Go(fn)
	return true
}
