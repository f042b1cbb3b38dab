package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
)

// Events is the one feed of what happens: events of sessions and runs, from the store,
// calls, from the journal, and how servers are doing, which is stored nowhere.
//
// A position in the feed is a pair: the number of an event and the Seq of a call. All up
// to both was told. Each of the two sources is told in its own order. An event has the
// Seq of the last call before it, and is told after that call.
type Events struct {
	*core
	sessions *Sessions
	journal  *Journal
	feed     store.Feed
	hub      *store.Hub
	place    string // begins every position
}

// An EventFilter chooses events. Zero fields choose all.
type EventFilter struct {
	Types   []string // types or groups of package api
	Session string
	Run     string // events of this run alone
	Agent   string // events of runs of this agent alone
	// After is the position to go on from, or api.EventsFromStart; empty for now.
	After string
	// Last begins with so many of the last durable events, where After is empty.
	Last int
}

// kinds are the events of the store that have a type of their own, by their kind there.
var kinds = map[string]string{
	"opened": api.EventSessionOpened, "forked": api.EventSessionForked, "snapshot": api.EventSessionSnapshot,
	"rewound": api.EventSessionRewound, "damaged": api.EventSessionDamaged, "closed": api.EventSessionClosed,
}

// placeOf is what positions of a gateway begin with.
func placeOf(gateway string) string { return strings.TrimPrefix(gateway, "gw_") }

// A position is where a follower is in the feed.
type position struct{ event, call int64 }

func (c *Events) write(p position) string {
	return c.place + "-" + strconv.FormatInt(p.event, 16) + "-" + strconv.FormatInt(p.call, 16)
}

// read takes a position apart; ours is false for one of another gateway.
func (c *Events) read(text string) (p position, ours bool, err error) {
	wrong := Invalid("after must be the id of an event, or %s; %q is neither", api.EventsFromStart, Clip(text))
	parts := strings.Split(text, "-")
	if len(parts) != 3 {
		return p, false, wrong
	}
	var errs [2]error
	p.event, errs[0] = strconv.ParseInt(parts[1], 16, 64)
	p.call, errs[1] = strconv.ParseInt(parts[2], 16, 64)
	if errs[0] != nil || errs[1] != nil || p.event < 0 || p.call < 0 {
		return p, false, wrong
	}
	return p, parts[0] == c.place, nil
}

// checkTypes refuses what is neither a type nor a group.
func checkTypes(types []string) error {
	for _, t := range types {
		if !slices.ContainsFunc(api.EventTypes, func(has string) bool { return matches(t, has) }) {
			return Invalid("there are no events of the type %q; there are %s, and the groups session and run", Clip(t), strings.Join(api.EventTypes, ", "))
		}
	}
	return nil
}

// matches reports whether a type is, or belongs to, what a filter names.
func matches(named, typ string) bool {
	return typ == named || strings.HasPrefix(typ, named) && typ[len(named)] == '.'
}

func (f *EventFilter) chooses(typ string) bool {
	return len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t string) bool { return matches(t, typ) })
}

// Follow begins to follow the feed as a principal may see it: its own sessions, runs and
// calls; with the role of a viewer those of all, without contents; with the token of a
// session what happens in that session. The caller must Close the stream.
func (c *Events) Follow(ctx context.Context, who identity.Principal, f EventFilter) (*EventStream, error) {
	if err := checkTypes(f.Types); err != nil {
		return nil, err
	}
	s := &EventStream{c: c, who: who, f: f, all: access.All(who), seen: -1}
	if who.Session != "" {
		if f.Session != "" && f.Session != who.Session {
			return nil, NoSession(f.Session)
		}
		s.f.Session = who.Session
	}
	if s.f.Session != "" {
		_, in, err := c.sessions.Seen(ctx, who, s.f.Session)
		if err != nil {
			return nil, err
		}
		s.owner, s.within = &in.Owner, &access.Thing{Owner: in.Owner, Session: in.ID}
	} else if !s.all {
		s.owner = &who.Name
	}
	ofRuns := f.Run != "" || f.Agent != ""
	if !ofRuns {
		for kind, typ := range kinds {
			if f.chooses(typ) {
				s.kinds = append(s.kinds, kind)
			}
		}
		slices.Sort(s.kinds)
	}
	if slices.ContainsFunc(api.EventTypes, func(t string) bool { return matches("run", t) && f.chooses(t) }) {
		s.kinds = append(s.kinds, store.EventRun)
	}
	s.calls = c.journal.journal != nil && !ofRuns && f.chooses(api.EventCall)
	s.servers = !ofRuns && s.f.Session == "" && f.chooses(api.EventServer)
	s.woken, s.leave = c.hub.Follow()
	if err := s.begin(ctx); err != nil {
		s.leave()
		return nil, err
	}
	return s, nil
}

// begin finds where the stream begins.
func (s *EventStream) begin(ctx context.Context) (err error) {
	c, j := s.c, s.c.journal.journal
	_, s.passed, _ = c.hub.Passing(0)
	page, err := c.feed.Feed(ctx, s.filter(func(f *store.FeedFilter) { f.Newest, f.Limit = true, max(1, s.f.Last) }))
	if err != nil {
		return err
	}
	s.eventsTo, s.dropped = page.Last, page.Dropped
	if j != nil {
		s.tail = j.Tail()
	}
	switch after := s.f.After; {
	case after == api.EventsFromStart:
		if s.eventsTo = 0; j != nil {
			s.tail = j.Oldest()
		}
	case after != "":
		p, ours, err := c.read(after)
		if err != nil {
			return err
		}
		known := ours && p.event <= page.Last
		if known && j != nil {
			tail, there, err := j.TailAfter(ctx, p.call)
			if err != nil {
				return err
			}
			if known = there; known {
				s.tail = tail
			}
		}
		if !known {
			s.gaps = append(s.gaps, api.LostAll)
			break
		}
		s.eventsTo, s.dropped = p.event, 0
	case s.f.Last > 0:
		if err := s.beginWith(ctx, page.Events); err != nil {
			return err
		}
	}
	if j != nil {
		s.tail.Of(s.callsOf(), s.f.Session)
	}
	return nil
}

// beginWith begins with as many of the last events and calls as were asked for.
func (s *EventStream) beginWith(ctx context.Context, events []store.Event) error {
	var calls []journal.Entry
	if s.calls {
		var err error
		calls, err = s.c.journal.journal.List(ctx, store.CallFilter{Principal: s.callsOf(), Session: s.f.Session, Limit: s.f.Last})
		if err != nil {
			return err
		}
		calls = slices.DeleteFunc(calls, func(e journal.Entry) bool { return !access.At(s.who, callOf(&e), s.within).Row })
		slices.Reverse(calls)
	}
	events = slices.DeleteFunc(events, func(e store.Event) bool {
		_, shown := s.shown(s.who, &e)
		return !shown
	})
	for len(events)+len(calls) > s.f.Last {
		if len(calls) == 0 || len(events) > 0 && events[0].At.Before(calls[0].At) {
			events = events[1:]
		} else {
			calls = calls[1:]
		}
	}
	if len(events) > 0 {
		s.eventsTo = events[0].N - 1
	}
	if len(calls) > 0 {
		tail, ok, err := s.c.journal.journal.TailAfter(ctx, calls[0].Seq-1)
		if err != nil || !ok {
			return cmp.Or(err, fmt.Errorf("the journal has no place before call %s", calls[0].ID))
		}
		s.tail = tail
	}
	return nil
}

// callsOf is whose calls are told; nil for those of all principals.
func (s *EventStream) callsOf() *string {
	if s.all || s.within != nil {
		return nil
	}
	return &s.who.Name
}

// filter is what is asked of the store.
func (s *EventStream) filter(change func(*store.FeedFilter)) store.FeedFilter {
	f := store.FeedFilter{Owner: s.owner, Session: s.f.Session, Run: s.f.Run, Kinds: s.kinds}
	if f.Kinds == nil {
		f.Kinds = []string{} // none, and not all
	}
	change(&f)
	return f
}
