//go:build unix

package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// A collector takes traces over OTLP, as HTTP with protobuf.
type collector struct {
	mu     sync.Mutex
	spans  []span
	text   string // everything, in words
	header http.Header
	wrong  error
}

// span is one that arrived, its ids in hex.
type span struct {
	trace, id, parent, state string
	*trace.Span
	resource map[string]string
}

func (s span) attr(name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// collectAt runs a collector at an address, or at a free one.
func collectAt(t testing.TB, addr string) (c *collector, url string) {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c = &collector{}
	s := &http.Server{Handler: c}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return c, "http://" + l.Addr().String()
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.take(r); err != nil {
		c.mu.Lock()
		c.wrong = err
		c.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) take(r *http.Request) error {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s with %s is no export of traces", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var in collect.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &in); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = r.Header
	c.text += prototext.Format(&in)
	for _, rs := range in.ResourceSpans {
		of := map[string]string{}
		for _, a := range rs.Resource.GetAttributes() {
			of[a.Key] = a.Value.GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, span{
					hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), s.TraceState, s, of,
				})
			}
		}
	}
	return nil
}

// of waits until a trace has so many spans and returns them.
func (c *collector) of(t testing.TB, id string, n int) []span {
	t.Helper()
	var found []span
	err := eventually(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.wrong != nil {
			return final{c.wrong}
		}
		found = found[:0]
		for _, s := range c.spans {
			if s.trace == id {
				found = append(found, s)
			}
		}
		if len(found) < n {
			return fmt.Errorf("trace %s has %d spans of %d that came, want %d", id, len(found), len(c.spans), n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// all is everything that arrived, as text.
func (c *collector) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text
}
