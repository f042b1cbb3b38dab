package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

// Kinds of lines of a trajectory.
const (
	stepSession  = "session"
	stepCall     = "call"
	stepNetwork  = "network"
	stepExec     = "exec"
	stepPut      = "put"
	stepFork     = "fork"
	stepSnapshot = "snapshot"
	stepRewind   = "rewind"
	stepDamage   = "damage"
	stepClose    = "close"
)

// Trajectory tells the story of a session from its first ancestor on: of each
// ancestor what happened before it was forked, and of the session itself all.
// Nothing is cut or masked.
func (r *Registry) Trajectory(ctx context.Context, id string, emit func(api.Step) error) error {
	line, err := r.line(ctx, id)
	if err != nil {
		return err
	}
	step := int64(0)
	for i, rec := range line {
		var end *store.Event // the opening of the next one in the line
		if i+1 < len(line) {
			if end, err = r.openingOf(ctx, line[i+1].ID); err != nil {
				return err
			}
		}
		if step, err = r.chapter(ctx, rec, end, step, emit); err != nil {
			return err
		}
	}
	return nil
}

// openingOf is the event that began a session; nil when it is not recorded.
func (r *Registry) openingOf(ctx context.Context, id string) (*store.Event, error) {
	events, err := r.o.Shared.Events(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Kind == eventOpened {
			return &e, nil
		}
	}
	return nil, nil
}

// chapter tells what happened to one session, up to the opening of another one;
// all of it with nil. Steps are counted on from step.
func (r *Registry) chapter(ctx context.Context, rec store.Session, end *store.Event, step int64, emit func(api.Step) error) (int64, error) {
	events, err := r.o.Shared.Events(ctx, rec.ID)
	if err != nil {
		return step, err
	}
	until := int64(-1)
	if end != nil {
		until = end.Call
		events = slices.DeleteFunc(events, func(e store.Event) bool {
			// The fork itself is written down after its children.
			return e.N > end.N && !(e.Kind == eventForked && forks(e, end.Session))
		})
	}
	f, err := factsOf(rec)
	if err != nil {
		return step, err
	}
	err = emit(api.Step{Type: stepSession, Session: rec.ID, At: rec.Created, Step: step, Parent: rec.Parent, Snapshot: f.From, Labels: f.Labels})
	if err != nil {
		return step, err
	}
	undone := undoneBy(events)
	last := int64(0)
	// happened tells the events up to a call, each after the calls before it.
	happened := func(call int64) error {
		for len(events) > 0 && events[0].Call < call {
			e := events[0]
			events = events[1:]
			s, ok, err := eventStep(e)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			s.Step = step
			if err := emit(s); err != nil {
				return err
			}
		}
		return nil
	}
	j := r.o.Record.Journal
	if j == nil {
		return step, happened(1 << 62)
	}
	err = j.Story(ctx, rec.ID, until, func(e journal.Entry) error {
		if e.Seq <= last {
			return nil
		}
		last = e.Seq
		if !rec.Closed.IsZero() && e.At.After(rec.Closed) && e.Method != driver.MethodNetwork {
			return nil // refused, since the session had ended: no part of what happened in it
		}
		if err := happened(e.Seq); err != nil {
			return err
		}
		s := callStep(rec.ID, e)
		if e.Method == driver.MethodNetwork {
			// No call, and what was sent outside can't be taken back.
			s.Type, s.Step = stepNetwork, step
			return emit(s)
		}
		if e.Mode == record.ModeDenied { // nothing was done
			s.Step = step
			return emit(s)
		}
		step++
		s.Step, s.Undone = step, undone(e.Seq)
		return emit(s)
	})
	if err != nil {
		return step, fmt.Errorf("reading the journal: %w", err)
	}
	return step, happened(1 << 62)
}

func callStep(session string, e journal.Entry) api.Step {
	s := api.Step{
		Type: stepCall, Session: session, At: e.At, ID: e.ID, Server: e.Server, Method: e.Method, Name: e.Name,
		Result: e.Result, Duration: float64(e.Duration.Microseconds()) / 1000, Outcome: e.Outcome, Error: e.Error, Journal: e.Mode, Note: e.Note,
		Arguments: e.Params,
	}
	switch e.Method {
	case driver.MethodExec:
		s.Type = stepExec
	case driver.MethodPut:
		s.Type = stepPut
	}
	switch e.Method {
	case wire.MethodCallTool, driver.MethodNetwork, driver.MethodExec, driver.MethodPut:
		s.Arguments = nil
		if at, err := wire.Find(e.Params, "arguments"); err == nil && at.Ok() {
			s.Arguments = at.Of(e.Params)
		}
	}
	return s
}

// eventStep is the line of an event; ok is false for those that have none.
func eventStep(e store.Event) (api.Step, bool, error) {
	var d eventData
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return api.Step{}, false, fmt.Errorf("reading what happened to session %s: %w", e.Session, err)
	}
	s := api.Step{Session: e.Session, At: e.At, Snapshot: d.Snapshot, Reason: d.Reason, Children: d.Children, Server: d.Server, Kept: d.Kept, Words: d.Words}
	switch e.Kind {
	case eventForked:
		s.Type = stepFork
	case eventSnapshot:
		s.Type = stepSnapshot
	case eventRewound:
		s.Type = stepRewind
	case eventDamaged:
		s.Type = stepDamage
	case eventClosed:
		s.Type = stepClose
	default:
		return s, false, nil
	}
	return s, true, nil
}

// forks reports whether a session is a child of this fork.
func forks(e store.Event, child string) bool {
	var d eventData
	return json.Unmarshal(e.Data, &d) == nil && slices.Contains(d.Children, child)
}

// undoneBy tells which calls a rewind among the events took back.
func undoneBy(events []store.Event) func(seq int64) bool {
	type span struct{ after, upTo int64 }
	var gone []span
	for _, e := range events {
		var d eventData
		if e.Kind == eventRewound && json.Unmarshal(e.Data, &d) == nil {
			gone = append(gone, span{d.To, e.Call})
		}
	}
	return func(seq int64) bool {
		for _, g := range gone {
			if seq > g.after && seq <= g.upTo {
				return true
			}
		}
		return false
	}
}
