package store

import (
	"context"
	"encoding/json"
	"time"
)

// Event is something that happened to a session, or in one of its runs, besides calls.
type Event struct {
	N       int64 // grows with every event
	Session string
	// Run is the run that the event is of; empty for one of the session itself.
	Run string
	// Owner is the principal that the session belongs to. A store fills it in for a
	// session that it knows; the session of a run may not be open yet.
	Owner string
	At    time.Time
	Kind  string // opened, forked, snapshot, rewound, damaged or closed; EventTools; EventRun
	// Call is the Seq of the last call in the journal at that moment.
	Call int64
	Data json.RawMessage
}

// EventRun is the kind of the events of runs. Their data is an api.RunEvent.
const EventRun = "run"

// EventServer is the kind of the event, stored nowhere, that tells how a server is doing.
// Its data is an api.ServerHealth.
const EventServer = "server"

// Feed reads the events of all sessions and runs in the order in which they were written.
type Feed interface {
	// Feed returns the events that f chooses, the oldest first.
	Feed(ctx context.Context, f FeedFilter) (FeedPage, error)
}

// FeedFilter chooses events. Zero fields choose all.
type FeedFilter struct {
	After   int64 // N above this
	Owner   *string
	Session string
	Run     string
	Kinds   []string // any of them; nil for all
	Limit   int      // zero for 100
	Newest  bool     // the last ones that are chosen, and not the first
}

// FeedPage is a part of the feed. There are no other chosen events between the After of
// the filter and the last one here; where there are fewer than the limit, there are none
// up to Last.
type FeedPage struct {
	Events []Event
	Last   int64 // the N of the last event that was written, chosen or not
	// Dropped is the greatest N of the events of the owner, or of all owners, that are
	// no longer kept.
	Dropped int64
}
