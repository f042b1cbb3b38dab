package agent

import (
	"fmt"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/store"
)

//	┌──────────── lost, retried ◀─────────────┐
//	▼                                         │
//
// (new) ─▶ pending ──▶ claimed ──────────────────▶ running ──▶ completed
//
//	│ │          │ │ │                     │   │
//	│ │          │ │ └──▶ stopping ◀───────┘   │
//	│ │          │ │          │                │
//	│ └──────────┼─┼────▶ stopped              │
//	│            │ │                           │
//	└────────────┴─┼────▶ failed ◀─────────────┘
//	               └──▶ pending, as from running
var runMoves = map[string][]string{
	"":             {api.RunPending},
	api.RunPending: {api.RunClaimed, api.RunFailed, api.RunStopped},
	api.RunClaimed: {api.RunRunning, api.RunStopping, api.RunFailed, api.RunPending},
	api.RunRunning: {api.RunCompleted, api.RunFailed, api.RunStopping, api.RunPending},
	// A run that ends while it is being stopped was stopped, whatever its executor says.
	api.RunStopping: {api.RunStopped},
}

// move changes the state of a run. The caller puts it.
func (c *change) move(r *run, to string) error {
	if !slices.Contains(runMoves[r.State], to) {
		return fmt.Errorf("run %s is %s, and can't become %s", r.ID, r.State, to)
	}
	r.State = to
	switch {
	case to == api.RunClaimed:
		r.d.Trace.claimed(c.now)
	case to == api.RunRunning && r.d.Started.IsZero():
		r.d.Started = c.now
	case r.ended():
		r.d.Ended = c.now
		c.sendSpan(r)
	}
	return c.tellState(r)
}

// stateEvent is the data of an event of a run's state.
type stateEvent struct {
	Claim  int64      `json:"claim,omitempty"`
	Runner string     `json:"runner,omitempty"`
	Error  *api.Error `json:"error,omitempty"`
}

// tellState adds the event of a state. There are few of them, so they are not bounded.
func (c *change) tellState(r *run) error {
	e := stateEvent{Claim: r.Claim, Runner: r.Runner}
	if r.ended() {
		e.Error = r.d.Error
	}
	return c.putEvents([]store.Event{event(r, executor.Event{Type: api.RunEventState, At: c.now, Data: encode(e)}, r.State)})
}
