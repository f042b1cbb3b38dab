package gateway_test

import (
	"testing"

	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// TestTraceOfRunsWithoutSpans has a gateway without traces hand on the trace context of the
// request that starts a run.
func TestTraceOfRunsWithoutSpans(t *testing.T) {
	var agents *agent.Service
	w := openWith(t, "servers: {}\n", func(o *gateway.Options) { agents = o.Agents })
	want := telemetry.Parent{Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Tracestate: "a=1"}
	got := w.do(t, "POST", "/v1/runs", `{"agent":"worker","prompt":"x"}`, "Content-Type", "application/json", "Traceparent", want.Traceparent, "Tracestate", want.Tracestate)
	if got.status/100 != 2 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	c, err := agents.Claim(t.Context(), runner.Description{ID: "here", Instance: "1", Executors: []string{"none"}})
	if err != nil || c.Trace != want {
		t.Errorf("the run is part of %+v, want %+v: %v", c.Trace, want, err)
	}
}
