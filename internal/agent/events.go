package agent

import (
	"encoding/json"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/store"
)

// Bounds of what is stored of one run. What its executor tells beyond them is left out,
// which one event says.
var (
	mostEvents     = 20000
	mostEventBytes = int64(32 << 20)
	mostEventSize  = 1 << 20 // of one
)

// event is that of a run in the store. The state is set where the run has come to it.
func event(r *run, e executor.Event, state string) store.Event {
	data := e.Data
	if !json.Valid(data) {
		data = encode(string(data))
	}
	return store.Event{
		Session: r.Session, Run: r.ID, Owner: r.Owner, At: e.At, Kind: store.EventRun,
		Data: encode(api.RunEvent{Type: e.Type, Agent: r.Agent, State: state, Data: data}),
	}
}

// tell stores what the executor of a run told.
func (c *change) tell(r *run, all ...executor.Event) error {
	out := make([]store.Event, len(all))
	for i, e := range all {
		if e.At.IsZero() {
			e.At = c.now
		}
		out[i] = event(r, e, "")
	}
	return c.putEvents(out)
}

func (c *change) putEvents(out []store.Event) error {
	if err := c.PutEvents(out...); err != nil {
		return err
	}
	c.events = append(c.events, out...)
	return nil
}

// leftOut is the data of the event that says that others are not stored.
type leftOut struct {
	LeftOut string `json:"left_out"`
}

// report stores what an executor tells, as far as the bounds go.
func (c *change) report(r *run, s *session, all []executor.Event) error {
	var kept []executor.Event
	for _, e := range all {
		r.d.Events++
		if e.ExecutorSession != "" {
			s.d.Executor = e.ExecutorSession
		}
		var used api.RunUsage
		if e.Type == api.RunEventUsage && json.Unmarshal(e.Data, &used) == nil {
			r.d.Usage = &used
		}
		if r.d.Cut {
			continue
		}
		if len(e.Data) > mostEventSize {
			e.Data = encode(leftOut{"an event that is larger than 1 MiB"})
		}
		if r.d.Rows >= mostEvents || r.d.Bytes+int64(len(e.Data)) > mostEventBytes {
			r.d.Cut = true
			kept = append(kept, executor.Event{Type: e.Type, At: e.At, Data: encode(leftOut{"the run has told too much: all that follows is not kept"})})
			continue
		}
		r.d.Rows++
		r.d.Bytes += int64(len(e.Data))
		kept = append(kept, e)
	}
	if len(kept) == 0 {
		return nil
	}
	return c.tell(r, kept...)
}
