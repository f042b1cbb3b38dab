package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/workspace"
)

// Owner is whose a session is.
type Owner struct {
	Name string
	// Pinned is what the edge needs to let the session's token in as this owner
	// later; opaque here.
	Pinned json.RawMessage
}

// OpenOptions say what session to open. Durations are the config's when zero,
// and none when negative.
type OpenOptions struct {
	Owner   Owner
	From    string // a snapshot, by its id
	Labels  map[string]string
	TTL     time.Duration
	Idle    time.Duration
	Servers []string // only these; nil for those of the snapshot, or all
	Eager   bool
	Members map[string]catalog.Member // more about some servers, by their ids
	Auto    *config.Autosnapshot      // nil for the config's
	Wait    time.Duration
	Lease   string // by its id; empty for none
	// ID is the one that the session is to have; empty for a new one. See OpenAs.
	ID string
	// List has the session have these servers and no others; nil for Servers. There may
	// be none.
	List *catalog.List
	// Secrets is called when the registry's Servers has the session's own, before any of
	// them is started; nil for nothing.
	Secrets func()
	// Held has the session closed at the next start of a gateway: what it is opened for
	// does not outlive this one. Forks are not held.
	Held bool
	// Creation is the mark of the request, where it has one: what carries that of
	// a request that was never answered is removed at the next start.
	Creation string
}

// OpenSession opens a session and returns it with its token.
func (r *Registry) OpenSession(ctx context.Context, o OpenOptions) (*Session, string, error) {
	if o.From != "" {
		giveBack, err := r.useSnapshot(o.From)
		if err != nil {
			return nil, "", err
		}
		defer giveBack()
	}
	b, err := r.begin(ctx, o)
	if err != nil {
		return nil, "", err
	}
	err = b.make(ctx)
	b.letGo()
	if err != nil {
		r.dropServers(ctx, b.children[0].pinned())
		return nil, "", err
	}
	r.missAnew(b.children[0], b.taken)
	return b.children[0], b.tokens[0], nil
}

// newToken makes the token of a session.
func newToken() (token, hash string) {
	token = "tine_ses_" + rand.Text()
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// An opening makes sessions: all of them, or none.
//
//	room and quota taken -> states made -> members started -> recorded -> known
type opening struct {
	r        *Registry
	owner    Owner
	children []*Session
	tokens   []string
	from     *frozen   // what they begin with; nil for nothing
	snapshot string    // whose it is, by its id; empty for that of a fork
	take     bool      // the last one may use from up
	taken    time.Time // when the snapshot was that they are made of
	eager    bool
	failed   map[string]bool // eager members that don't run in the parent either
	events   func(s *Session) []store.Event
	besides  []store.Event // of others, written with them
	id       string        // the one that was asked for; empty for a new one each
	own      *catalog.Home // of the one session; nil for one each
	letGo    func()        // of its servers, which are kept until then
}

// begin checks what is asked for, and takes the room for it.
func (r *Registry) begin(ctx context.Context, o OpenOptions) (_ *opening, err error) {
	if o.ID == "" {
		o.ID = newID()
	}
	own, letGo, pin := catalog.NewHome(o.ID), func() {}, ""
	defer func() {
		if err != nil {
			own.Close()
			letGo()
			r.dropServers(ctx, pin)
		}
	}()
	cat := r.Catalog()
	cfg := cat.Config.Sessions
	from, taken := (*frozen)(nil), time.Time{}
	lease, err := r.usableLease(o.Owner.Name, o.Lease)
	if err != nil {
		return nil, err
	}
	if o.From != "" {
		snap := r.snapshotByID(o.From)
		if snap == nil {
			return nil, noSnapshot(o.From)
		}
		from, taken, pin = &snap.frozen, snap.Created, snap.Catalog
	}
	switch {
	case o.List != nil:
		var before []config.Server
		if from != nil {
			if before, err = r.listOf(ctx, pin, from.Only); err != nil {
				return nil, fmt.Errorf("snapshot %s: %w", o.From, err)
			}
		}
		c, release, err := r.catalogs.Compose(cat, before, *o.List)
		if err != nil {
			return nil, err
		}
		pin, letGo = c.Key, release
		if o.Secrets != nil && len(o.List.Inline) > 0 {
			o.Secrets()
		}
	case pin != "":
		letGo = r.catalogs.Keep(pin)
		if _, err := r.catalogs.Unpin(ctx, pin); err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", o.From, err)
		}
	default: // also from one that came from elsewhere
		letGo = r.catalogs.Keep(cat.Key())
		if pin, err = r.catalogs.Pin(cat); err != nil {
			return nil, err
		}
	}
	servers := slices.Sorted(slices.Values(o.Servers))
	missing := "there is no server %.64q; `tine servers` lists them"
	if len(servers) == 0 && from != nil && o.List == nil {
		servers = slices.Sorted(slices.Values(from.Only))
		missing = "the snapshot was made with server %.64q, which there is not here; add it to the config, or name the servers that the session shall have"
	}
	for _, id := range servers {
		if r.catalogs.View(cat, pin, nil, nil, own).Entry(id) == nil {
			return nil, &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf(missing, id)}
		}
	}
	members, err := r.settled(r.catalogs.View(cat, pin, slices.Compact(servers), nil, own), &o, from)
	if err != nil {
		return nil, err
	}
	f := facts{
		Members: members, Lease: lease, Held: o.Held, Listed: o.List != nil,
		Owner: o.Owner.Pinned, Labels: o.Labels, Idle: o.Idle, From: o.From, Servers: slices.Compact(servers), Auto: o.Auto, Creation: o.Creation,
	}
	if ttl := choose(o.TTL, cfg.TTL); ttl > 0 {
		f.Expires = time.Now().Add(ttl)
	}
	if from != nil {
		f.Used = from.Used
		f.Damaged, f.Owed = from.losses(r.catalogs.View(cat, pin, f.Servers, f.Members, own))
	}
	b := &opening{r: r, owner: o.Owner, from: from, snapshot: o.From, taken: taken, eager: o.Eager, id: o.ID, own: own, letGo: letGo}
	b.events = func(s *Session) []store.Event {
		all := []store.Event{r.event(s.ID, eventOpened, eventData{Snapshot: o.From})}
		for _, d := range f.Damaged {
			all = append(all, r.damageEvent(s.ID, d, o.From))
		}
		return all
	}
	carried := b.carried()
	each := make(map[string]need)
	for _, e := range r.catalogs.View(cat, pin, f.Servers, f.Members, own).Entries {
		if b.starts(e, carried[e.ID]) {
			each[e.ID] = needOf(e)
		}
	}
	wait, explain := r.patience(o.Wait, cfg.Wait)
	if err := b.takeRoom(ctx, o.Owner.Name, each, 1, wait); err != nil {
		return nil, explain(err)
	}
	b.add(o.Owner.Name, "", pin, f, each)
	return b, nil
}

// choose is what was asked for, or the config's where nothing was.
func choose(asked, fallback time.Duration) time.Duration {
	if asked == 0 {
		return fallback
	}
	return asked
}

// takeRoom takes what sessions of one owner need, and places for them. A
// request that waits for room has no places yet.
func (b *opening) takeRoom(ctx context.Context, owner string, each map[string]need, count int, wait time.Duration) error {
	r := b.r
	if err := r.places(owner, count, false); err != nil {
		return err
	}
	q := &request{owner: owner, servers: each, count: count}
	if err := r.takeRoom(ctx, q, wait); err != nil {
		return err
	}
	if err := r.places(owner, count, true); err != nil {
		r.budget.release(owner, q.total())
		return err
	}
	return nil
}

// places refuses more sessions of one owner than there may be; with take they
// count from then on.
func (r *Registry) places(owner string, count int, take bool) error {
	cfg := r.Catalog().Config.Sessions
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errStopping
	case cfg.Max > 0 && r.opened+count > cfg.Max:
		return quota(fmt.Sprintf("%d sessions are open and %d may be; close some, or raise sessions.max", r.opened, cfg.Max))
	case cfg.PerPrincipal > 0 && r.perOwner[owner]+count > cfg.PerPrincipal:
		return quota(fmt.Sprintf("you have %d sessions open and may have %d; close some, or have sessions.per_principal raised", r.perOwner[owner], cfg.PerPrincipal))
	case take:
		r.opened += count
		r.perOwner[owner] += count
	}
	return nil
}

func quota(message string) error {
	return &api.Error{Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true, RetryAfter: 5, Message: message}
}

// uncount gives places of opened sessions back.
func (r *Registry) uncount(owner string, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened -= count
	if r.perOwner[owner] -= count; r.perOwner[owner] <= 0 {
		delete(r.perOwner, owner)
	}
}

// add puts one more session on its way.
func (b *opening) add(owner, parent, pin string, f facts, each map[string]need) *Session {
	f.Rev = 1 // it has a folder
	s := b.r.newSession(cmp.Or(b.id, newID()), owner, KindOpened, time.Now().UTC(), f)
	if b.own != nil {
		s.own = b.own
	}
	token, hash := newToken()
	s.Parent, s.servers, s.memberOptions, s.token, s.reserved = parent, f.Servers, f.Members, hash, maps.Clone(each)
	s.pin.Store(&pin)
	b.children, b.tokens = append(b.children, s), append(b.tokens, token)
	return s
}

// parallel is how many sessions are made at once.
const parallel = 16

// make makes all of it, or undoes what it has made.
func (b *opening) make(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			b.undo(ctx)
		}
	}()
	// The last one may use up what the others need, so it comes after them.
	if err := b.each(ctx, b.take, b.seed); err != nil {
		return b.r.snapshotLost(b.snapshot, err)
	}
	if err := b.each(ctx, false, b.start); err != nil {
		return err
	}
	return b.register(ctx)
}

// each does something for all children, several at once, until one fails.
func (b *opening) each(ctx context.Context, lastAlone bool, do func(context.Context, *Session, bool) error) error {
	last := len(b.children) - 1
	if last == 0 {
		return do(ctx, b.children[0], true)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var caught panics
	places := make(chan struct{}, parallel)
	for i, s := range b.children {
		if i == last && lastAlone {
			wg.Wait()
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			defer caught.catch()
			if ctx.Err() == nil {
				if err := do(ctx, s, i == last); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	caught.raise()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// seed makes the states that a session begins with: those that it carries, and
// those for which it has a template of its own, which may be gone later.
func (b *opening) seed(ctx context.Context, s *Session, last bool) error {
	if err := recordOfSession(b.r.o.States, s.ID).begin(nil); err != nil {
		return err
	}
	var work []func() error
	carried := make(map[string]bool)
	spaces := make(map[int]workspace.Frozen)
	if b.from != nil {
		spaces = b.from.spaces()
		for _, m := range b.from.Members {
			carried[m.Server] = true
			work = append(work, func() error { return b.seedMember(ctx, s, &m, last) })
		}
	}
	for _, n := range s.spaceOrdinals() {
		seed, wanted := s.newSpace(n), false
		if w, ok := spaces[n]; ok {
			seed, wanted = workspace.Seed{Folder: seed.Folder, From: &w, Take: last && b.take}, true
		}
		for _, e := range s.members() {
			wanted = wanted || e.Ordinal == n && e.SpaceTemplate != ""
		}
		if wanted {
			work = append(work, func() error {
				dir := s.stateDir(spaceName(n))
				mark, err := s.seedWorkspace(ctx, dir, seed)
				if err != nil {
					return err
				}
				return b.r.noteState(ctx, s, dir, mark)
			})
		}
	}
	for _, e := range s.members() {
		if s.templated(e) && e.SpaceTemplate == "" && e.Keeper() != nil && !carried[e.ID] {
			work = append(work, func() error {
				s.beginsWith(e.Template, e.Base(), e)
				return b.seedState(ctx, s, e, driver.Source{})
			})
		}
	}
	return joined(atAll(len(work), func(i int) error { return work[i]() }))
}

// seedMember makes the state of one member that is carried.
func (b *opening) seedMember(ctx context.Context, s *Session, m *frozenMember, last bool) error {
	e := s.Catalog().Entry(m.Server)
	if e == nil || !e.Own() {
		return nil // left out on purpose
	}
	if e.Keeper() == nil || e.Driver != m.Snapshot.Driver {
		return &api.Error{
			Kind: api.KindInvalid, Server: e.ID,
			Message: fmt.Sprintf("server %q is run by driver %q, and the snapshot was made by %q", e.ID, e.Driver, m.Snapshot.Driver),
		}
	}
	src := driver.Source{From: &m.Snapshot, Take: last && b.take && m.spare == nil}
	return b.seedState(ctx, s, e, src)
}

func (b *opening) seedState(ctx context.Context, s *Session, e *catalog.Entry, src driver.Source) error {
	dir := s.stateDir(e.ID)
	mark, err := b.r.seed(ctx, e, s.ID, dir, src)
	if err != nil {
		return err
	}
	return b.r.noteState(ctx, s, dir, mark)
}

// carried names the members that begin with what was frozen, and ran or were
// suspended then. What did neither starts with its first call: it may be one that
// can't be started at all.
func (b *opening) carried() map[string]bool {
	carried := make(map[string]bool)
	if b.from != nil {
		for _, m := range b.from.Members {
			carried[m.Server] = !m.Idle
		}
	}
	return carried
}

// starts reports whether a member must run before its session is handed out: one
// that was carried, unless nothing can go wrong with it, an eager one, unless it
// failed in the parent too, and with eager all. What the rules keep from the owner
// is not started.
func (b *opening) starts(e *catalog.Entry, carried bool) bool {
	on, _ := e.On()
	return on && e.Own() && b.r.mayStart(b.owner, e.ID) && (b.eager || e.Eager && !b.failed[e.ID] || carried && !e.Runner.Info().Light)
}

// start starts what must run. It says of each member what went wrong. Room that
// was reserved for others is kept only for built-in servers, which start later.
func (b *opening) start(ctx context.Context, s *Session, _ bool) error {
	carried := b.carried()
	var starting []*catalog.Entry
	for _, e := range s.members() {
		if b.starts(e, carried[e.ID]) {
			starting = append(starting, e)
		} else if on, _ := e.On(); on && b.failed[e.ID] && e.Eager && b.r.mayStart(b.owner, e.ID) {
			if _, _, err := s.Upstream(e.ID); err != nil { // which is tried by itself
				return err
			}
		}
	}
	err := joined(atAll(len(starting), func(i int) error {
		up, _, err := s.Upstream(starting[i].ID)
		if err == nil {
			_, err = up.Conn(ctx)
		}
		return err
	}))
	s.unreserve(func(member string) bool {
		e := s.Catalog().Entry(member)
		return e == nil || !e.Runner.Info().Light
	})
	return err
}

// register writes the sessions down and lets them be found.
func (b *opening) register(ctx context.Context) error {
	r := b.r
	recs := make([]store.Session, 0, len(b.children))
	events := make([]store.Event, 0, len(b.children)+1)
	for _, s := range b.children {
		rec, err := s.record(s.known())
		if err != nil {
			return err
		}
		rec.Servers = r.catalogs.Written(s.pinned())
		recs = append(recs, rec)
		events = append(events, b.events(s)...)
	}
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return errStopping
	}
	err := atOnce(len(recs), func(i int) error { return recordOfSession(r.o.States, recs[i].ID).begin(keptOf(recs[i])) })
	if err != nil {
		return err
	}
	if err := r.o.Shared.PutSessions(ctx, recs...); err != nil {
		return fmt.Errorf("recording the session: %w", err)
	}
	for _, s := range b.children {
		if err := recordOfSession(r.o.States, s.ID).settle(); err != nil {
			return err
		}
	}
	if err := r.o.Shared.PutEvents(ctx, append(events, b.besides...)...); err != nil {
		r.o.Log.Warn("what happened to a session is not recorded", "err", err)
	}
	r.o.Hub.Wrote()
	r.mu.Lock()
	if r.closed { // it would not end them
		r.mu.Unlock()
		return errStopping
	}
	for _, s := range b.children {
		if l := s.lease; l != nil && l.over {
			r.mu.Unlock()
			return noLease(l.ID) // its end was not told of them
		}
	}
	for _, s := range b.children {
		r.sessions[s.ID] = s
		r.tokens[s.token] = tokenHolder{s: s}
	}
	r.mu.Unlock()
	for _, s := range b.children {
		s.expireAt(s.known().Expires)
	}
	return nil
}

// undo takes everything back.
func (b *opening) undo(ctx context.Context) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	ids := make([]string, 0, len(b.children))
	var wg sync.WaitGroup
	for _, s := range b.children {
		ids = append(ids, s.ID)
		wg.Go(func() { b.r.removeState(ctx, s) })
	}
	wg.Wait()
	for _, id := range ids {
		if err := b.r.o.Shared.DeleteSession(ctx, id); err != nil {
			b.r.o.Log.Warn("session not forgotten", "session", id, "err", err)
		}
	}
	b.r.unopen(b.children...)
}

// unopen gives back what opened sessions took.
func (r *Registry) unopen(all ...*Session) {
	for _, s := range all {
		if s.Kind == KindOpened {
			r.uncount(s.Owner, 1)
			s.unreserve(nil)
		}
	}
}

// removeState ends what a session has and removes what it remembers.
func (r *Registry) removeState(ctx context.Context, s *Session) {
	if err := recordOfSession(r.o.States, s.ID).markRemoved(); err != nil {
		r.o.Log.Warn("the folder of a session is not marked as one to be removed", "session", s.ID, "err", err)
	}
	r.finish(s, (*upstream.Upstream).Close)
	shares, members := s.known().Shares, s.members()
	s.eraseLeft(ctx)
	_ = atOnce(len(members), func(i int) error {
		e := members[i]
		if origin := shares[e.ID]; origin != "" {
			r.leaveJoint(ctx, origin, e, s.ID)
		} else if e.Keeper() != nil {
			r.erase(ctx, e, s.stateDir(e.ID))
		}
		return nil
	})
	s.closeWorkspaces(s.spaces.take())
	spaces := s.spaceOrdinals()
	_ = atOnce(len(spaces), func(i int) error {
		s.eraseWorkspace(ctx, s.stateDir(spaceName(spaces[i])))
		return nil
	})
	r.clearHome(s.ID)
	r.past.add(s)
}
