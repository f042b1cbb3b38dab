package telemetry

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP receiver.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	status   int // answered instead of taking spans, where set
	hold     chan struct{}
	spans    []*tracepb.Span
	resource map[string]string
	headers  http.Header
	path     string
	raw      []byte // all that came
}

func newCollector(t *testing.T, withTLS bool) *collector {
	c := &collector{resource: make(map[string]string)}
	c.Server = httptest.NewUnstartedServer(c)
	if withTLS {
		c.StartTLS()
	} else {
		c.Start()
	}
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	hold, status := c.hold, c.status
	c.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	var req coltrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, body...)
	c.headers, c.path = r.Header.Clone(), r.URL.Path
	for _, rs := range req.ResourceSpans {
		for _, kv := range rs.Resource.Attributes {
			c.resource[kv.Key] = kv.Value.GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

func attrsOf(s *tracepb.Span) map[string]string {
	m := make(map[string]string)
	for _, kv := range s.Attributes {
		m[kv.Key] = strings.Trim(strings.SplitN(kv.Value.String(), ":", 2)[1], `"`)
	}
	return m
}

func startTracing(t *testing.T, o Options) *Tracing {
	t.Helper()
	tr, err := NewTracing(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = tr.Close(ctx) // most tests have closed it themselves
	})
	return tr
}

func TestSpansReachACollector(t *testing.T) {
	for _, withTLS := range []bool{false, true} {
		c := newCollector(t, withTLS)
		o := Options{
			Endpoint: c.URL + "/base/", Headers: map[string]string{"X-Collector-Key": "k"},
			Sample: 1, Version: "v1.2.3", Gateway: "gw_1",
		}
		if withTLS {
			o.CAFile = filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(o.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o.Redact = NewRedactor()
		o.Redact.Set([]string{"planted-value"})
		tr := startTracing(t, o)
		root := tr.Start(Parent{}, "tools/call read", Server, Str(MCPMethod, "tools/call"), Str(ToolName, "read"), Str(TineServer, "files"))
		child := root.StartChild("tools/call read", Client, Str(TineSession, "x://u:pw-in-uri@h/planted-value"))
		child.Set(Str(TineServer, "files"), Str("long", strings.Repeat("ü", 4000)))
		child.End("timeout", "no answer from planted-value")
		toolErr := root.StartChild("tool", Internal)
		toolErr.End("tool", "")
		root.End("ok", "")
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(c.spans) != 3 {
			t.Fatalf("%d spans arrived, want 3", len(c.spans))
		}
		if c.path != "/base/v1/traces" || c.headers.Get("X-Collector-Key") != "k" {
			t.Errorf("posted to %s with %v", c.path, c.headers)
		}
		if c.resource["service.name"] != "tine" || c.resource["service.version"] != "v1.2.3" || c.resource["service.instance.id"] != "gw_1" {
			t.Errorf("resource %v", c.resource)
		}
		gotChild, gotTool, gotRoot := c.spans[0], c.spans[1], c.spans[2]
		if !bytes.Equal(gotChild.ParentSpanId, gotRoot.SpanId) || !bytes.Equal(gotChild.TraceId, gotRoot.TraceId) || len(gotRoot.ParentSpanId) != 0 {
			t.Errorf("child %x below %x, root %x", gotChild.SpanId, gotChild.ParentSpanId, gotRoot.SpanId)
		}
		if fmt.Sprintf("%x", gotRoot.TraceId) != root.ID() {
			t.Errorf("ID() = %s, sent %x", root.ID(), gotRoot.TraceId)
		}
		if gotRoot.Kind != tracepb.Span_SPAN_KIND_SERVER || gotChild.Kind != tracepb.Span_SPAN_KIND_CLIENT || gotTool.Kind != tracepb.Span_SPAN_KIND_INTERNAL {
			t.Errorf("kinds %v %v %v", gotRoot.Kind, gotChild.Kind, gotTool.Kind)
		}
		if a := attrsOf(gotRoot); a[MCPMethod] != "tools/call" || a[ToolName] != "read" || a[TineServer] != "files" || a[ErrorType] != "" {
			t.Errorf("root attributes %v", a)
		}
		if gotRoot.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
			t.Errorf("root status %v", gotRoot.Status)
		}
		if a := attrsOf(gotChild); a[ErrorType] != "timeout" || len(a["long"]) > 4*maxSpanText {
			t.Errorf("child attributes %v", a)
		}
		if gotChild.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || gotChild.Status.GetMessage() != "no answer from ****" {
			t.Errorf("child status %v", gotChild.Status)
		}
		if a := attrsOf(gotTool); a[ErrorType] != "tool_error" {
			t.Errorf("tool attributes %v", a)
		}
		if bytes.Contains(c.raw, []byte("planted-value")) || bytes.Contains(c.raw, []byte("pw-in-uri")) {
			t.Error("a secret was sent")
		}
	}
}

func TestTraceContext(t *testing.T) {
	const (
		id      = "4bf92f3577b34da6a3ce929d0e0e4736"
		sampled = "00-" + id + "-00f067aa0ba902b7-01"
		not     = "00-" + id + "-00f067aa0ba902b7-00"
	)
	c := newCollector(t, false)
	for _, tt := range []struct {
		name   string
		parent Parent
		sample float64
		joins  bool
		sent   bool
		state  string
	}{
		{"none, kept", Parent{}, 1, false, true, ""},
		{"none, not kept", Parent{}, 0, false, false, ""},
		{"sampled elsewhere", Parent{sampled, "a=1,b=2"}, 0, true, true, "a=1,b=2"},
		{"not sampled elsewhere", Parent{not, "a=1"}, 1, true, false, "a=1"},
		{"a later version", Parent{"01" + sampled[2:] + "-more", ""}, 0, true, true, ""},
		{"bad state", Parent{sampled, "a=1,,=,"}, 0, true, true, ""},
		{"long state", Parent{sampled, "a=" + strings.Repeat("x", maxTracestate)}, 0, true, true, ""},
		{"state alone", Parent{"", "a=1"}, 1, false, true, ""},
		{"no hex", Parent{"00-" + strings.Repeat("z", 32) + "-00f067aa0ba902b7-01", "a=1"}, 1, false, true, ""},
		{"zero id", Parent{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", ""}, 1, false, true, ""},
		{"version ff", Parent{"ff" + sampled[2:], ""}, 1, false, true, ""},
		{"too long", Parent{"01" + sampled[2:] + "-" + strings.Repeat("0", maxTraceparent), ""}, 1, false, true, ""},
		{"garbage", Parent{"\x00\xff\r\nX: y", "\r\n"}, 1, false, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := startTracing(t, Options{Endpoint: c.URL, Sample: tt.sample})
			s := tr.Start(tt.parent, "x", Server)
			child := s.StartChild("y", Client)
			parent, state := child.Trace()
			if len(parent) != 55 || parent[3:35] != s.ID() || child.ID() != s.ID() {
				t.Errorf("hands on %q of trace %s", parent, s.ID())
			}
			if own, _ := s.Trace(); own == parent || own == tt.parent.Traceparent {
				t.Errorf("spans %q and %q are not their own", own, parent)
			}
			if joins := s.ID() == id; joins != tt.joins {
				t.Errorf("trace %s; joins: %v, want %v", s.ID(), joins, tt.joins)
			}
			if state != tt.state {
				t.Errorf("state %q, want %q", state, tt.state)
			}
			if wantFlag := map[bool]string{true: "-01", false: "-00"}[tt.sent]; !strings.HasSuffix(parent, wantFlag) {
				t.Errorf("hands on %q, want %s at its end", parent, wantFlag)
			}
			child.End("ok", "")
			s.End("ok", "")
			c.mu.Lock()
			c.spans = nil
			c.mu.Unlock()
			if err := tr.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if sent := len(c.spans) == 2; sent != tt.sent {
				t.Errorf("%d spans sent, want sent: %v", len(c.spans), tt.sent)
			}
		})
	}
}

func TestNilTracing(t *testing.T) {
	tr, err := NewTracing(t.Context(), Options{})
	if tr != nil || err != nil {
		t.Fatalf("without an endpoint: %v, %v", tr, err)
	}
	s := tr.Start(Parent{}, "x", Server, Str("a", "b"))
	s = s.StartChild("y", Client)
	s.Set(Str("a", "1"))
	if p, st := s.Trace(); p != "" || st != "" || s.ID() != "" {
		t.Errorf("a nil span says %q %q %q", p, st, s.ID())
	}
	s.End("ok", "")
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracingOptionsAreChecked(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"http://":        {Endpoint: "127.0.0.1:4318"},
		"name a host":    {Endpoint: "http://"},
		"headers":        {Endpoint: "http://user:pw-of-endpoint@h:4318"},
		"not a URL":      {Endpoint: "http://pw-of-endpoint@h:x/"},
		"query":          {Endpoint: "http://h/?key=pw-of-endpoint"},
		"0 to 1":         {Endpoint: "http://h", Sample: 1.5},
		"sample":         {Endpoint: "http://h", Sample: math.NaN()},
		"no certificate": {Endpoint: "https://h", CAFile: empty},
		"ca_file":        {Endpoint: "https://h", CAFile: empty + ".missing"},
	} {
		_, err := NewTracing(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw-of-endpoint") {
			t.Errorf("%+v: %v, want something with %q", o, err, want)
		}
	}
}

// TestCollectorGoesAndComes: failures are said once, and once when they end; none
// reaches the SDK, which would print it.
func TestCollectorGoesAndComes(t *testing.T) {
	var printed []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { printed = append(printed, err) }))
	c := newCollector(t, false)
	var log testkit.Log
	tr := startTracing(t, Options{Endpoint: c.URL, Sample: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	send := func() {
		for range 3 {
			tr.Start(Parent{}, "x", Server).End("ok", "")
		}
		if err := tr.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lines := func() (down, up int) {
		return strings.Count(log.String(), "don't reach"), strings.Count(log.String(), "reach the collector again")
	}
	send()
	if d, u := lines(); d != 0 || u != 0 {
		t.Fatalf("all is well, but: %s", &log)
	}
	c.answer(http.StatusUnauthorized)
	send()
	send()
	if d, u := lines(); d != 1 || u != 0 {
		t.Fatalf("down twice: %s", &log)
	}
	c.answer(0)
	send()
	send()
	if d, u := lines(); d != 1 || u != 1 || !strings.Contains(log.String(), "dropped=6") {
		t.Fatalf("up again: %s", &log)
	}
	c.answer(http.StatusFound) // which must not be followed
	send()
	if d, u := lines(); d != 2 || u != 1 || strings.Count(log.String(), "level=WARN") != 3 {
		t.Fatalf("down again: %s", &log)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(printed) > 0 {
		t.Errorf("the SDK was told of %v", printed)
	}
	if len(c.spans) != 9 {
		t.Errorf("%d spans arrived, want 9", len(c.spans))
	}
}

func TestNobodyListens(t *testing.T) {
	c := newCollector(t, false)
	url := c.URL
	c.Close()
	var log testkit.Log
	tr := startTracing(t, Options{Endpoint: url, Sample: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s := tr.Start(Parent{}, "x", Server)
	s.End("ok", "")
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Count(log.String(), "don't reach") != 1 {
		t.Errorf("log: %s", &log)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	tr.Start(Parent{}, "late", Server).End("ok", "") // does no harm
}

// TestCollectorThatHangs: spans beyond the queue are dropped and no caller waits, and
// Close ends when its context does.
func TestCollectorThatHangs(t *testing.T) {
	c := newCollector(t, false)
	c.hold = make(chan struct{})
	defer close(c.hold)
	tr := startTracing(t, Options{Endpoint: c.URL, Sample: 1})
	for range 3 * spanQueue {
		tr.Start(Parent{}, "x", Server).End("ok", "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Close(ctx); err == nil {
		t.Error("Close says that all was sent")
	}
	select {
	case <-tr.out.ended:
	default:
		t.Error("something still sends")
	}
}

// TestQueueIsBounded holds the export for good and counts what is let through
// afterwards, in a time of its own.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gatedExporter{open: make(chan struct{})}
		out := newOutlet(gate, func() {}, nil)
		tr := newTracing(out, Options{Sample: 1})
		for range 4 * spanQueue {
			tr.Start(Parent{}, "x", Server).End("ok", "")
		}
		time.Sleep(time.Minute) // of the bubble: everything that can be taken was taken
		close(gate.open)
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := gate.spans; n < spanQueue || n > spanQueue+spanBatch {
			t.Errorf("%d spans were kept, want about %d", n, spanQueue)
		}
	})
}

type gatedExporter struct {
	open  chan struct{}
	spans int
}

func (g *gatedExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	<-g.open
	g.spans += len(spans)
	return nil
}

func (g *gatedExporter) Shutdown(context.Context) error { return nil }

func TestSpansAtOnce(t *testing.T) {
	c := newCollector(t, false)
	tr := startTracing(t, Options{Endpoint: c.URL, Sample: 1})
	root := tr.Start(Parent{}, "root", Server)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				s := root.StartChild("child", Client)
				s.Trace()
				s.End("ok", "")
			}
		})
	}
	wg.Wait()
	root.End("ok", "")
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 161 {
		t.Errorf("%d spans arrived, want 161", len(c.spans))
	}
	ids := make([]string, 0, len(c.spans))
	for _, s := range c.spans {
		ids = append(ids, string(s.SpanId))
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 161 {
		t.Error("span ids are not unique")
	}
}

// TestUnknownAuthority: a collector whose certificate is not trusted gets
// nothing.
func TestUnknownAuthority(t *testing.T) {
	c := newCollector(t, true)
	c.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	var log testkit.Log
	tr := startTracing(t, Options{Endpoint: c.URL, Sample: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	tr.Start(Parent{}, "x", Server).End("ok", "")
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 0 || !strings.Contains(log.String(), x509.UnknownAuthorityError{}.Error()) {
		t.Errorf("%d spans; log: %s", len(c.spans), &log)
	}
}

func BenchmarkSpan(b *testing.B) {
	for _, sample := range []float64{0, 1} {
		b.Run(fmt.Sprint("sample ", sample), func(b *testing.B) {
			out := newOutlet(&gatedExporter{open: closed()}, func() {}, nil)
			tr := newTracing(out, Options{Sample: sample, Redact: NewRedactor()})
			b.ReportAllocs()
			for b.Loop() {
				s := tr.Start(Parent{}, "tools/call read", Server, Str(MCPMethod, "tools/call"), Str(ToolName, "read"))
				s.Trace()
				s.End("ok", "")
			}
			if err := tr.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
