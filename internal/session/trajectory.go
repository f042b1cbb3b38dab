package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

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

	stepTools      = "tools"
	stepAnnotation = api.StepAnnotation
)

// Trajectory tells the story of a session from its first ancestor on: of each
// ancestor what happened before it was forked, and of the session itself all.
// Nothing is cut or masked.
func (r *Registry) Trajectory(ctx context.Context, id string, emit func(api.Step) error) error {
	line, err := r.line(ctx, id)
	if err != nil {
		return err
	}
	t := &teller{r: r, emit: emit, gone: make(map[string]bool), told: make(map[[sha256.Size]byte]time.Time), lists: make(map[string]string)}
	for i, rec := range line {
		var end *store.Event // the opening of the next one in the line
		if i+1 < len(line) {
			if end, err = r.openingOf(ctx, line[i+1].ID); err != nil {
				return err
			}
		}
		if err = t.chapter(ctx, rec, end); err != nil {
			return err
		}
	}
	return nil
}

// A teller tells one trajectory.
type teller struct {
	r     *Registry
	emit  func(api.Step) error
	step  int64                           // calls so far
	gone  map[string]bool                 // the ids of calls that were undone
	told  map[[sha256.Size]byte]time.Time // annotations with a key
	lists map[string]string               // the digests of the last lists of tools, by view
}

// keyAge is how long an idempotency key stands for one request.
const keyAge = 24 * time.Hour

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
// all of it with nil.
func (t *teller) chapter(ctx context.Context, rec store.Session, end *store.Event) error {
	events, err := t.r.o.Shared.Events(ctx, rec.ID)
	if err != nil {
		return err
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
		return err
	}
	err = t.emit(api.Step{Type: stepSession, Session: rec.ID, At: rec.Created, Step: t.step, Parent: rec.Parent, Snapshot: f.From, Labels: f.Labels})
	if err != nil {
		return err
	}
	undone := undoneBy(events)
	last := int64(0)
	// happened tells the events up to a call, each after the calls before it.
	happened := func(call int64) error {
		for len(events) > 0 && events[0].Call < call {
			e := events[0]
			events = events[1:]
			s, d, err := eventStep(e)
			if err != nil {
				return err
			}
			if e.Kind == eventTools {
				if err := t.tools(ctx, e, d); err != nil {
					return err
				}
			}
			if s.Type == "" {
				continue
			}
			s.Step = t.step
			if err := t.emit(s); err != nil {
				return err
			}
		}
		return nil
	}
	j := t.r.o.Record.Journal
	if j == nil {
		return happened(1 << 62)
	}
	err = j.Story(ctx, rec.ID, until, func(e journal.Entry) error {
		if e.Seq <= last {
			return nil
		}
		last = e.Seq
		called := e.Method != driver.MethodNetwork && e.Method != record.MethodAnnotation
		if !rec.Closed.IsZero() && e.At.After(rec.Closed) && called {
			return nil // refused, since the session had ended: no part of what happened in it
		}
		if err := happened(e.Seq); err != nil {
			return err
		}
		if e.Method == record.MethodAnnotation {
			return t.annotation(rec.ID, &e, undone(e.Seq))
		}
		s := callStep(rec.ID, e)
		if e.Method == driver.MethodNetwork {
			// No call, and what was sent outside can't be taken back.
			s.Type, s.Step = stepNetwork, t.step
			return t.emit(s)
		}
		if e.Mode == record.ModeDenied { // nothing was done
			s.Step = t.step
			return t.emit(s)
		}
		t.step++
		if s.Step, s.Undone = t.step, undone(e.Seq); s.Undone {
			t.gone[e.ID] = true
		}
		return t.emit(s)
	})
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	return happened(1 << 62)
}

// annotation tells an annotation, unless it was told: a request that was repeated with
// its key may have been written twice.
func (t *teller) annotation(session string, e *journal.Entry, undone bool) error {
	a, same, err := record.ReadAnnotation(e)
	if err != nil {
		return err
	}
	if same != nil {
		if first, told := t.told[*same]; told && e.At.Sub(first) < keyAge {
			return nil
		}
		t.told[*same] = e.At
	}
	return t.emit(api.Step{
		Type: stepAnnotation, Session: session, At: e.At, Step: t.step, ID: e.ID, Undone: undone || t.gone[a.Call],
		Call: a.Call, Reward: a.Reward, Text: a.Text, TokenIDs: a.TokenIDs, Logprobs: a.Logprobs, Data: a.Data,
	})
}

func callStep(session string, e journal.Entry) api.Step {
	s := api.Step{
		Type: stepCall, Session: session, At: e.At, ID: e.ID, Run: e.Run, Server: e.Server, Method: e.Method, Name: e.Name,
		Result: e.Result, Duration: float64(e.Duration.Microseconds()) / 1000, Outcome: e.Outcome, Error: e.Error, Journal: e.Mode, Note: e.Note,
		Arguments: e.Params, Meta: wire.OwnMeta(e.Params),
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

// eventStep is the line of an event, without a type for those that have none of this
// kind, and what the event says.
func eventStep(e store.Event) (s api.Step, d eventData, err error) {
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return s, d, fmt.Errorf("reading what happened to session %s: %w", e.Session, err)
	}
	s = api.Step{Session: e.Session, At: e.At, Snapshot: d.Snapshot, Reason: d.Reason, Children: d.Children, Server: d.Server, Kept: d.Kept, Words: d.Words}
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
	}
	return s, d, nil
}

// forks reports whether a session is a child of this fork.
func forks(e store.Event, child string) bool {
	var d eventData
	return json.Unmarshal(e.Data, &d) == nil && slices.Contains(d.Children, child)
}

// undoneBy tells which calls of a session are not in the state that its rewinds led to, of
// which any may be to an older or a newer snapshot.
func undoneBy(events []store.Event) func(seq int64) bool {
	type span struct{ after, upTo int64 }
	const open = 1 << 62
	// upTo is what is left of spans where calls count up to one.
	upTo := func(spans []span, call int64) []span {
		var out []span
		for _, s := range spans {
			if s.upTo = min(s.upTo, call); s.after < s.upTo {
				out = append(out, s)
			}
		}
		return out
	}
	now := []span{{0, open}}
	had := make(map[string][]span) // by a snapshot
	for _, e := range events {
		var d eventData
		if json.Unmarshal(e.Data, &d) != nil {
			continue
		}
		switch e.Kind {
		case eventSnapshot:
			had[d.Snapshot] = now
		case eventRewound:
			then, ok := had[d.Snapshot]
			if !ok {
				then = now
			}
			now = append(upTo(then, d.To), span{e.Call, open})
		}
	}
	return func(seq int64) bool {
		return !slices.ContainsFunc(now, func(s span) bool { return seq > s.after && seq <= s.upTo })
	}
}
