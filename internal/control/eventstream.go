package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
)

const (
	// eventsAtOnce is how many events a stream has in memory.
	eventsAtOnce = 64
	// passAtOnce is how many reads that find nothing to tell one Next makes, so that the
	// position moves on, and is told, while a stream passes over much.
	passAtOnce = 16
)

// An EventStream is one follower's place in the feed. It is for one goroutine. It reads
// from the store and the journal, as fast as it is asked: a slow follower costs no memory
// and delays no other code.
type EventStream struct {
	c      *Events
	who    identity.Principal
	f      EventFilter
	all    bool    // of all principals
	owner  *string // whose events; nil for all
	within *access.Thing

	kinds   []string // of the store that are chosen
	calls   bool     // whether those are told
	servers bool

	woken <-chan struct{}
	leave func()

	events   []store.Event // that were read and not told
	eventsTo int64         // up to which they were read
	seen     int64         // what the hub said before all there were were read; -1 where they were not
	dropped  int64         // up to which it was told that they are dropped
	entries  []journal.Entry
	tail     journal.Tail
	passing  []store.Event
	passed   int64 // how many of those that are stored nowhere were read
	gaps     []string
	of       *store.Event // the stored event that Next returns; nil for another one
}

// Woken has a value when Next may have something again.
func (s *EventStream) Woken() <-chan struct{} { return s.woken }

// Close ends the stream.
func (s *EventStream) Close() { s.leave() }

// At is the position behind all that was told.
func (s *EventStream) At() string {
	p := position{event: s.eventsTo}
	if len(s.events) > 0 {
		p.event = s.events[0].N - 1
	}
	if s.c.journal.journal != nil {
		p.call = s.tail.At()
	}
	if len(s.entries) > 0 {
		p.call = s.entries[0].Seq - 1
	}
	return s.c.write(p)
}

// id is where the stream goes on after what it has told last. That of a stored event is the
// same in every stream that tells no calls: another one may choose what this one has passed over.
func (s *EventStream) id() string {
	if s.of == nil {
		return s.At()
	}
	p := position{event: s.of.N, call: s.of.Call}
	if s.calls && s.c.journal.journal != nil {
		if p.call = s.tail.At(); len(s.entries) > 0 {
			p.call = s.entries[0].Seq - 1
		}
	}
	return s.c.write(p)
}

// Next returns the next event. With more there may be another one at once, also where
// the event has no type and only says how far the stream is.
func (s *EventStream) Next(ctx context.Context) (e api.Event, more bool, err error) {
	now, ok := s.c.host.Again(s.who)
	if !ok || s.all && !access.All(now) {
		return e, false, errGone
	}
	for range passAtOnce {
		if err := ctx.Err(); err != nil {
			return e, false, err
		}
		s.of = nil
		e, told, more, err := s.step(ctx, now)
		if err != nil {
			return e, false, err
		}
		if told {
			e.ID = s.id()
			return e, true, nil
		}
		if !more {
			return api.Event{ID: s.At()}, false, nil
		}
	}
	return api.Event{ID: s.At()}, true, nil
}

// step looks at one thing; told is false where the follower is not told of it.
func (s *EventStream) step(ctx context.Context, now identity.Principal) (e api.Event, told, more bool, err error) {
	if len(s.gaps) == 0 && s.servers && len(s.passing) == 0 {
		var missed int64
		if s.passing, s.passed, missed = s.c.hub.Passing(s.passed); missed > 0 {
			s.gaps = append(s.gaps, api.LostServers)
		}
	}
	ended := false
	if len(s.gaps) == 0 && len(s.passing) == 0 {
		if ended, err = s.fill(ctx); err != nil {
			return e, false, false, err
		}
	}
	switch {
	case len(s.gaps) > 0:
		e = api.Event{Type: api.EventGap, Lost: s.gaps[0]}
		s.gaps = s.gaps[1:]
		return e, true, true, nil
	case len(s.passing) > 0:
		passing := s.passing[0]
		s.passing = s.passing[1:]
		e, told = s.ofServer(now, &passing)
	case len(s.events) > 0 && (len(s.entries) == 0 || s.events[0].Call < s.entries[0].Seq):
		event := s.events[0]
		s.events, s.of = s.events[1:], &event
		e, told = s.shown(now, &event)
	case len(s.entries) > 0:
		entry := s.entries[0]
		s.entries = s.entries[1:]
		e, told = s.ofCall(now, &entry)
	default:
		return e, false, !ended, nil
	}
	return e, told, true, nil
}

// fill reads what there is to tell. Calls come first, so that an event which was written
// before one of them is known when that call is told; and an event waits for the calls
// before it. It reports whether there is nothing more.
func (s *EventStream) fill(ctx context.Context) (ended bool, err error) {
	more, err := s.readCalls()
	if err != nil {
		return false, err
	}
	if err := s.readEvents(ctx); err != nil {
		return false, err
	}
	for more && len(s.entries) == 0 && len(s.events) > 0 && s.tail.At() < s.events[0].Call && len(s.gaps) == 0 {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if more, err = s.readCalls(); err != nil {
			return false, err
		}
	}
	return !more && len(s.entries) == 0 && len(s.events) == 0 && s.seen == s.c.hub.Written(), nil
}

// readEvents reads the next events, unless some wait to be told or the hub knows of no
// new ones: many calls may come between two of them, and a query for each would cost more
// than the calls.
func (s *EventStream) readEvents(ctx context.Context) error {
	written := s.c.hub.Written()
	if len(s.events) > 0 || written == s.seen {
		return nil
	}
	page, err := s.c.feed.Feed(ctx, s.filter(func(f *store.FeedFilter) { f.After, f.Limit = s.eventsTo, eventsAtOnce }))
	if err != nil {
		return err
	}
	if page.Dropped > s.eventsTo && page.Dropped > s.dropped && len(s.kinds) > 0 {
		s.gaps = append(s.gaps, api.LostSessions)
	}
	s.events, s.dropped = page.Events, max(s.dropped, page.Dropped)
	if n := len(s.events); n == eventsAtOnce {
		s.eventsTo, s.seen = s.events[n-1].N, -1
	} else {
		s.eventsTo, s.seen = max(s.eventsTo, page.Last), written
	}
	return nil
}

// readCalls reads the next calls, unless some wait to be told. It reports whether there
// may be more.
func (s *EventStream) readCalls() (more bool, err error) {
	switch {
	case s.c.journal.journal == nil:
		return false, nil
	case !s.calls:
		s.tail.ToEnd()
		return false, nil
	case len(s.entries) > 0:
		return true, nil
	}
	entries, missed, more, err := s.tail.Next()
	if err != nil {
		return false, fmt.Errorf("follow the journal: %w", err)
	}
	for i := range entries {
		missed += entries[i].Missed
	}
	if missed > 0 {
		s.gaps = append(s.gaps, api.LostCalls)
	}
	s.entries = entries
	return more, nil
}

// thing is the session of an event.
func thing(e *store.Event) access.Thing { return access.Thing{Owner: e.Owner, Session: e.Session} }

// shown is an event of the store as a principal may see it.
func (s *EventStream) shown(now identity.Principal, e *store.Event) (out api.Event, ok bool) {
	of := thing(e)
	if !access.Sees(now, of) {
		return out, false
	}
	out = api.Event{At: e.At, Durable: true, Owner: e.Owner, Session: e.Session, Run: e.Run}
	if e.Kind == store.EventRun {
		return s.ofRun(now, e, out)
	}
	var d struct {
		Parent, Snapshot, Reason, Server, Kept, Words string
		Children                                      []string
	}
	if err := json.Unmarshal(e.Data, &d); err != nil {
		s.c.log.Warn("what happened to a session can't be read", "session", e.Session, "event", e.N, "err", err)
		return out, false
	}
	out.Type, out.Parent, out.Snapshot, out.Children = kinds[e.Kind], d.Parent, d.Snapshot, d.Children
	if out.Type == api.EventSessionDamaged {
		seen := s.c.shownDamage(now, of, []api.Damage{{At: e.At, Server: d.Server, Why: d.Reason, Kept: d.Kept, Words: d.Words}})
		if len(seen) == 0 {
			return out, false
		}
		out.Server, out.Reason, out.Kept, out.Words = seen[0].Server, seen[0].Why, seen[0].Kept, seen[0].Words
		return out, true
	}
	out.Reason = s.c.redact.Text(d.Reason)
	return out, out.Type != "" && s.f.chooses(out.Type)
}

// ofRun is an event of a run. What its program said is for those who may act in its
// session.
func (s *EventStream) ofRun(now identity.Principal, e *store.Event, out api.Event) (api.Event, bool) {
	var r api.RunEvent
	if err := json.Unmarshal(e.Data, &r); err != nil {
		s.c.log.Warn("an event of a run can't be read", "run", e.Run, "event", e.N, "err", err)
		return out, false
	}
	out.Type, out.Agent, out.State = "run."+r.Type, r.Agent, r.State
	if s.f.Agent != "" && r.Agent != s.f.Agent || !s.f.chooses(out.Type) {
		return out, false
	}
	switch {
	case len(r.Data) == 0:
	case access.Uses(now, thing(e)):
		out.Data = s.c.redact.JSON(r.Data)
	default:
		out.Withheld = true
	}
	return out, true
}

// ofCall is a call that has ended.
func (s *EventStream) ofCall(now identity.Principal, e *journal.Entry) (out api.Event, ok bool) {
	if of := s.callsOf(); of != nil && e.Principal != *of || s.f.Session != "" && e.Session != s.f.Session {
		return out, false
	}
	look := access.At(now, callOf(e), s.within)
	if !look.Row {
		return out, false
	}
	call := s.c.journal.shown(e, look)
	return api.Event{Type: api.EventCall, At: e.At.Add(e.Duration), Durable: true, Session: e.Session, Call: &call}, true
}

// ofServer is how a server is doing. Its error may repeat what a call said.
func (s *EventStream) ofServer(now identity.Principal, e *store.Event) (out api.Event, ok bool) {
	var h api.ServerHealth
	if json.Unmarshal(e.Data, &h) != nil || !access.Knows(now, h.Server) {
		return out, false
	}
	out = api.Event{Type: api.EventServer, At: e.At, Server: h.Server, State: h.State, Kind: h.Kind}
	if now.Is(api.RoleOperator) {
		out.Reason = strings.TrimSpace(s.c.redact.Text(h.Reason))
	}
	return out, true
}
