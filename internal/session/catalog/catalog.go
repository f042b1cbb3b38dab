// Package catalog is the list of servers: as the config has them now, and as each
// session has them that was made with certain ones.
//
//	config + overrides --Make--> Catalog --Set--> Current
//	Catalog --Pin--> key, and a file and a row of the store behind it
//	key --Unpin, View--> the Catalog of a session, below the current one
//
// An Entry is one server of a Catalog and answers what the config and its driver
// say of it. A Governor is what outlives Entries: the limits and figures of a
// server, whichever Entry a call came through.
package catalog

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// A Catalog is the list of servers at one moment. It is never changed; a
// reload makes a new one.
type Catalog struct {
	Config  *config.Config
	Entries []*Entry // in the order of the config
	byID    map[string]*Entry
	key     string   // the same for catalogs of the same servers
	pin     string   // the key of the servers that its sessions were made with
	of      *Catalog // the one that was current when this one was made
	Ahead   []*Entry // servers that are copied ahead of a fork
	starts  func(owner string, pinned []byte, member string) bool
}

// Entry returns a server by id.
func (c *Catalog) Entry(id string) *Entry { return c.byID[id] }

// MayStart reports whether the rules let a member be started for an owner.
func (c *Catalog) MayStart(owner string, pinned []byte, member string) bool {
	return c.starts == nil || c.starts(owner, pinned, member)
}

// Options are what Catalogs work with.
type Options struct {
	Drivers map[string]driver.Driver
	Store   store.Catalogs
	States  string // where the servers of sessions lie besides the store
	Record  record.Options
	// Starts makes of a config who may have a member of a session started; nil
	// lets every owner do so.
	Starts func(*config.Config) func(owner string, pinned []byte, member string) bool
	// InUse are the catalogs that sessions have. It is called without the lock of
	// the Catalogs.
	InUse func() map[*Catalog]bool
	// Changed hears how a server is doing when that changes; nil for none.
	Changed func(upstream.HealthChange)
	Log     *slog.Logger
}

// Catalogs are the servers of one gateway: those of the config, and those that
// its sessions were made with. The methods may run at once.
type Catalogs struct {
	o       Options
	current atomic.Pointer[Catalog]

	// mu is held for what is done in memory; nothing of sessions is locked
	// meanwhile.
	mu        sync.Mutex
	governors map[string]*Governor // by server
	pins      map[string]pinned    // by the key of their catalog
	kept      map[string]int       // how many keep the servers of a key from being dropped
	dropping  map[string]bool      // keys that are about to be dropped, unless they are kept again
	views     map[string]*Catalog  // of sessions made with certain servers
	viewsUsed int                  // how many of them were in use when that was looked up last
}

// New makes the servers of a gateway that has none yet; see Set.
func New(o Options) *Catalogs {
	return &Catalogs{o: o, governors: make(map[string]*Governor), pins: make(map[string]pinned), kept: make(map[string]int), dropping: make(map[string]bool), views: make(map[string]*Catalog)}
}

// Current returns the servers as the config has them now; nil before the first
// Set.
func (all *Catalogs) Current() *Catalog { return all.current.Load() }

// Set makes a catalog the current one.
func (all *Catalogs) Set(next *Catalog) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.current.Store(next)
	clear(all.views)
}

// Make makes the catalog of a config.
func (all *Catalogs) Make(cfg *config.Config, overrides map[string]store.Override) *Catalog {
	c := &Catalog{Config: cfg, byID: make(map[string]*Entry, len(cfg.Servers))}
	for _, s := range cfg.Servers {
		o := overrides[s.ID]
		e := &Entry{Override: o.Enabled}
		if len(o.Set) > 0 {
			changed, keys, err := s.With(o.Set)
			if err != nil {
				// It was right for the config as it was then.
				all.o.Log.Warn("what was set at run time does not fit the config any more and is left out", "server", s.ID, "err", err)
			} else {
				s, e.Set = changed, keys
			}
		}
		e.Governor = all.govern(&s)
		all.equip(e, s)
		c.Entries = append(c.Entries, e)
		c.byID[s.ID] = e
	}
	c.key, c.of = keyOf(c.Entries), c
	if all.o.Starts != nil {
		c.starts = all.o.Starts(cfg)
	}
	c.Ahead = copiedAhead(c.Entries)
	return c
}

// equip gives an entry its driver, or says why it can't have one.
func (all *Catalogs) equip(e *Entry, s config.Server) {
	e.Server, e.Runner, e.Hash = s, all.o.Drivers[s.Driver], s.SpecHash()
	if e.Runner == nil {
		e.Problem = fmt.Sprintf("there is no driver %q here; there are %s", s.Driver, strings.Join(slices.Sorted(maps.Keys(all.o.Drivers)), ", "))
		return
	}
	if s.Front != "" {
		if e.Fronter = all.fronter(); e.Fronter == nil {
			e.Problem = fmt.Sprintf("there is no built-in server %q here", s.Front)
			return
		}
	}
	if scopes := e.Runner.Info().Scopes; len(scopes) > 0 && !slices.Contains(scopes, s.Scope) {
		e.Problem = fmt.Sprintf("driver %q can't have scope %q; it can have %s", s.Driver, s.Scope, strings.Join(scopes, ", "))
	}
}

// fronter returns the driver that has fronts; nil for none.
func (all *Catalogs) fronter() driver.Fronter {
	for _, d := range all.o.Drivers {
		if f, ok := d.(driver.Fronter); ok {
			return f
		}
	}
	return nil
}

// newEntry makes an entry of a server that a session was made with and that the
// config has no longer, or otherwise.
func (all *Catalogs) newEntry(s config.Server) *Entry {
	e := &Entry{Governor: all.Governor(s.ID)}
	if e.Governor == nil {
		e.Governor = all.govern(&s)
	}
	all.equip(e, s)
	return e
}

// EntryOf makes an entry of a server that is in no catalog any more.
func (all *Catalogs) EntryOf(s config.Server, home *Home) *Entry {
	if s.Inline {
		return all.newInline(s, home)
	}
	return all.newEntry(s)
}

// newInline makes an entry of a server that stands in no config.
func (all *Catalogs) newInline(s config.Server, home *Home) *Entry {
	e := &Entry{Governor: home.govern(all, &s), home: home}
	all.equip(e, s)
	return e
}

// copiedAhead lists the servers that are copied ahead of a fork.
func copiedAhead(entries []*Entry) []*Entry {
	var out []*Entry
	for _, e := range entries {
		if !e.ForkAhead || !e.Own() || e.Workspace || len(e.State) > 0 || e.Preparer() == nil {
			continue
		}
		if mode, _ := e.ForkMode(); mode == config.ForkMemory {
			out = append(out, e)
		}
	}
	return out
}

// Stale names the servers of one catalog whose instances don't fit another.
func Stale(old, next *Catalog) map[string]bool {
	gone := make(map[string]bool)
	for _, e := range old.Entries {
		n := next.Entry(e.ID)
		on := false
		if n != nil {
			on, _ = n.On()
		}
		was, _ := e.On()
		if n == nil || n.Hash != e.Hash || was && !on {
			gone[e.ID] = true
		}
	}
	return gone
}
