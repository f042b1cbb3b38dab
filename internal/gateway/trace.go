package gateway

import (
	"context"
	"net/http"

	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

// parentOf finds the trace a request is part of: its _meta says it, or its
// headers do. A client that says both means the first, which is nearer to the
// call.
func (g *Gateway) parentOf(h http.Header, p *wire.Params) telemetry.Parent {
	if g.o.Tracing == nil {
		return telemetry.Parent{} // what the client's _meta says is passed on as it is
	}
	if p.Meta.Ok() {
		meta := p.Meta.Of(p.Raw)
		if trace := wire.FindString(meta, wire.MetaTraceparent); trace != "" {
			return telemetry.Parent{Traceparent: trace, Tracestate: wire.FindString(meta, wire.MetaTracestate)}
		}
	}
	return traceOf(h)
}

// traceOf is the trace context in the headers of a request.
func traceOf(h http.Header) telemetry.Parent {
	return telemetry.Parent{Traceparent: h.Get("Traceparent"), Tracestate: h.Get("Tracestate")}
}

// begin starts the span of a request, which is then what its calls are part of. The
// program of a run that tells no trace of its own calls within the run's.
func (x *exchange) begin() *telemetry.Span {
	if x.g.o.Tracing == nil {
		return nil
	}
	if x.trace.Traceparent == "" && x.who.Run != "" && x.g.o.Agents != nil {
		_, x.trace = x.g.o.Agents.Going(x.who.Session)
	}
	name := x.method
	if wire.HasTarget(x.method) && !x.params.TargetURI {
		name += " " + x.params.Name()
	}
	span := x.g.o.Tracing.Start(x.trace, name, telemetry.Server,
		telemetry.Str(telemetry.MCPMethod, x.method), telemetry.Str(telemetry.TineSession, x.sess.ID))
	x.trace.Traceparent, x.trace.Tracestate = span.Trace()
	return span
}

func (x *exchange) end(ctx context.Context, span *telemetry.Span, res *upstream.Result, err error) {
	if span != nil {
		span.End(record.Outcome(ctx, res, err))
	}
}
