package agent

import (
	"cmp"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// runTrace is where a run stands in a trace. The identity of its span is given when the run
// is accepted and stored with it, so that all that happens in the run is below it whatever
// becomes of the gateway. The span is sent by the change that ends the run.
type runTrace struct {
	// Asked is the context of what asked for the run, and Span that of its own span, which
	// it has where the gateway sends traces.
	Asked telemetry.Parent `json:"asked,omitzero"`
	Span  telemetry.Parent `json:"span,omitzero"`
	// After is the span of the run before it in the session.
	After   string    `json:"after,omitempty"`
	Claimed time.Time `json:"claimed,omitzero"` // for the first time
}

// context is what happens in the run.
func (t runTrace) context() telemetry.Parent { return cmp.Or(t.Span, t.Asked) }

func (t *runTrace) claimed(now time.Time) {
	if t.Span.Traceparent != "" && t.Claimed.IsZero() {
		t.Claimed = now
	}
}

// going is the run that goes on in a session.
type going struct {
	run   string
	trace telemetry.Parent
}

// Going is the run that goes on in a session, with its trace context; empty for none.
func (s *Service) Going(session string) (run string, trace telemetry.Parent) {
	now, _ := s.going.Load(session)
	g, _ := now.(going)
	return g.run, g.trace
}

// sendSpan sends the span of a run that has ended, once that is written.
func (c *change) sendSpan(r *run) {
	t := r.d.Trace
	if t.Span.Traceparent == "" {
		return
	}
	p := telemetry.Past{
		Self: t.Span, Parent: t.Asked, After: t.After, Name: "invoke_agent " + r.Agent, Began: r.Created, Ended: r.d.Ended,
		Outcome: spanOutcome(r),
		Attrs: []telemetry.Attr{
			telemetry.Str(telemetry.OperationName, "invoke_agent"), telemetry.Str(telemetry.AgentName, r.Agent),
			telemetry.Str(telemetry.TineRun, r.ID), telemetry.Str(telemetry.TineSession, r.Session),
			telemetry.Str(telemetry.TineExecutor, r.d.Blueprint.Executor), telemetry.Str(telemetry.TineState, r.State),
		},
	}
	for _, a := range []struct{ key, value string }{{telemetry.TineMode, r.d.Mode}, {telemetry.TineParentRun, r.d.ParentRun}} {
		if a.value != "" {
			p.Attrs = append(p.Attrs, telemetry.Str(a.key, a.value))
		}
	}
	for _, m := range []telemetry.Mark{{Name: api.RunClaimed, At: t.Claimed}, {Name: api.RunRunning, At: r.d.Started}} {
		if !m.At.IsZero() {
			p.Marks = append(p.Marks, m)
		}
	}
	c.after = append(c.after, func() { c.s.o.Tracing.Send(p) })
}

// spanOutcome is how a run ended, in the words for calls.
func spanOutcome(r *run) string {
	switch {
	case r.State == api.RunCompleted:
		return api.OutcomeOK
	case r.State == api.RunStopped:
		return api.OutcomeCancelled
	case r.d.Error != nil:
		return string(r.d.Error.Kind)
	}
	return string(api.KindInfrastructure)
}
