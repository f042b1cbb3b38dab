package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// spanQueue bounds what waits for the collector; further spans are dropped.
	spanQueue     = 4096
	spanBatch     = 512
	exportTimeout = 10 * time.Second
	// maxTraceparent leaves room for later versions, whose fields follow the ones
	// of today; maxTracestate is four times what must be passed on at least.
	maxTraceparent = 256
	maxTracestate  = 2048
	maxSpanText    = 1024
)

// Options say where traces go.
type Options struct {
	Endpoint string            // base URL of an OTLP collector over HTTP, like http://127.0.0.1:4318; empty for no traces
	Headers  map[string]string // sent to the collector
	Sample   float64           // share of traces that begin here, 0 to 1; a trace that began elsewhere is kept or not as it says
	CAFile   string            // certificates to trust beside the system's
	Version  string
	Gateway  string    // id of this gateway
	Redact   *Redactor // applied to texts of spans
	Log      *slog.Logger
}

// Tracing sends spans to a collector. It never waits for it: spans are queued,
// and dropped when the queue is full. All methods may be called at once, and on nil.
//
// Baggage is neither read nor passed on: it is free text of the caller, may hold
// anything, and the servers behind us belong to others.
type Tracing struct {
	queue    sdktrace.SpanProcessor
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	out      *outlet
	redact   *Redactor
}

// NewTracing makes a Tracing, or nil if no endpoint is given. ctx bounds only this
// call. The collector need not run yet.
func NewTracing(ctx context.Context, o Options) (*Tracing, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	target, err := tracesURL(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if !(o.Sample >= 0 && o.Sample <= 1) {
		return nil, fmt.Errorf("telemetry.otlp.sample: %v is not a share; give a number from 0 to 1", o.Sample)
	}
	transport, err := collectorTransport(o.CAFile)
	if err != nil {
		return nil, err
	}
	headers := make(map[string]string, len(o.Headers))
	for k, v := range o.Headers {
		headers[k] = v
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(target),
		otlptracehttp.WithHeaders(headers), // also when empty: the config decides, not this library's environment
		otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport: transport,
			Timeout:   exportTimeout,
			// The headers may hold a token that is meant for this address alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 4 * time.Second, MaxElapsedTime: exportTimeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("make the OTLP exporter: %w", err)
	}
	out := newOutlet(exporter, transport.CloseIdleConnections, o.Log)
	return newTracing(out, o), nil
}

func newTracing(out *outlet, o Options) *Tracing {
	queue := newBatcher(out)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Sample))),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: maxSpanText, AttributeCountLimit: 64,
			EventCountLimit: 16, LinkCountLimit: 16, AttributePerEventCountLimit: 16, AttributePerLinkCountLimit: 16,
		}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "tine"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Gateway),
		)),
		sdktrace.WithSpanProcessor(queue),
	)
	return &Tracing{
		queue: queue, provider: provider, tracer: provider.Tracer("github.com/tine-mcp/tine"), out: out, redact: o.Redact,
	}
}

// Close sends queued spans and ends; if ctx ends first, the rest is dropped.
// Nothing runs any more when it returns. It may be called twice.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, t.out.abandon)
	defer stop()
	// The provider would not even begin to end the queue under a context that is
	// over already.
	err := t.queue.Shutdown(ctx)
	<-t.out.ended
	if err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return t.provider.Shutdown(ctx)
}

// Parent is where a trace comes from: W3C trace context as it stood in the headers
// or in _meta. Other text is ignored, and a new trace begins.
type Parent struct {
	Traceparent, Tracestate string
}

func (p Parent) context() context.Context {
	ctx := context.Background()
	if p.Traceparent == "" || len(p.Traceparent) > maxTraceparent {
		return ctx
	}
	if len(p.Tracestate) > maxTracestate {
		p.Tracestate = ""
	}
	return propagation.TraceContext{}.Extract(ctx, &p)
}

// Valid is a context that others can go on with: p, or an empty one where p is none.
func (p Parent) Valid() Parent {
	ctx := trace.SpanContextFromContext(p.context())
	if !ctx.IsValid() {
		return Parent{}
	}
	p.Tracestate = ctx.TraceState().String()
	return p
}

// Get, Set and Keys make Parent a carrier of the propagator.
func (p *Parent) Get(key string) string {
	switch key {
	case "traceparent":
		return p.Traceparent
	case "tracestate":
		return p.Tracestate
	}
	return ""
}

func (p *Parent) Set(key, value string) {
	switch key {
	case "traceparent":
		p.Traceparent = value
	case "tracestate":
		p.Tracestate = value
	}
}

func (p *Parent) Keys() []string { return []string{"traceparent", "tracestate"} }

// tracesURL is where traces are posted, by the rule for a collector's base URL.
func tracesURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil: // the error would repeat the text, which may hold a password
		return "", errors.New("telemetry.otlp.endpoint is not a URL; give one like http://127.0.0.1:4318")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", errors.New("telemetry.otlp.endpoint must begin with http:// or https:// and name a host, like http://127.0.0.1:4318")
	case u.User != nil:
		return "", errors.New("telemetry.otlp.endpoint must not hold a user or password; put them into telemetry.otlp.headers")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("telemetry.otlp.endpoint must not have a query or fragment; put keys into telemetry.otlp.headers")
	}
	if !strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1/traces") {
		u = u.JoinPath("v1/traces")
	}
	return u.String(), nil
}

func collectorTransport(caFile string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          4,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: exportTimeout,
	}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("telemetry.otlp.ca_file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("telemetry.otlp.ca_file: no certificate in %s; it must be PEM", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}
