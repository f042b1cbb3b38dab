package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A Catalog is the list of servers at one moment. It is never changed; a
// reload makes a new one.
type Catalog struct {
	Config  *config.Config
	Entries []*Entry // in the order of the config
	byID    map[string]*Entry
	key     string   // the same for catalogs of the same servers
	of      *Catalog // the one that was current when this one was made
	ahead   []*Entry // those that are copied before anybody forks
	starts  func(owner string, pinned []byte, member string) bool
}

// An Entry is one server with what was changed about it at run time.
type Entry struct {
	config.Server
	// Override is the run-time switch; nil when the config decides.
	Override *bool
	// Ordinal tells the instances of one server in a session apart. Those after
	// the first have an ID of their own; Base is the server's.
	Ordinal int
	// Set names what else was set at run time, such as policy.retry.attempts.
	Set      []string
	driver   driver.Driver
	problem  string // why it can't run at all
	space    string // the template of its workspace, where its session has one
	hash     string // of what an instance is started with
	governor *governor
	taken    taken
}

// taken is what the config of today takes away of a server that a session was
// made with. Whatever else the config says of it is for new sessions.
type taken struct {
	off   string        // why there is nothing left of it; empty where there is
	tools *config.Tools // only what these show too; nil for no difference
}

// takenBy is what a server's entry of today takes away; nil for one that was
// removed.
func takenBy(now *Entry) taken {
	switch {
	case now == nil:
		return taken{off: "it was removed from the config"}
	case now.Override == nil && !now.Enabled:
		return taken{off: "disabled in the config"}
	}
	return taken{tools: &now.Tools}
}

// Shows reports whether a tool, by the server's own name for it, is one that may
// be seen and called.
func (e *Entry) Shows(tool string) bool {
	return shows(&e.Tools, tool) && (e.taken.tools == nil || shows(e.taken.tools, tool))
}

// ShowsAll reports whether no tool of the server is left out.
func (e *Entry) ShowsAll() bool {
	all := func(t *config.Tools) bool { return t == nil || len(t.Allow) == 0 && len(t.Deny) == 0 }
	return all(&e.Tools) && all(e.taken.tools)
}

func shows(t *config.Tools, tool string) bool {
	matches := func(pattern string) bool { return identity.Match(pattern, tool) }
	return !slices.ContainsFunc(t.Deny, matches) && (len(t.Allow) == 0 || slices.ContainsFunc(t.Allow, matches))
}

// Base is the id of the server in the config.
func (e *Entry) Base() string {
	server, _ := splitMember(e.ID)
	return server
}

// Entry returns a server by id.
func (c *Catalog) Entry(id string) *Entry { return c.byID[id] }

// On reports whether the server is to be used, and why not.
func (e *Entry) On() (bool, string) {
	switch {
	case e.taken.off != "":
		return false, e.taken.off
	case e.problem != "":
		return false, e.problem
	case e.Disabled != "":
		return false, e.Disabled
	case e.Override != nil && !*e.Override:
		return false, "disabled at run time"
	case e.Override == nil && !e.Enabled:
		return false, "disabled in the config"
	}
	return true, ""
}

// Overrides names what was changed at run time and differs from the config.
func (e *Entry) Overrides() []string {
	if e.Override != nil && *e.Override != e.Enabled {
		return append([]string{"enabled"}, e.Set...)
	}
	return e.Set
}

// shares reports whether all sessions use one connection: a server that is
// reached over HTTP can tell its clients apart, one on a stream can't.
func (e *Entry) shares() bool { return e.Scope == config.ScopeShared && e.URL == "" }

func (e *Entry) spec() driver.Spec {
	header := make(http.Header, len(e.Headers))
	for k, v := range e.Headers {
		header.Set(k, v)
	}
	spec := driver.Spec{
		Server: e.Base(), Ordinal: e.Ordinal, Command: e.Command, Args: e.Args, Env: e.Env, Cwd: e.Cwd,
		URL: e.URL, Header: header, Transport: e.Transport, CAFile: e.CAFile,
		Builtin: e.Builtin, Settings: e.Settings, Template: e.Template, Details: e.Details,
		Docker: e.Docker, Remote: e.Remote, Sandbox: e.Sandbox,
	}
	spec.WorkspacePath = e.SeenWorkspace()
	for _, d := range e.State {
		spec.Dirs = append(spec.Dirs, driver.StateDir{Name: d.Name, Template: d.Template})
	}
	return spec
}

// startup is what every new instance of the server is asked.
func (e *Entry) startup() *upstream.Startup {
	if e.Startup == nil {
		return nil
	}
	arguments, err := json.Marshal(e.Startup.Arguments)
	if err != nil || e.Startup.Arguments == nil {
		arguments = nil
	}
	return &upstream.Startup{Tool: e.Startup.Tool, Arguments: arguments}
}

// keeper returns who looks after what the server remembers; nil when it
// remembers nothing that Tine knows of.
func (e *Entry) keeper() driver.Keeper {
	k, _ := e.driver.(driver.Keeper)
	return k
}

// remembers reports whether instances of the server work on something that
// outlives them, so that there must not be two at once.
func (e *Entry) remembers() bool {
	k := e.keeper()
	return k != nil && (e.Workspace || k.Carries(e.spec()) != driver.CarryNone)
}

// own reports whether each session has a part of its own of the server.
func (e *Entry) own() bool { return e.Scope == config.ScopeSession }

// fork is what a fork carries of the server, and why where it refuses.
func (e *Entry) fork() (mode, why string) {
	if !e.own() {
		return config.ForkShare, ""
	}
	carries := driver.CarryNone
	if k := e.keeper(); k != nil {
		spec := e.spec()
		if carries = k.Carries(spec); carries == driver.CarryNone && e.Workspace {
			carries = driver.CarryFiles // it works on nothing else
		}
	}
	at := "servers." + e.Base()
	switch {
	case e.Fork == config.ForkMemory && carries != driver.CarryMemory && e.Sandbox != nil:
		return config.ForkRefuse, fmt.Sprintf("%s; or set %s.fork to files, fresh, share or refuse", e.unforked(), at)
	case e.Fork == config.ForkMemory && carries != driver.CarryMemory:
		return config.ForkRefuse, fmt.Sprintf("driver %q can't carry the memory of server %q; set servers.%s.fork to files, fresh, share or refuse", e.Driver, e.Base(), e.Base())
	case e.Fork == config.ForkFiles && carries == driver.CarryNone:
		return config.ForkRefuse, fmt.Sprintf("server %q has no files to carry; name its directories in servers.%s.state", e.Base(), e.Base())
	case e.Fork != "":
		return e.Fork, fmt.Sprintf("servers.%s.fork says so", e.ID)
	case carries == driver.CarryMemory:
		return config.ForkMemory, ""
	case carries == driver.CarryFiles:
		return config.ForkFiles, ""
	case e.Stateless:
		return config.ForkFresh, fmt.Sprintf("servers.%s.state says that it remembers nothing", e.Base())
	case e.Remote != nil:
		return config.ForkRefuse, fmt.Sprintf("the orchestrator of server %q is not known to fork; name its endpoint in servers.%s.remote.fork or servers.%s.remote.snapshot, or set servers.%s.fork to fresh or share", e.Base(), e.Base(), e.Base(), e.Base())
	case e.Docker != nil:
		return config.ForkRefuse, fmt.Sprintf("what the container of server %q remembers is not known; name its paths, or root, in servers.%s.docker.state, or set servers.%s.fork to fresh or share", e.Base(), e.Base(), e.Base())
	case e.Sandbox != nil:
		return config.ForkRefuse, fmt.Sprintf("%s; or name its directories with %s.state: [NAME] and ${state.NAME} in its args or env, or set %s.fork to fresh or share", e.unforked(), at, at)
	case e.keeper() != nil:
		return config.ForkRefuse, fmt.Sprintf("what server %q remembers is not known; set %s.sandbox to true, and a fork carries all of it (on Linux), or name its directories with %s.state: [NAME] and ${state.NAME} in its args or env, or set %s.fork to fresh or share", e.Base(), at, at, at)
	}
	return config.ForkRefuse, fmt.Sprintf("driver %q can't fork; set servers.%s.fork to fresh or share, or servers.%s.scope to shared", e.Driver, e.Base(), e.Base())
}

// unforked says why a server in a sandbox can't be copied while it runs.
func (e *Entry) unforked() string {
	if !e.Sandbox.Forks() {
		return fmt.Sprintf("server %q is on the network of the host, and such a one can't be copied while it runs; set servers.%s.sandbox.network to none or to the domains it needs", e.Base(), e.Base())
	}
	return fmt.Sprintf("the sandbox of server %q can't be copied while it runs; see tine doctor", e.Base())
}

// build makes the catalog of a config.
func (r *Registry) build(cfg *config.Config, overrides map[string]store.Override) *Catalog {
	c := &Catalog{Config: cfg, byID: make(map[string]*Entry, len(cfg.Servers))}
	for _, s := range cfg.Servers {
		o := overrides[s.ID]
		e := &Entry{Override: o.Enabled}
		if len(o.Set) > 0 {
			changed, keys, err := s.With(o.Set)
			if err != nil {
				// It was right for the config as it was then.
				r.o.Log.Warn("what was set at run time does not fit the config any more and is left out", "server", s.ID, "err", err)
			} else {
				s, e.Set = changed, keys
			}
		}
		e.governor = r.governor(&s)
		r.equip(e, s)
		c.Entries = append(c.Entries, e)
		c.byID[s.ID] = e
	}
	c.key, c.of = keyOf(c.Entries), c
	if r.o.Starts != nil {
		c.starts = r.o.Starts(cfg)
	}
	c.ahead = copiedAhead(c.Entries)
	return c
}

// equip gives an entry its driver, or says why it can't have one.
func (r *Registry) equip(e *Entry, s config.Server) {
	e.Server, e.driver, e.hash = s, r.o.Drivers[s.Driver], s.SpecHash()
	if e.driver == nil {
		e.problem = fmt.Sprintf("there is no driver %q here; there are %s", s.Driver, strings.Join(r.driverNames(), ", "))
		return
	}
	if scopes := e.driver.Info().Scopes; len(scopes) > 0 && !slices.Contains(scopes, s.Scope) {
		e.problem = fmt.Sprintf("driver %q can't have scope %q; it can have %s", s.Driver, s.Scope, strings.Join(scopes, ", "))
	}
}

// newEntry makes an entry of a server that a session was made with and that the
// config has no longer, or otherwise.
func (r *Registry) newEntry(s config.Server) *Entry {
	e := &Entry{}
	r.mu.Lock()
	e.governor = r.governors[s.ID]
	r.mu.Unlock()
	if e.governor == nil {
		e.governor = r.governor(&s)
	}
	r.equip(e, s)
	return e
}

func (r *Registry) driverNames() []string {
	names := make([]string, 0, len(r.o.Drivers))
	for n := range r.o.Drivers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Catalog returns the servers as they are now.
func (r *Registry) Catalog() *Catalog { return r.catalog.Load() }

// Apply takes a new config over. Servers that did not change keep their
// instances and their calls; the old instances of the others end when their
// calls have.
func (r *Registry) Apply(ctx context.Context, cfg *config.Config) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	if r.stopping() {
		return errStopping
	}
	overrides, err := r.o.Shared.Overrides(ctx)
	if err != nil {
		return err
	}
	r.swap(r.build(cfg, overrides))
	return nil
}

var errStopping = errors.New("the gateway is stopping")

func (r *Registry) stopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Change is what is to be different about a server until further notice.
type Change struct {
	Enabled *bool    // nil for as it is
	Set     []byte   // keys of the entry, as JSON, merged over what was set before
	Unset   []string // keys that go back to the config
	Reset   bool     // everything goes back to the config, before the rest
}

// Change changes a server at run time. It is kept over restarts.
func (r *Registry) Change(ctx context.Context, id string, c Change) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	if r.stopping() {
		return errStopping
	}
	cat := r.Catalog()
	var plain *config.Server
	for i := range cat.Config.Servers {
		if cat.Config.Servers[i].ID == id {
			plain = &cat.Config.Servers[i]
		}
	}
	if plain == nil {
		return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("there is no server %q", id), Server: id}
	}
	overrides, err := r.o.Shared.Overrides(ctx)
	if err != nil {
		return err
	}
	next, err := c.over(overrides[id])
	if err == nil && len(next.Set) > 0 {
		_, _, err = plain.With(next.Set)
	}
	if err != nil {
		return &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf("server %q: %v", id, err)}
	}
	if next.Enabled == nil && len(next.Set) == 0 {
		err = r.o.Shared.DeleteOverride(ctx, id)
		delete(overrides, id)
	} else {
		err = r.o.Shared.PutOverride(ctx, id, next)
		overrides[id] = next
	}
	if err != nil {
		return fmt.Errorf("recording the change: %w", err)
	}
	r.swap(r.build(cat.Config, overrides))
	return nil
}

// over is the override that a change makes of what there was.
func (c Change) over(o store.Override) (store.Override, error) {
	if c.Reset {
		o = store.Override{}
	}
	if c.Enabled != nil {
		o.Enabled = c.Enabled
	}
	var err error
	if len(c.Unset) > 0 {
		if o.Set, err = config.UnsetKeys(o.Set, c.Unset); err != nil {
			return o, err
		}
	}
	if len(c.Set) > 0 {
		if o.Set, err = config.MergeSet(o.Set, c.Set); err != nil {
			return o, err
		}
	}
	if string(o.Set) == "{}" {
		o.Set = nil
	}
	return o, nil
}

// Retry has the holds on a server try again at once, where they wait after a
// failure: something was mended.
func (r *Registry) Retry(id string) {
	for _, up := range r.Upstreams(id) {
		up.Retry()
	}
}

// Forget drops what is kept of a server's lists and results: it sees somebody
// else in us now.
func (r *Registry) Forget(id string) {
	if e := r.Catalog().Entry(id); e != nil {
		e.governor.policy.Forget()
	}
}

// stale names the servers of one catalog whose instances don't fit another.
func stale(old, next *Catalog) map[string]bool {
	gone := make(map[string]bool)
	for _, e := range old.Entries {
		n := next.Entry(e.ID)
		on := false
		if n != nil {
			on, _ = n.On()
		}
		was, _ := e.On()
		if n == nil || n.hash != e.hash || was && !on {
			gone[e.ID] = true
		}
	}
	return gone
}

// swap puts a new catalog in place and retires what it no longer has.
func (r *Registry) swap(next *Catalog) {
	before := make(map[*Session]*Catalog)
	for _, s := range r.Sessions() {
		before[s] = s.Catalog()
	}
	r.limit(next.Config)
	r.mu.Lock()
	old := r.catalog.Load()
	r.catalog.Store(next)
	clear(r.views)
	stale, staleOf := stale(old, next), stale
	var retired []removedPart
	for id, p := range r.shared {
		if stale[id] {
			p.ended = make(chan struct{})
			r.ending[id] = append(slices.DeleteFunc(r.ending[id], isOver), p.ended)
			retired = append(retired, leaving(p, old, next))
			delete(r.shared, id)
		}
	}
	sessions := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
	}
	r.mu.Unlock()
	for _, s := range sessions {
		gone, was, now := stale, old, next
		if b := before[s]; b != nil && b != old {
			was, now = b, s.Catalog()
			gone = staleOf(was, now)
		}
		for _, p := range s.retire(gone) {
			retired = append(retired, leaving(p, was, now))
		}
	}
	for _, e := range next.Entries {
		for _, up := range r.Upstreams(e.ID) {
			// The one thing of a connection that may change under it.
			up.SetTimeouts(e.ConnectTimeout, e.Timeout, e.Policy.MaxTimeout)
		}
	}
	for _, p := range retired {
		r.retiring.Go(func() {
			ctx, cancel := context.WithTimeout(r.life, drainTime)
			defer cancel()
			if p.suspends {
				p.up.DrainToRest(ctx, whyOff)
			} else {
				p.up.Drain(ctx, whyReloaded)
			}
			close(p.ended)
		})
	}
	for _, e := range next.Entries {
		if stale[e.ID] {
			e.governor.policy.Forget()
		}
	}
	r.dropGovernors(next)
	r.startEager(sessions)
	r.warmUp(next)
	r.dropLearners(next)
	r.learnAll(next)
	for _, s := range sessions {
		s.catalogChanged()
	}
}
