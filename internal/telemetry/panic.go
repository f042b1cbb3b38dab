package telemetry

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tine-mcp/tine/api"
)

// Where panics are contained.
const (
	InEdge     = "edge"     // requests and streams of clients
	InUpstream = "upstream" // what servers send
	InDriver   = "driver"   // instances, and what drivers fetch
	InBuiltin  = "builtin"  // servers inside the binary
	InEgress   = "egress"   // the proxy of sandboxes
	InRunner   = "runner"   // what the executors of runs write
)

// panics is the one thing here that is global: it is a figure of the process, as
// those of the Go runtime are, and a goroutine that panics has no Metrics at hand.
var panics = func() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tine_panics_total", Help: "Mistakes of the gateway that were contained to one request or connection; the log has the stack.",
	}, []string{"where"})
	for _, where := range []string{InEdge, InUpstream, InDriver, InBuiltin, InEgress, InRunner} {
		c.WithLabelValues(where)
	}
	return c
}()

// Contain keeps a panic from ending the gateway. A goroutine that handles bytes
// from outside defers it at its top:
//
//	defer telemetry.Contain(log, telemetry.InUpstream, server, func(err error) { t.fail(err) })
//
// The panic is logged with its stack and counted, and end gets an error of kind
// infrastructure, to end the goroutine's request or connection. A nil end is for
// goroutines that no caller waits for. About names the server or client.
func Contain(log *slog.Logger, where, about string, end func(error)) {
	v := recover()
	if v == nil {
		return
	}
	err := Panicked(log, where, about, v)
	if end != nil {
		end(err)
	}
}

// Panicked is Contain for code that has recovered itself: it logs and counts, and
// returns the error.
func Panicked(log *slog.Logger, where, about string, v any) error {
	panics.WithLabelValues(where).Inc()
	log.Error("the gateway panicked; this ends one request or connection", "where", where, "about", about, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return &api.Error{
		Kind:    api.KindInfrastructure,
		Message: "the gateway failed inside while it handled this; its log has the stack",
	}
}
