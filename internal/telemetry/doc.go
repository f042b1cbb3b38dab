// Package telemetry is how Tine is seen from outside: logs, Prometheus metrics and
// OpenTelemetry traces, and the Redactor that keeps secrets out of them. Nothing in
// it is global but the count of panics; a nil Metrics, ServerMetrics, Tracing, Span or Redactor does
// nothing, so that callers need not ask whether something is on.
package telemetry
