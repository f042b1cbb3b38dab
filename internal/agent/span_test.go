package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
)

// traced is a rig that sends its spans to a collector. They are there once sent has been
// called, which ends the sending.
func traced(t *testing.T) (r *rig, sent func() map[string]*trace.Span) {
	var mu sync.Mutex
	spans := make(map[string]*trace.Span)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, err := io.ReadAll(req.Body)
		var in collect.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(raw, &in)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range in.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					run := spanAttr(s, telemetry.TineRun)
					if spans[run] != nil {
						t.Errorf("the span of run %s was sent twice", run)
					}
					spans[run] = s
				}
			}
		}
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(collector.Close)
	tracing, err := telemetry.NewTracing(t.Context(), telemetry.Options{Endpoint: collector.URL, Sample: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracing.Close(context.Background()) })
	r = newRig(t, t.TempDir())
	r.o.Tracing = tracing
	return r, func() map[string]*trace.Span {
		if err := tracing.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return spans
	}
}

func spanAttr(s *trace.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// contextOf is the trace context of what happens in a span, and aboveOf that of its parent.
func contextOf(s *trace.Span) string { return fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId) }
func aboveOf(s *trace.Span) string {
	return fmt.Sprintf("00-%x-%x-01", s.TraceId, s.ParentSpanId)
}

var caller = telemetry.Parent{Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Tracestate: "vendor=1"}

// A run has one span, below what asked for it, with the same identity before and after a
// restart. A parent that is told of a child's end goes on below its own span.
func TestRunSpans(t *testing.T) {
	r, sent := traced(t)
	r.open()
	traceIn := func(session string) telemetry.Parent { _, trace := r.Going(session); return trace }
	defer func() { r.close() }()
	boss, err := r.Start(t.Context(), ada, NewRun{NewRun: api.NewRun{Agent: "boss", Prompt: "planted-prompt"}, Trace: caller})
	if err != nil {
		t.Fatal(err)
	}
	first := r.running(boss)
	call := telemetry.Parent{Traceparent: first.Trace.Traceparent[:36] + "b7ad6b7169203331-01"} // of a tool, in the trace of the boss
	child, err := r.Start(t.Context(), as(boss), NewRun{NewRun: api.NewRun{Agent: "worker", Prompt: "x", Mode: api.ModeAsyncCallback}, Trace: call})
	if err != nil {
		t.Fatal(err)
	}
	other := r.start(as(boss), api.NewRun{Agent: "worker", Prompt: "x", Mode: api.ModeAsyncPoll})
	r.claim(r1)
	r.again()
	second := runner.Description{ID: r1.ID, Instance: "2", Executors: r1.Executors}
	claims := map[string]runner.Claim{}
	for range 3 {
		c := r.claim(second)
		claims[c.Run] = c
	}
	if got := claims[boss.ID].Trace; got != first.Trace || got.Tracestate != caller.Tracestate || traceIn(boss.Session) != got {
		t.Errorf("after a restart the run goes on in %+v, and before in %+v", got, first.Trace)
	}
	r.report(claims[child.ID], failed("planted-message"))
	r.report(claims[boss.ID], done("planted-result"))
	if got := traceIn(boss.Session); got != (telemetry.Parent{}) {
		t.Errorf("after its end the session of the boss is in the trace %+v", got)
	}
	told := r.claim(second)
	claims[told.Run] = told
	if _, err := r.Stop(t.Context(), ada, StopRun{Run: other.ID}); err != nil {
		t.Fatal(err)
	}
	r.report(claims[other.ID], runner.Report{Ended: true})
	r.report(told, done("told"))

	spans := sent()
	if len(spans) != 4 {
		t.Fatalf("the spans of %d runs were sent, want 4", len(spans))
	}
	for _, want := range []struct {
		run, above, state, failed, marks string
		attrs                            map[string]string
	}{
		{boss.ID, caller.Traceparent, api.RunCompleted, "", "claimed running", map[string]string{telemetry.AgentName: "boss", telemetry.TineSession: boss.Session, telemetry.TineExecutor: "exec", telemetry.TineMode: ""}},
		{child.ID, call.Traceparent, api.RunFailed, "tool_error", "claimed", map[string]string{telemetry.AgentName: "worker", telemetry.TineMode: api.ModeAsyncCallback, telemetry.TineParentRun: boss.ID}},
		{other.ID, first.Trace.Traceparent, api.RunStopped, "cancelled", "claimed", map[string]string{telemetry.TineMode: api.ModeAsyncPoll, telemetry.TineParentRun: boss.ID}},
		{told.Run, first.Trace.Traceparent, api.RunCompleted, "", "claimed running", map[string]string{telemetry.AgentName: "boss", telemetry.TineSession: boss.Session}},
	} {
		s := spans[want.run]
		if s == nil {
			t.Fatalf("run %s has no span", want.run)
		}
		run := must(r.Run(t.Context(), otto, want.run))
		if s.StartTimeUnixNano != uint64(run.Created.UnixNano()) || s.EndTimeUnixNano != uint64(run.Ended.UnixNano()) {
			t.Errorf("the span of %s is from %d to %d, and the run from %v to %v", run.Agent, s.StartTimeUnixNano, s.EndTimeUnixNano, run.Created, run.Ended)
		}
		var marks []string
		for _, e := range s.Events {
			marks = append(marks, e.Name)
		}
		if contextOf(s) != claims[want.run].Trace.Traceparent || aboveOf(s) != want.above || strings.Join(marks, " ") != want.marks {
			t.Errorf("the span of %s is %s below %s with %v, want it below %s", run.Agent, contextOf(s), aboveOf(s), marks, want.above)
		}
		want.attrs[telemetry.TineState], want.attrs[telemetry.ErrorType] = want.state, want.failed
		for key, value := range want.attrs {
			if got := spanAttr(s, key); got != value {
				t.Errorf("%s of the span of %s is %q, want %q", key, run.Agent, got, value)
			}
		}
		if strings.Contains(s.String(), "planted") {
			t.Errorf("the span of %s says %v", run.Agent, s)
		}
	}
	if links := spans[told.Run].Links; len(links) != 1 || string(links[0].SpanId) != string(spans[boss.ID].SpanId) {
		t.Errorf("the span of the second run of the session has the links %v", links)
	}
}

// A run whose end was written, which the store has denied, has its span once that is found
// out.
func TestRunSpanOfAnUnsureEnd(t *testing.T) {
	r, sent := traced(t)
	db := &mortal{}
	r.o.Store = db
	r.open()
	defer func() { r.close() }()
	run := r.agent(ada, "worker")
	c := r.running(run)
	db.doom(1, true)
	if _, err := r.Report(t.Context(), c.Run, c.Number, done("x")); err == nil {
		t.Fatal("the store did not fail")
	}
	db.mu.Lock()
	db.dead = false
	db.mu.Unlock()
	testkit.Eventually(t, "the coordinator looks again", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.unsure
	})
	if spans := sent(); len(spans) != 1 || spans[run.ID] == nil {
		t.Errorf("the spans are %v", spans)
	}
}

// Without spans the caller's trace context is handed on, if it is one.
func TestTraceWithoutSpans(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, tt := range []struct{ in, want telemetry.Parent }{{caller, caller}, {telemetry.Parent{Traceparent: "nonsense"}, telemetry.Parent{}}} {
			run, err := r.Start(t.Context(), ada, NewRun{NewRun: api.NewRun{Agent: "boss", Prompt: "x"}, Trace: tt.in})
			if err != nil {
				t.Fatal(err)
			}
			c := r.running(run)
			below := r.start(as(run), api.NewRun{Agent: "worker", Prompt: "x"})
			if got := r.running(below).Trace; c.Trace != tt.want || got != tt.want {
				t.Errorf("with %+v the program has %+v, and one that it starts %+v", tt.in, c.Trace, got)
			}
		}
	})
}
