//go:build unix

package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
)

// clientSpan is the span of a client that calls.
type clientSpan struct{ trace, id, state string }

func newClientSpan() clientSpan {
	var b [24]byte
	rand.Read(b[:])
	return clientSpan{hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:]), "vendor=" + hex.EncodeToString(b[:4]) + ",other=1"}
}

func (s clientSpan) parent(flags string) string { return "00-" + s.trace + "-" + s.id + "-" + flags }

// traced calls a tell tool within a span and returns what the server was told.
// The trace context stands in the header, or in _meta.
func traced(t *testing.T, url, tool string, parent, state string, inMeta, modern bool) teller.Told {
	t.Helper()
	header := http.Header{}
	meta := map[string]any{}
	if parent != "" {
		if inMeta {
			meta["traceparent"], meta["tracestate"] = parent, state
		} else {
			header.Set("Traceparent", parent)
			header.Set("Tracestate", state)
		}
	}
	args := map[string]any{"password": "not-in-a-trace", "word": "nor-is-this"}
	var answer json.RawMessage
	if modern {
		for k, v := range modernHeader("tools/call", tool) {
			header[k] = v
		}
		var body map[string]any
		if err := json.Unmarshal([]byte(modernCall(1, tool, args)), &body); err != nil {
			t.Fatal(err)
		}
		all := body["params"].(map[string]any)["_meta"].(map[string]any)
		for k, v := range meta {
			all[k] = v
		}
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := post(t.Context(), url, header, string(raw))
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.answer()
		if err != nil || m.Error != nil {
			t.Fatal(err, m.Error)
		}
		answer = m.Result
	} else {
		s, err := open(t.Context(), url, header)
		if err != nil {
			t.Fatal(err)
		}
		params := map[string]any{"name": tool, "arguments": args}
		if len(meta) > 0 {
			params["_meta"] = meta
		}
		if answer, err = s.request(t.Context(), "tools/call", params); err != nil {
			t.Fatal(err)
		}
	}
	var r toolResult
	if err := json.Unmarshal(answer, &r); err != nil || r.IsError {
		t.Fatalf("%s: %v", answer, err)
	}
	return told(t, r.text())
}

// metaTrace is the trace context that stood in a request's _meta.
func metaTrace(t *testing.T, v teller.Told) (parent, state string) {
	t.Helper()
	var m struct {
		Traceparent string `json:"traceparent"`
		Tracestate  string `json:"tracestate"`
	}
	if len(v.Meta) > 0 {
		if err := json.Unmarshal(v.Meta, &m); err != nil {
			t.Fatal(err)
		}
	}
	return m.Traceparent, m.Tracestate
}

// tracedServers has a teller of each era over each transport.
func tracedServers(t *testing.T) string {
	program := mustTellServer(t)
	return "servers:\n" +
		"  oldhttp: {url: " + tellHTTP(t, &teller.Server{}) + "}\n" +
		"  newhttp: {url: " + tellHTTP(t, &teller.Server{Modern: true}) + "}\n" +
		yamlServer("oldstdio", program, nil, "scope: shared") +
		yamlServer("newstdio", program, []string{"-modern"}, "scope: shared")
}

// TestTrace follows one trace from a client's span through the gateway's two to
// the server, over every transport and era, with the context in the header and
// in _meta.
func TestTrace(t *testing.T) {
	t.Parallel()
	c, endpoint := collectAt(t, "")
	g := startGateway(t, "telemetry: {otlp: {endpoint: "+endpoint+", headers: {X-Collector: here}}}\n"+tracedServers(t))
	type run struct {
		server         string
		inMeta, modern bool
		client         clientSpan
		got            teller.Told
	}
	var runs []run
	for _, server := range []string{"oldhttp", "newhttp", "oldstdio", "newstdio"} {
		for _, inMeta := range []bool{false, true} {
			for _, modern := range []bool{false, true} {
				r := run{server: server, inMeta: inMeta, modern: modern, client: newClientSpan()}
				url, tool := g.url+"/mcp", server+"__tell"
				if inMeta != modern { // one server's own view too
					url, tool = url+"/"+server, "tell"
				}
				r.got = traced(t, url, tool, r.client.parent("01"), r.client.state, inMeta, modern)
				runs = append(runs, r)
			}
		}
	}
	for _, r := range runs {
		t.Run(fmt.Sprintf("%s inMeta=%v modern=%v", r.server, r.inMeta, r.modern), func(t *testing.T) {
			spans := c.of(t, r.client.trace, 2)
			var asked, asks *span
			for i := range spans {
				if !strings.HasPrefix(spans[i].Name, "tools/call") {
					continue // the handshake of a client that sends its context with everything
				}
				switch spans[i].Kind {
				case trace.Span_SPAN_KIND_SERVER:
					asked = &spans[i]
				case trace.Span_SPAN_KIND_CLIENT:
					asks = &spans[i]
				}
			}
			if asked == nil || asks == nil {
				t.Fatalf("spans %v", spans)
			}
			if asked.parent != r.client.id || asks.parent != asked.id {
				t.Errorf("client's span %s, server span %s below %s, client span %s below %s", r.client.id, asked.id, asked.parent, asks.id, asks.parent)
			}
			want := "00-" + r.client.trace + "-" + asks.id + "-01"
			parent, state := metaTrace(t, r.got)
			if parent != want || state != r.client.state {
				t.Errorf("_meta says %q %q, want %q %q", parent, state, want, r.client.state)
			}
			if strings.HasSuffix(r.server, "http") {
				if p, s := r.got.Header.Get("Traceparent"), r.got.Header.Get("Tracestate"); p != want || s != r.client.state {
					t.Errorf("the header says %q %q, want %q %q", p, s, want, r.client.state)
				}
			}
			for _, s := range []*span{asked, asks} {
				if s.state != r.client.state {
					t.Errorf("span %s has the state %q, want %q", s.Name, s.state, r.client.state)
				}
				if s.attr("mcp.method.name") != "tools/call" || s.resource["service.name"] != "tine" || s.EndTimeUnixNano < s.StartTimeUnixNano {
					t.Errorf("span %v of %v", s.Span, s.resource)
				}
			}
			if asks.attr("gen_ai.tool.name") != "tell" || asks.attr("tine.server") != r.server {
				t.Errorf("client span %v", asks.Span)
			}
			if n := len(g.callsOfTrace(t, r.client.trace)); n != 1 {
				t.Errorf("%d calls in the journal have the trace", n)
			}
		})
	}
	for _, word := range []string{"not-in-a-trace", "nor-is-this"} {
		if strings.Contains(c.all(), word) {
			t.Errorf("the argument %q is in a trace", word)
		}
	}
	if c.header.Get("X-Collector") != "here" {
		t.Errorf("the collector got the headers %v", c.header)
	}
}

func (g *gateway) callsOfTrace(t *testing.T, id string) []string {
	t.Helper()
	list, err := g.control(t, "").Calls(t.Context(), client.CallQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range list.Calls {
		if c.Trace == id {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// TestTraceBegins checks a call without a trace: one begins at the gateway, and
// the server goes on with it.
func TestTraceBegins(t *testing.T) {
	t.Parallel()
	c, endpoint := collectAt(t, "")
	g := startGateway(t, "telemetry: {otlp: {endpoint: "+endpoint+"}}\n"+tracedServers(t))
	begun := map[string]string{}
	for _, bad := range []string{"", "00-nonsense", "00-00000000000000000000000000000000-0000000000000000-01"} {
		parent, state := metaTrace(t, traced(t, g.url+"/mcp", "oldstdio__tell", bad, "a=b", true, false))
		parts := strings.Split(parent, "-")
		if len(parts) != 4 || parts[3] != "01" || state != "" {
			t.Fatalf("with %q the server is told %q %q", bad, parent, state)
		}
		begun[bad] = parts[1]
	}
	for bad, id := range begun {
		for _, s := range c.of(t, id, 2) {
			if root := s.Kind == trace.Span_SPAN_KIND_SERVER; root != (s.parent == "") {
				t.Errorf("with %q: %v span %s has the parent %q", bad, s.Kind, s.Name, s.parent)
			}
		}
	}
}

// TestTraceUnsampled checks that what is not kept is passed on all the same.
func TestTraceUnsampled(t *testing.T) {
	t.Parallel()
	c, endpoint := collectAt(t, "")
	g := startGateway(t, "telemetry: {otlp: {endpoint: "+endpoint+", sample: 0}}\n"+tracedServers(t))
	for _, server := range []string{"oldhttp", "newhttp", "oldstdio", "newstdio"} {
		for _, inMeta := range []bool{false, true} {
			from := newClientSpan()
			got := traced(t, g.url+"/mcp", server+"__tell", from.parent("00"), from.state, inMeta, false)
			parent, state := metaTrace(t, got)
			if !strings.HasPrefix(parent, "00-"+from.trace+"-") || !strings.HasSuffix(parent, "-00") || state != from.state {
				t.Errorf("%s inMeta=%v: _meta says %q %q of %q %q", server, inMeta, parent, state, from.parent("00"), from.state)
			}
			if h := got.Header.Get("Traceparent"); strings.HasSuffix(server, "http") && h != parent {
				t.Errorf("%s inMeta=%v: the header says %q, _meta %q", server, inMeta, h, parent)
			}
		}
	}
	if parent, _ := metaTrace(t, traced(t, g.url+"/mcp", "oldstdio__tell", "", "", false, false)); !strings.HasSuffix(parent, "-00") {
		t.Errorf("a trace that begins here and is not kept is told as %q", parent)
	}
	// One that the client keeps is kept: when it has come, the others would have.
	kept := newClientSpan()
	traced(t, g.url+"/mcp", "oldstdio__tell", kept.parent("01"), "", true, false)
	c.of(t, kept.trace, 2)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.trace != kept.trace {
			t.Errorf("span %s of trace %s came, which is not sampled", s.Name, s.trace)
		}
	}
}

// TestTraceCollectorLater has no collector at the start: calls work, and traces
// arrive once it is there.
func TestTraceCollectorLater(t *testing.T) {
	t.Parallel()
	addr, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "telemetry: {otlp: {endpoint: \"http://"+addr+"\"}}\n"+tracedServers(t))
	early := newClientSpan()
	traced(t, g.url+"/mcp", "oldhttp__tell", early.parent("01"), "", false, false)
	c, _ := collectAt(t, addr)
	// What is sent while it is away may be dropped, so there is always more.
	err = eventually(func() error {
		traced(t, g.url+"/mcp", "oldhttp__tell", early.parent("01"), "", false, false)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.spans) == 0 {
			return fmt.Errorf("no span arrived")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.of(t, early.trace, 2)
}

// TestTraceFailures checks what spans say of calls that fail.
func TestTraceFailures(t *testing.T) {
	t.Parallel()
	c, endpoint := collectAt(t, "")
	g := startGateway(t, "telemetry: {otlp: {endpoint: "+endpoint+"}}\n"+tracedServers(t)+
		"  dead: {url: \"http://127.0.0.1:1/mcp\", policy: {retry: off, breaker: off}}\n")
	s := mustOpen(t, g.url+"/mcp")
	want := map[string]string{"oldhttp__fail": "tool_error", "oldhttp__refuse": "tool_error", "dead__x": "infrastructure"}
	from := map[string]clientSpan{}
	for tool := range want {
		from[tool] = newClientSpan()
		_, err := s.request(t.Context(), "tools/call", map[string]any{
			"name": tool, "arguments": map[string]any{"text": "went wrong"}, "_meta": map[string]any{"traceparent": from[tool].parent("01")},
		})
		if err != nil && tool != "oldhttp__refuse" {
			t.Error(err)
		}
	}
	for tool, want := range want {
		for _, sp := range c.of(t, from[tool].trace, 2) {
			if got := sp.attr("error.type"); got != want || sp.Status.GetCode() != trace.Status_STATUS_CODE_ERROR {
				t.Errorf("%s: the %v span has error.type %q and status %v, want %q", tool, sp.Kind, got, sp.Status, want)
			}
		}
	}
}
