package telemetry

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// A span that is sent when it is over has the identity that was handed on before, also by
// another Tracing, whose share of kept traces is another.
func TestPast(t *testing.T) {
	c := newCollector(t, false)
	first := startTracing(t, Options{Endpoint: c.URL, Sample: 1})
	caller := Parent{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=1"}
	root, below := first.Reserve(Parent{}), first.Reserve(caller)
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 0 {
		t.Fatalf("%d spans were sent before they were over", len(c.spans))
	}
	redact := NewRedactor()
	redact.Set([]string{"planted-value"})
	tr := startTracing(t, Options{Endpoint: c.URL, Sample: 0, Redact: redact})
	none := tr.Reserve(Parent{})
	began := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, p := range []Past{
		{Self: root, Name: "root", Outcome: "ok"},
		{Self: below, Parent: caller, After: root.Traceparent, Name: "below", Outcome: "lost",
			Attrs: []Attr{Str(TineRun, "run planted-value")}, Marks: []Mark{{"claimed", began.Add(time.Second)}}},
		{Self: none, Name: "not kept"},
		{Name: "without an identity"},
	} {
		p.Began, p.Ended = began, began.Add(time.Minute)
		tr.Send(p)
		(*Tracing)(nil).Send(p)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 2 {
		t.Fatalf("%d spans arrived, want 2: %v", len(c.spans), c.spans)
	}
	identity := func(s *tracepb.Span) string { return fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId) }
	for i, want := range []Parent{root, below} {
		s := c.spans[i]
		if identity(s) != want.Traceparent || s.TraceState != want.Tracestate {
			t.Errorf("%s is %s %q, want %+v", s.Name, identity(s), s.TraceState, want)
		}
		if s.StartTimeUnixNano != uint64(began.UnixNano()) || s.EndTimeUnixNano != uint64(began.Add(time.Minute).UnixNano()) {
			t.Errorf("%s is from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
	}
	if got := c.spans[0]; len(got.ParentSpanId) != 0 || len(got.Links) != 0 || got.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the root is %v", got)
	}
	got := c.spans[1]
	if fmt.Sprintf("%x", got.ParentSpanId) != "00f067aa0ba902b7" || below.Tracestate != "a=1" || !strings.HasPrefix(below.Traceparent, caller.Traceparent[:36]) {
		t.Errorf("%v is not below %+v", got, caller)
	}
	if len(got.Links) != 1 || !bytes.Equal(got.Links[0].SpanId, c.spans[0].SpanId) {
		t.Errorf("its links are %v", got.Links)
	}
	if len(got.Events) != 1 || got.Events[0].Name != "claimed" || got.Events[0].TimeUnixNano != uint64(began.Add(time.Second).UnixNano()) {
		t.Errorf("its events are %v", got.Events)
	}
	if a := attrsOf(got); a[ErrorType] != "lost" || a[TineRun] != "run ****" || got.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("its attributes are %v, its status %v", a, got.Status)
	}
}

func TestValidParent(t *testing.T) {
	whole := Parent{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "a=1"}
	for _, tt := range []struct{ in, want Parent }{
		{whole, whole},
		{Parent{whole.Traceparent, "a=1,,=,"}, Parent{whole.Traceparent, ""}},
		{Parent{"nonsense", "a=1"}, Parent{}},
		{Parent{"", "a=1"}, Parent{}},
	} {
		if got := tt.in.Valid(); got != tt.want {
			t.Errorf("of %+v there is %+v, want %+v", tt.in, got, tt.want)
		}
	}
}
