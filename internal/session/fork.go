package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// ForkOptions say what children a fork makes. Durations are as in OpenOptions;
// labels come on top of the parent's.
type ForkOptions struct {
	Count     int
	Labels    map[string]string
	TTL, Idle time.Duration
	Wait      time.Duration
	// Pinned is what lets the children's tokens in, as in Owner, where the parent
	// has none because it has no token itself.
	Pinned   json.RawMessage
	Creation string // as in OpenOptions
}

// Forked is what came of a fork.
type Forked struct {
	Children []*Session
	Tokens   []string // of the children, in their order
	Call     int64    // the Seq of the last call that the children remember
	Paused   time.Duration
}

// Fork makes children of a session, each with a state of its own that is the
// parent's of one moment: all of them, or none. The parent goes on as soon as
// its state is taken down; the children are made from that.
func (r *Registry) Fork(ctx context.Context, s *Session, o ForkOptions) (*Forked, error) {
	if o.Count < 1 {
		return nil, &api.Error{Kind: api.KindInvalid, Message: "count must be at least 1"}
	}
	if err := s.gate.outside(ctx); err != nil {
		return nil, err
	}
	// The servers may be changed while the fork waits; each time it begins again.
	for range 10 {
		if forked, err := r.fork(ctx, s, o); !errors.Is(err, errChanged) {
			return forked, err
		}
	}
	return nil, &api.Error{Kind: api.KindRefused, Retryable: true, Message: fmt.Sprintf("the servers of session %s are being changed; try again", s.ID)}
}

func (r *Registry) fork(ctx context.Context, s *Session, o ForkOptions) (*Forked, error) {
	pin := s.pinned()
	carried, _, err := s.carried(toFork)
	if err != nil {
		return nil, err
	}
	cfg := r.Catalog().Config.Sessions
	owner := Owner{Name: s.Owner, Pinned: s.pinnedOwner}
	if len(owner.Pinned) == 0 {
		owner.Pinned = o.Pinned
	}
	b := &opening{r: r, owner: owner, take: true, failed: s.failed()}
	each := b.needsOf(s, carried)
	wait, explain := r.patience(o.Wait, cfg.Wait)
	// Before the parent has to wait for anything.
	if err := b.takeRoom(ctx, s.Owner, each, o.Count, wait); err != nil {
		return nil, explain(err)
	}
	giveBack := func() {
		r.uncount(s.Owner, o.Count)
		q := request{servers: each, count: o.Count}
		r.budget.release(s.Owner, q.total())
	}
	shared := s.usedShared()
	wait, explain = r.patience(o.Wait, cfg.ForkWait)
	defer s.expect(o.Count)()
	dir := filepath.Join(r.snapshotHome(), "tmp_"+newID()[len("ses_"):])
	m, err := s.freeze(ctx, dir, wait, toFork)
	if err != nil {
		giveBack()
		return nil, explain(err)
	}
	defer func() {
		gone, cancel := afterwards(ctx)
		defer cancel()
		r.discard(gone, &m.frozen, dir)
	}()
	defer m.letGo()
	if pin != "" && m.pin != pin {
		giveBack()
		return nil, errChanged
	}
	b.from = &m.frozen
	parent := s.known()
	f := facts{
		Creation: o.Creation, Lease: parent.Lease, Listed: parent.Listed,
		Owner: owner.Pinned, Labels: maps.Clone(parent.Labels), Idle: parent.Idle, Depth: parent.Depth + 1,
		Servers: s.servers, Members: s.memberOptions, Auto: parent.Auto, From: parent.From, Damaged: m.Damaged, Owed: m.Owed, Used: m.Used,
	}
	if f.Labels == nil && len(o.Labels) > 0 {
		f.Labels = make(map[string]string, len(o.Labels))
	}
	maps.Copy(f.Labels, o.Labels)
	if o.Idle != 0 {
		f.Idle = o.Idle
	}
	if ttl := choose(o.TTL, cfg.TTL); ttl > 0 {
		f.Expires = time.Now().Add(ttl)
	}
	var ids []string
	for range o.Count {
		c := f
		c.Labels = maps.Clone(f.Labels)
		child := b.add(s.Owner, s.ID, m.pin, c, each)
		child.saw.last = s.saw.known()
		ids = append(ids, child.ID)
	}
	if len(m.Shared) > 0 {
		shares, err := s.shareWith(ctx, m.Shared, b.children)
		if err != nil {
			giveBack()
			return nil, err
		}
		for _, c := range b.children {
			c.facts.Shares, c.facts.Made = maps.Clone(shares), s.jointStates(shares)
		}
	}
	b.events = func(child *Session) []store.Event {
		e := r.event(child.ID, eventOpened, eventData{Parent: s.ID})
		e.Call = m.call
		return []store.Event{e}
	}
	forked := r.event(s.ID, eventForked, eventData{Children: ids})
	forked.Call = m.call
	b.besides = []store.Event{forked}
	if err := b.make(ctx); err != nil {
		return nil, fmt.Errorf("the fork was taken back: %w", err)
	}
	for server, inherit := range shared {
		if inherit(ids) {
			continue
		}
		for _, c := range b.children { // it ended just now
			r.damage(c, api.Damage{Server: server, Why: whyForked, Kept: api.KeptNothing}, true)
		}
	}
	s.Touch()
	return &Forked{Children: b.children, Tokens: b.tokens, Call: m.call, Paused: m.paused}, nil
}

// needsOf is what a child of a session needs: what it starts, and the built-in
// servers that run in the parent, which it starts later.
func (b *opening) needsOf(s *Session, carried []*catalog.Entry) map[string]need {
	each := make(map[string]need)
	for _, e := range s.members() {
		taken := slices.Contains(carried, e)
		up := s.Peek(e.ID)
		if b.starts(e, taken) || taken && up != nil && up.Status().Instance {
			each[e.ID] = needOf(e)
		}
	}
	return each
}

// failed are the members that could not be started, or have ended.
func (s *Session) failed() map[string]bool {
	out := make(map[string]bool)
	for _, e := range s.members() {
		if up := s.Peek(e.ID); up != nil {
			st := up.Status()
			out[e.ID] = st.State == api.StateFailed && !st.Unlisted
		}
	}
	return out
}
