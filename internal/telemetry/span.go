package telemetry

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Names of attributes by OpenTelemetry's conventions for MCP, and our own where
// there is none. Arguments, results, headers and tokens are never attributes.
const (
	MCPMethod     = "mcp.method.name"
	ToolName      = "gen_ai.tool.name"
	OperationName = "gen_ai.operation.name" // "execute_tool" for tools/call, "invoke_agent" for a run
	ErrorType     = "error.type"            // set by End
	AgentName     = "gen_ai.agent.name"
	TineServer    = "tine.server"
	TineSession   = "tine.session"
	TineRun       = "tine.run"
	TineExecutor  = "tine.executor"
	TineMode      = "tine.mode"
	TineState     = "tine.state"
	TineParentRun = "tine.parent_run"
)

// Kind says on which side of a call a span stands.
type Kind int

const (
	Internal Kind = iota
	Server        // we received the request
	Client        // we send the request
)

func (k Kind) otel() trace.SpanKind {
	switch k {
	case Server:
		return trace.SpanKindServer
	case Client:
		return trace.SpanKindClient
	}
	return trace.SpanKindInternal
}

// Attr is one attribute of a span, made by Str.
type Attr struct{ key, text string }

func Str(key, value string) Attr { return Attr{key, value} }

// Span is one piece of work in a trace. It is used by one goroutine at a time,
// except that children may be started from several. A nil Span does nothing.
type Span struct {
	t    *Tracing
	span trace.Span
}

// Start begins a span below parent, or a trace where parent is empty. Names are
// of few kinds: the method, and the tool or prompt where there is one.
func (t *Tracing) Start(parent Parent, name string, kind Kind, attrs ...Attr) *Span {
	if t == nil {
		return nil
	}
	return t.start(parent.context(), name, kind, attrs)
}

// StartChild begins a span below s.
func (s *Span) StartChild(name string, kind Kind, attrs ...Attr) *Span {
	if s == nil {
		return nil
	}
	return s.t.start(trace.ContextWithSpan(context.Background(), s.span), name, kind, attrs)
}

func (t *Tracing) start(ctx context.Context, name string, kind Kind, attrs []Attr) *Span {
	_, span := t.tracer.Start(ctx, t.text(name), trace.WithSpanKind(kind.otel()))
	s := &Span{t: t, span: span}
	s.Set(attrs...)
	return s
}

// text bounds and redacts a text of a span.
func (t *Tracing) text(s string) string { return clip(t.redact.Text(s), maxSpanText) }

// Set adds attributes; a later one of the same name wins.
func (s *Span) Set(attrs ...Attr) {
	if s == nil || len(attrs) == 0 || !s.span.IsRecording() {
		return
	}
	kvs := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		kvs[i] = attribute.String(a.key, s.t.text(a.text))
	}
	s.span.SetAttributes(kvs...)
}

// End ends the span. outcome is "ok", "cancelled" or the kind of the error; any other
// than "ok" becomes error.type, and message is its text.
func (s *Span) End(outcome, message string) {
	if s == nil {
		return
	}
	s.conclude(outcome, message)
	s.span.End()
}

func (s *Span) conclude(outcome, message string) {
	if outcome == OutcomeOK || !s.span.IsRecording() {
		return
	}
	kind := outcome
	switch outcome {
	case OutcomeTool:
		kind = "tool_error" // the conventions' name for a result with isError
	case "":
		kind = "_OTHER"
	}
	s.span.SetAttributes(attribute.String(ErrorType, kind))
	s.span.SetStatus(codes.Error, s.t.text(message))
}

// Trace is the W3C trace context to pass on, in headers or _meta, to the server
// that is called within this span, sampled or not. Of a nil span it is empty.
func (s *Span) Trace() (traceparent, tracestate string) {
	if s == nil {
		return "", ""
	}
	c := s.span.SpanContext()
	if !c.IsValid() {
		return "", ""
	}
	id, span := c.TraceID(), c.SpanID()
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, id[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, span[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, []byte{byte(c.TraceFlags() & trace.FlagsSampled)})
	return string(b), c.TraceState().String()
}

// ID is the trace's id in hex, for the journal.
func (s *Span) ID() string {
	if s == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}
