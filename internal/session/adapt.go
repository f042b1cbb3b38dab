package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// The servers of an open session can be brought to another list:
//
//	joined   pinned as they are now; one that was there before, defined alike, finds what it remembered
//	kept     stay as they were pinned, whatever the list or the config says of them by now
//	gone     their instances end, with the calls in flight; what they remember stays until the session ends
//
// The gate is shut meanwhile, so that calls, forks, snapshots and rewinds have the old
// list or the new one. One write to the store makes the new one count. What was forked or
// frozen before keeps its list; a rewind brings states back and leaves the list as it is:
// a server that joined after the snapshot begins anew, and one that is gone has, when it
// comes back, what the snapshot has of it.

// AdaptOptions say what servers a session is to have.
type AdaptOptions struct {
	List    catalog.List
	Wait    time.Duration // for a fork, a snapshot or a rewind that runs; as in ForkOptions
	Secrets func()        // as in OpenOptions
}

// Adapted is what an Adapt changed, by the ids of servers.
type Adapted struct{ Joined, Gone []string }

// Adapt brings the servers of a session to a list. The same again changes nothing. Calls
// of a server that all sessions share end by themselves.
func (r *Registry) Adapt(ctx context.Context, s *Session, o AdaptOptions) (Adapted, error) {
	if !s.known().Listed {
		return Adapted{}, &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("the servers of session %s can't be changed: it was not opened with a list of its own", s.ID)}
	}
	if err := s.Expired(); err != nil {
		return Adapted{}, err
	}
	wait, explain := r.patience(o.Wait, r.Catalog().Config.Sessions.ForkWait)
	thaw, err := s.gate.stop(ctx, wait)
	if err != nil {
		return Adapted{}, explain(err)
	}
	defer thaw()
	before := s.pinned()
	list, err := r.listOf(ctx, before, nil)
	if err != nil {
		return Adapted{}, err
	}
	c, letGo, err := r.catalogs.Compose(r.Catalog(), list, o.List)
	if err != nil {
		return Adapted{}, err
	}
	defer r.dropServers(ctx, c.Key) // where it does not count
	defer letGo()
	if c.Same() {
		return Adapted{}, nil
	}
	if o.Secrets != nil && slices.ContainsFunc(c.Joined, func(n config.Server) bool { return n.Inline }) {
		o.Secrets()
	}
	if err := s.relist(ctx, c); err != nil {
		return Adapted{}, err
	}
	// It counts: the rest is done whether the caller waits or not.
	s.endGone(ctx, c)
	r.dropServers(ctx, before)
	s.joinEager(func(e *catalog.Entry) bool {
		return slices.ContainsFunc(c.Joined, func(n config.Server) bool { return n.ID == e.Base() })
	})
	s.catalogChanged()
	s.Touch()
	out := Adapted{Joined: idsOf(c.Joined), Gone: idsOf(c.Gone)}
	r.o.Log.Info("the servers of a session were changed", "session", s.ID, "joined", out.Joined, "gone", out.Gone)
	return out, nil
}

func idsOf(all []config.Server) []string {
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// relist writes the new list down, with what becomes of the states, and has it count.
func (s *Session) relist(ctx context.Context, c *catalog.Composed) error {
	var back []*leftServer
	remembers := make(map[string]bool)
	for _, gone := range c.Gone {
		remembers[gone.ID] = slices.ContainsFunc(s.membersOf(gone.ID), s.remembers)
	}
	trial := s.known() // a change that is begun can't be refused any more
	if _, err := s.moveOver(&trial, c, remembers); err != nil {
		return err
	}
	err := s.change(ctx, func(f *facts) {
		back, _ = s.moveOver(f, c, remembers)
		f.next = c.Key
	})
	for _, l := range back {
		for _, d := range l.Damaged {
			if err == nil {
				s.r.note(ctx, s.r.damageEvent(s.ID, d, ""))
			}
		}
	}
	return err
}

// moveOver changes the facts of a session whose list changes, and returns those that
// are back.
func (s *Session) moveOver(f *facts, c *catalog.Composed, remembers map[string]bool) (back []*leftServer, err error) {
	for _, gone := range c.Gone {
		if !remembers[gone.ID] {
			continue
		}
		if err := f.leave(gone, s.membersOf(gone.ID)); err != nil {
			return nil, err
		}
	}
	for _, joined := range c.Joined {
		if l := f.comeBack(joined, s.membersOf(joined.ID)); l != nil {
			back = append(back, l)
		}
	}
	return back, nil
}

// membersOf names the members that the session has of a server, or would have.
func (s *Session) membersOf(server string) []string {
	all := []string{server}
	for n := 1; n < s.memberOptions[server].Instances; n++ {
		all = append(all, catalog.MemberName(server, n))
	}
	return all
}

// remembers reports whether there is something of a member that must not be forgotten
// when it leaves.
func (s *Session) remembers(member string) bool {
	s.mu.Lock()
	f := s.facts
	_, owed := f.Owed[member]
	_, unfit := f.Unfit[member]
	known := s.parts[member] != nil || owed || unfit || f.Called[member] || f.Shares[member] != "" || f.States[member] != "" ||
		slices.ContainsFunc(f.Damaged, func(d api.Damage) bool { return d.Server == member })
	s.mu.Unlock()
	return known || s.hasState(member)
}

// endGone ends what runs of servers that the session has no longer. Memory is kept in
// their states where it can be.
func (s *Session) endGone(ctx context.Context, c *catalog.Composed) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	gone := make(map[string]bool)
	for _, server := range c.Gone {
		for _, m := range s.membersOf(server.ID) {
			gone[m] = true
		}
	}
	parts := s.retire(gone)
	s.mu.Lock()
	maps.DeleteFunc(s.given, func(l givenList, _ [32]byte) bool { return gone[l.server] })
	s.mu.Unlock()
	_ = atOnce(len(parts), func(i int) error {
		parts[i].up.Suspend(ctx, whyTaken)
		close(parts[i].ended)
		return nil
	})
	s.unreserve(func(member string) bool { return gone[member] })
	for _, server := range c.Gone {
		if server.Inline {
			s.own.Drop(server.ID)
			s.r.catalogs.DropViews(s.own)
		}
	}
	// What was lost with them is noted by now.
	s.remark(func(f *facts) bool {
		called := false
		for i, l := range f.Left {
			if len(l.Called) > 0 {
				called = true
				f.changeLeft(i, func(l *leftServer) { l.Called = nil })
			}
		}
		return called
	})
}
