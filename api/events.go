package api

import (
	"encoding/json"
	"time"
)

// Event is one of the feed of events: something that happened to a session, a call that
// ended, something of a run, or how a server is doing.
type Event struct {
	// ID is a position in the feed: of this event, or of the last durable one before it.
	// The after of a request continues behind it.
	ID string `json:"id"`
	// Type is one of the types below. An Event without a type only moves the position:
	// nothing was to tell up to there.
	Type string    `json:"type,omitempty"`
	At   time.Time `json:"at,omitzero"`
	// Durable events are stored: a follower that continues from an id gets each of those
	// after it once. Others are for followers that are there at the time.
	Durable bool   `json:"durable"`
	Owner   string `json:"owner,omitempty"` // of the session
	Session string `json:"session,omitempty"`
	Run     string `json:"run,omitempty"`
	Agent   string `json:"agent,omitempty"` // of the run

	Parent   string   `json:"parent,omitempty"`   // of session.opened: it was forked from
	Children []string `json:"children,omitempty"` // of session.forked
	Snapshot string   `json:"snapshot,omitempty"` // of session.snapshot and session.rewound; of session.opened, that it began with
	Reason   string   `json:"reason,omitempty"`   // why it was closed, is damaged, or does not do well
	Kept     string   `json:"kept,omitempty"`     // of session.damaged
	Words    string   `json:"words,omitempty"`    // of session.damaged: what the server wrote

	Server string `json:"server,omitempty"` // that is damaged, or that server is about
	State  string `json:"state,omitempty"`  // of the server, or of the run
	Kind   Kind   `json:"kind,omitempty"`   // of the error, where a server is not well

	Call *Call           `json:"call,omitempty"`
	Data json.RawMessage `json:"data,omitempty"` // what an executor told of a run
	// Withheld says that the contents are left out: only who may act in the session
	// reads them.
	Withheld bool `json:"withheld,omitempty"`
	// Lost is, of a gap, the group of events of which some will never come.
	Lost string `json:"lost,omitempty"`
}

// Types of events. A filter may name a type or a group, which is what stands before the
// point.
const (
	EventSessionOpened   = "session.opened"
	EventSessionForked   = "session.forked"
	EventSessionSnapshot = "session.snapshot"
	EventSessionRewound  = "session.rewound"
	EventSessionDamaged  = "session.damaged"
	EventSessionClosed   = "session.closed"
	EventCall            = "call"
	EventServer          = "server"
	EventRunText         = "run." + RunEventText
	EventRunTool         = "run." + RunEventTool
	EventRunUsage        = "run." + RunEventUsage
	EventRunStderr       = "run." + RunEventStderr
	EventRunState        = "run." + RunEventState
	// EventGap comes whatever the filter is: some events before the next one are not kept
	// any more, or the position is not one of this gateway.
	EventGap = "gap"
)

// EventTypes are the types that a filter may choose.
var EventTypes = []string{
	EventSessionOpened, EventSessionForked, EventSessionSnapshot, EventSessionRewound, EventSessionDamaged, EventSessionClosed,
	EventCall, EventServer,
	EventRunText, EventRunTool, EventRunUsage, EventRunStderr, EventRunState,
}

// Groups of events, as a gap names them.
const (
	LostSessions = "session" // and runs, which are stored with them
	LostCalls    = "call"
	LostServers  = "server"
	LostAll      = "all" // the position is not known here; the feed goes on from now
)

// EventsFromStart is the after of a request that begins with the oldest event there is.
const EventsFromStart = "start"

// RunEvent is what is stored of something that an executor told of a run.
type RunEvent struct {
	Type  string          `json:"type"` // one of the RunEvent types
	Agent string          `json:"agent,omitempty"`
	State string          `json:"state,omitempty"` // of RunEventState
	Data  json.RawMessage `json:"data,omitempty"`
}

// ServerHealth is how a server is doing.
type ServerHealth struct {
	Server string `json:"server"`
	State  string `json:"state"`
	Kind   Kind   `json:"kind,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// States of a server's health.
const (
	HealthWell    = "well"
	HealthEnded   = "ended"   // an instance has ended by itself
	HealthFailing = "failing" // an instance does not start, or a server over HTTP does not answer
)
