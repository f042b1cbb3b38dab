package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// Kinds of sessions.
const (
	KindOpened  = api.SessionOpened  // by a request, or by a fork
	KindDefault = api.SessionDefault // a principal's, by a name or by default, or that of all anonymous callers
	KindClient  = api.SessionClient  // of one client connection, and ends with it
)

// A Session owns instances of the session-scoped servers and shares the shared
// ones. Its methods may run at once.
type Session struct {
	ID            string
	Owner         string
	Kind          string
	Parent        string // the session it was forked from
	Created       time.Time
	name          string                    // of a durable one; empty for a default session
	pin           atomic.Pointer[string]    // the servers it has, by their key; empty to follow the config
	servers       []string                  // only these of them; nil for all
	memberOptions map[string]catalog.Member // more about some of them
	token         string                    // sha256 of its token in hex; empty without; changed with changing and r.mu held
	lease         *lease                    // nil for none
	minted        map[string]*minted        // further tokens, by id; guarded by r.mu
	// pinnedOwner is what the edge needs to let its token in.
	pinnedOwner []byte
	// caps are the capabilities of the one client there is; nil when there may
	// be several.
	caps []byte

	r    *Registry
	own  *catalog.Home // of servers that stand in no config
	used atomic.Int64  // unix nanoseconds
	busy atomic.Int64  // how many use it right now, see InUse
	// recorded is the use that the store knows of.
	recorded atomic.Int64
	calls    atomic.Int64
	view     atomic.Pointer[catalog.Catalog]
	gate     gate

	// seeding is held while states are exchanged; makers of a state share it.
	seeding sync.RWMutex
	spaces  spaces
	auto    ring

	changing sync.Mutex // held while facts are written down

	saw sawTools

	mu          sync.Mutex
	closed      bool      // nothing is joined any more: it has ended, or the gateway is stopping
	ended       time.Time // when its end began to be written down; zero before
	facts       facts
	expiry      *time.Timer // at the end of its ttl; nil for none
	unsaved     bool        // a damage is not written down yet
	knownDamage sync.Map    // damage of stored data that was marked
	makes       sync.Map    // chan struct{}, by member: held while its state is made
	parts       map[string]*part
	ending      map[string][]chan struct{} // retired parts, by server
	watchers    map[*watch]struct{}
	given       map[givenList][32]byte // lists that clients were given from what is kept
	ahead       map[string]*ahead      // copies of members, by member
	reserved    map[string]need        // room for members that have not started, by member
}

// A part is a session's hold on one server.
type part struct {
	up     *upstream.Upstream
	unhear func()
	ended  chan struct{} // closed when one that was retired is over; nil before
	// borrowed says that it is the default session's; see implicit.go.
	borrowed bool
	inline   bool // the server stands in no config
}

// A Watcher hears what the servers of a session say outside of any call.
type Watcher interface {
	Note(server, method string, params []byte)
	// Ask puts a server's request to the client behind the watcher; false when
	// it can't be.
	Ask(ctx context.Context, server, method string, params []byte) (upstream.Reply, bool)
	// CanAsk reports whether there is a client to ask.
	CanAsk(server string) bool
	// Client is the key that the client's calls have; empty for one that only
	// listens.
	Client() string
}

type watch struct{ w Watcher }

// Catalog returns the servers as this session sees them now.
func (s *Session) Catalog() *catalog.Catalog {
	cur, pin := s.r.Catalog(), s.pinned()
	if pin == "" && len(s.servers) == 0 && len(s.memberOptions) == 0 {
		return cur
	}
	if v := s.view.Load(); v != nil && v.Current(cur) && v.Of(pin) {
		return v
	}
	v := s.r.catalogs.View(cur, pin, s.servers, s.memberOptions, s.own)
	s.view.Store(v)
	return v
}

// pinned is the key of the servers that the session has; empty where it follows the
// config.
func (s *Session) pinned() string {
	if pin := s.pin.Load(); pin != nil {
		return *pin
	}
	return ""
}

// SetCapabilities says what the one client of the session can do, before its
// servers are greeted. Sessions that may have several clients ignore it.
func (s *Session) SetCapabilities(caps []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Kind == KindClient {
		s.caps = caps
	}
}

// particular reports whether the session's servers are greeted for one client,
// with what that can do.
func (s *Session) particular() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caps != nil
}

// starts reports whether the rules let a member be started for the session's
// owner. One that is kept from the owner is carried by forks and snapshots, and
// runs only where a caller who may use it calls it.
func (s *Session) starts(member string) bool {
	return s.r.mayStart(Owner{Name: s.Owner, Pinned: s.pinnedOwner}, member)
}

func (r *Registry) mayStart(o Owner, member string) bool {
	return r.Catalog().MayStart(o.Name, o.Pinned, member)
}

// Touch notes that the session is in use.
func (s *Session) Touch() { s.used.Store(time.Now().UnixNano()) }

// InUse keeps the session from being taken for unused, however long that lasts,
// until done is called. Done must be called once.
func (s *Session) InUse() (done func()) {
	s.busy.Add(1)
	return func() {
		s.Touch()
		s.busy.Add(-1)
	}
}

// Used returns when the session was last in use, which may be now.
func (s *Session) Used() time.Time {
	if s.busy.Load() > 0 {
		return time.Now()
	}
	return time.Unix(0, s.used.Load())
}

// gone is the error of calls after the end.
func (s *Session) gone() error {
	return &api.Error{Kind: api.KindRefused, Status: http.StatusNotFound, Message: fmt.Sprintf("session %s is closed", s.ID)}
}

// whyExpired is why a session with a time to live ends.
const whyExpired = "its time to live was over"

// whyHeld is why a session ends that was held by a gateway.
const whyHeld = "the gateway that held it has ended"

// Expired is the error of calls after the session's time to live, or after the end of its
// lease; nil before. The session ends a little later.
func (s *Session) Expired() error {
	s.mu.Lock()
	at, why := s.facts.Expires, whyExpired
	s.mu.Unlock()
	switch over := s.lease.endedAt(); {
	case !over.IsZero():
		at, why = over, whyLease
	case at.IsZero() || time.Now().Before(at):
		return nil
	}
	return &api.Error{Kind: api.KindLost, Status: http.StatusGone, Message: fmt.Sprintf("session %s was closed at %s: %s", s.ID, at.UTC().Format(time.RFC3339), why)}
}

// Enter lets a call in to a server of the session, waiting while the session is
// being forked. What is done for the call is done with the returned context;
// leave must be called when it is over. What others share has no gate.
func (s *Session) Enter(ctx context.Context, server, tool string) (_ context.Context, leave func(), err error) {
	if err := s.Expired(); err != nil {
		return nil, nil, err
	}
	e := s.Catalog().Entry(server)
	if e == nil || !e.Controls() { // what acts on sessions can mend this one
		if err := s.refuses(server); err != nil {
			return nil, nil, err
		}
	}
	gated := e != nil && e.Own() && e.Fork != config.ForkShare
	if gated && tool != "" {
		if err := s.r.beforeCall(ctx, s, server, tool); err != nil {
			return nil, nil, err
		}
	}
	if tool != "" {
		s.calls.Add(1)
	}
	if !gated {
		return ctx, func() {}, nil
	}
	ctx, out, err := s.gate.enter(ctx, server+s.r.Catalog().Config.Separator+tool)
	if err != nil || len(s.Catalog().Ahead) == 0 {
		return ctx, out, err
	}
	return ctx, func() {
		out()
		s.copyAhead()
	}, nil
}

// Park says whether the call of a context, which Enter gave, waits for a person:
// meanwhile the session can't be forked.
func (s *Session) Park(ctx context.Context, parked bool) { s.gate.park(ctx, parked) }

// CallID names the call that a context of Enter's belongs to, while it runs;
// empty where the session has no gate for it.
func (s *Session) CallID(ctx context.Context) string {
	if e, _ := ctx.Value(ridesOn{&s.gate}).(*entry); e != nil {
		return e.id
	}
	return ""
}

// Upstream returns the session's hold on a server, starting nothing yet.
func (s *Session) Upstream(id string) (up *upstream.Upstream, e *catalog.Entry, err error) {
	// Changes may come one after the other; each makes what was looked up stale.
	for range 100 {
		if up, e, err = s.hold(id); !errors.Is(err, errChanged) {
			return up, e, err
		}
	}
	return nil, e, &api.Error{Kind: api.KindRefused, Server: id, Retryable: true, Message: fmt.Sprintf("server %q is being changed; try again", id)}
}

// errChanged reports that the catalog changed while a server was looked up.
var errChanged = errors.New("the server was just changed")

func (s *Session) hold(id string) (*upstream.Upstream, *catalog.Entry, error) {
	e := s.Catalog().Entry(id)
	if e == nil {
		return nil, nil, s.notThere(id)
	}
	if on, why := e.On(); !on {
		return nil, e, &api.Error{Kind: api.KindRefused, Server: id, Message: fmt.Sprintf("server %q is off: %s", id, why)}
	}
	if s.borrows(e) {
		return s.borrow(e)
	}
	s.mu.Lock()
	p := s.parts[id]
	s.mu.Unlock()
	if p != nil {
		return p.up, e, nil
	}
	return s.join(e)
}

func (s *Session) join(e *catalog.Entry) (*upstream.Upstream, *catalog.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The catalog may have changed since the entry was looked up; what is made
	// from an old one after a reload would never be retired.
	if now := s.Catalog().Entry(e.ID); now == nil || now.Hash != e.Hash {
		return nil, e, errChanged
	}
	if s.closed {
		return nil, e, s.gone()
	}
	if p := s.parts[e.ID]; p != nil {
		return p.up, e, nil
	}
	p := &part{inline: e.Inline}
	switch origin := s.facts.Shares[e.ID]; {
	case e.Shares():
		up, err := s.r.sharedUpstream(e)
		if err != nil {
			return nil, e, err
		}
		p.up = up
	case origin != "":
		up, err := s.r.useJoint(origin, e, s)
		if err != nil {
			return nil, e, err
		}
		p.up = up
	default:
		p.up = s.r.newUpstream(e, owned{s: s}, nil)
	}
	if len(s.watchers) > 0 {
		p.unhear = p.up.Watch(&ear{s: s, server: e.ID})
	}
	s.parts[e.ID] = p
	return p.up, e, nil
}

// Peek returns the hold on a server if there is one already.
func (s *Session) Peek(id string) *upstream.Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts[id]; p != nil {
		return p.up
	}
	return nil
}

// retire takes the parts of stale servers out and returns those that were the
// session's own.
func (s *Session) retire(stale map[string]bool) []*part {
	var copies []*spare
	defer func() { s.r.stock.retire(copies...) }() // without the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*part
	for id, p := range s.parts {
		if !stale[id] {
			continue
		}
		delete(s.parts, id)
		copies = append(copies, s.forgetSpare(id))
		if p.unhear != nil {
			p.unhear()
		}
		if s.owns(p) {
			p.ended = make(chan struct{})
			s.ending[id] = append(slices.DeleteFunc(s.ending[id], isOver), p.ended)
			out = append(out, p)
		}
	}
	return out
}

// owns reports whether a part is the session's own, and ends with it.
func (s *Session) owns(p *part) bool {
	return !p.borrowed && !s.r.isShared(p.up) && !s.r.isJoint(p.up)
}

func isOver(ended chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// waitEnded waits for the end of the replaced parts of a server, of a session
// or, with nil, of the shared one: two never work on one state. Where there is
// no state they may run at once.
func (r *Registry) waitEnded(ctx context.Context, e *catalog.Entry, s *Session) error {
	if !e.Remembers() {
		return nil
	}
	var ending []chan struct{}
	if s != nil {
		s.mu.Lock()
		ending = slices.Clone(s.ending[e.ID])
		s.mu.Unlock()
	} else {
		r.mu.Lock()
		ending = slices.Clone(r.ending[e.ID])
		r.mu.Unlock()
	}
	for _, ended := range ending {
		select {
		case <-ended:
		case <-ctx.Done():
			return &api.Error{Kind: api.KindTimeout, Server: e.ID, Retryable: true, Message: fmt.Sprintf("server %q: its instance from before the config changed still has running calls", e.ID)}
		}
	}
	return nil
}

// Watch adds a watcher until stop is called.
func (s *Session) Watch(w Watcher) (stop func()) {
	k := &watch{w}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[k] = struct{}{}
	if len(s.watchers) == 1 {
		for id, p := range s.parts {
			if p.unhear == nil {
				p.unhear = p.up.Watch(&ear{s: s, server: id})
			}
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, k)
		if len(s.watchers) > 0 {
			return
		}
		for _, p := range s.parts {
			if p.unhear != nil {
				p.unhear()
				p.unhear = nil
			}
		}
	}
}

func (s *Session) watching() []Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Watcher, 0, len(s.watchers))
	for k := range s.watchers {
		out = append(out, k.w)
	}
	return out
}

// catalogChanged tells the clients that there may be other servers now.
func (s *Session) catalogChanged() {
	for _, w := range s.watching() {
		for _, m := range []string{wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged} {
			w.Note("", m, nil)
		}
	}
}

// ear is the session's watcher at one server.
type ear struct {
	s      *Session
	server string
}

func (e *ear) Note(from upstream.Origin, method string, params []byte) {
	for _, w := range e.s.watching() {
		if from.Client == "" || w.Client() == from.Client {
			w.Note(e.server, method, params)
		}
	}
}

func (e *ear) CanAsk() bool {
	for _, w := range e.s.watching() {
		if w.CanAsk(e.server) {
			return true
		}
	}
	return false
}

// Ask implements upstream.Watcher. A request that no call of the client caused
// is put to it only where it is the one client that can be meant.
func (e *ear) Ask(ctx context.Context, from upstream.Origin, method string, params []byte) (upstream.Reply, bool) {
	var able []Watcher
	for _, w := range e.s.watching() {
		if w.CanAsk(e.server) && (!from.Called || w.Client() == from.Client) {
			able = append(able, w)
		}
	}
	switch {
	case len(able) == 0:
		return upstream.Reply{}, false
	case len(able) > 1, from.Client != "" && able[0].Client() != from.Client:
		return upstream.Refuse(method, "it can't be told which client's call caused this request"), true
	}
	return able[0].Ask(ctx, e.server, method, params)
}

// Announce tells the session's clients something as if the server had said it.
func (s *Session) Announce(server, method string) {
	(&ear{s: s, server: server}).Note(upstream.Origin{}, method, nil)
}
