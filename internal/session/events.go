package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
)

// What happens to a session besides calls.
const (
	eventOpened   = "opened"
	eventForked   = "forked"
	eventSnapshot = "snapshot"
	eventRewound  = "rewound"
	eventDamaged  = "damaged"
	eventClosed   = "closed"
	eventTools    = store.EventTools
)

// eventData is what an event says besides its kind.
type eventData struct {
	Parent   string   `json:"parent,omitempty"`
	Children []string `json:"children,omitempty"`
	Snapshot string   `json:"snapshot,omitempty"`
	To       int64    `json:"to,omitempty"` // of a rewind: the last call that still counts
	Reason   string   `json:"reason,omitempty"`
	Server   string   `json:"server,omitempty"` // of a damage
	Kept     string   `json:"kept,omitempty"`   // likewise
	Words    string   `json:"words,omitempty"`  // likewise
	Tools    string   `json:"tools,omitempty"`  // the digest of a list of tools, that of Server or of all
}

func (r *Registry) event(session, kind string, d eventData) store.Event {
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and numbers
	}
	return store.Event{Session: session, At: time.Now().UTC(), Kind: kind, Call: r.lastCall(), Data: data}
}

// note writes down what happened. That it happened does not depend on it.
func (r *Registry) note(ctx context.Context, e store.Event) {
	if err := r.o.Shared.PutEvents(context.WithoutCancel(ctx), e); err != nil {
		r.o.Log.Warn("what happened to a session is not recorded", "session", e.Session, "event", e.Kind, "err", err)
	}
	r.o.Hub.Wrote()
}

// serverChanged tells followers how a server is doing.
func (r *Registry) serverChanged(h upstream.HealthChange) {
	data, err := json.Marshal(api.ServerHealth{Server: h.Server, State: h.State, Kind: h.Kind, Reason: h.Reason})
	if err != nil {
		panic(err) // strings
	}
	r.o.Hub.Pass(store.Event{At: time.Now().UTC(), Kind: store.EventServer, Data: data})
}
