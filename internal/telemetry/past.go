package telemetry

import (
	"context"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Reserve gives a span its identity before it is made: the trace context of what happens in
// it. The caller keeps that, over restarts of the gateway if it likes, and sends the span
// when it is over. Of a nil Tracing it is empty.
func (t *Tracing) Reserve(parent Parent) Parent {
	if t == nil {
		return Parent{}
	}
	traceparent, tracestate := t.start(parent.context(), "", Internal, nil).Trace()
	return Parent{traceparent, tracestate}
}

// Past is a span that is over.
type Past struct {
	Self   Parent // as Reserve gave it
	Parent Parent // empty for the first span of a trace
	After  string // the traceparent of a span that it is linked to; empty for none
	Name   string
	Began  time.Time
	Marks  []Mark
	Ended  time.Time
	// Outcome is as for Span.End. There is no message: what fails after minutes of work may
	// say what that was.
	Outcome string
	Attrs   []Attr
}

// A Mark is a moment of a span.
type Mark struct {
	Name string
	At   time.Time
}

// Send sends a span, unless its trace is not kept.
func (t *Tracing) Send(p Past) {
	self := trace.SpanContextFromContext(p.Self.context())
	if t == nil || !self.IsSampled() {
		return
	}
	opts := []trace.SpanStartOption{trace.WithTimestamp(p.Began)}
	if after := trace.SpanContextFromContext(Parent{Traceparent: p.After}.context()); after.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: after}))
	}
	// Below itself it is in its trace, and kept whatever the share is by now.
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), self), t.text(p.Name), opts...)
	s := &Span{t: t, span: span}
	s.Set(p.Attrs...)
	s.conclude(p.Outcome, "")
	for _, m := range p.Marks {
		span.AddEvent(m.Name, trace.WithTimestamp(m.At))
	}
	if made, ok := span.(sdktrace.ReadOnlySpan); ok {
		t.queue.OnEnd(past{made, self, trace.SpanContextFromContext(p.Parent.context()), p.Ended})
	}
}

// past is a span with the identity that was reserved for it.
type past struct {
	sdktrace.ReadOnlySpan
	self, above trace.SpanContext
	ended       time.Time
}

func (p past) SpanContext() trace.SpanContext { return p.self }
func (p past) Parent() trace.SpanContext      { return p.above }
func (p past) EndTime() time.Time             { return p.ended }
