package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveSDK puts an SDK server behind HTTP: stateless ones speak 2026-07-28,
// stateful ones the revisions before it.
func serveSDK(t *testing.T, s *mcp.Server, modern bool) string {
	t.Helper()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: modern, PropagateRequestCancellation: true})
	ts := httptest.NewServer(h)
	t.Cleanup(func() {
		for ss := range s.Sessions() {
			_ = ss.Close()
		}
		ts.Close()
	})
	return ts.URL
}

func sdkServer(name string, o *mcp.ServerOptions) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, o)
}

var anyObject = map[string]any{"type": "object"}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// textOf returns the text of a result.
func textOf(t testing.TB, r *mcp.CallToolResult) string {
	t.Helper()
	if len(r.Content) != 1 {
		t.Fatalf("%d content items, want one", len(r.Content))
	}
	c, ok := r.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("content is %T", r.Content[0])
	}
	return c.Text
}

// connect connects an SDK client of one era.
func (w *world) connect(t *testing.T, path string, modern bool, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return w.connectTransport(t, &mcp.StreamableClientTransport{Endpoint: w.at(path), HTTPClient: w.http}, modern, o)
}

func (w *world) connectTransport(t *testing.T, tr mcp.Transport, modern bool, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	version := legacyVersion
	if modern {
		version = modernVersion
	}
	// The SDK's event stream lives as long as this context, so it gets no less.
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, o).Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect (modern=%v): %v", modern, err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}
