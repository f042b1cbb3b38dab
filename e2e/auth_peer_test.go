//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// A guarded is an MCP server that takes an issuer's tokens and nothing else. It
// keeps every header it got and counts what its tools did.
type guarded struct {
	url string
	iss *issuertest.Issuer

	executed atomic.Int64 // calls of tools
	refused  atomic.Int64 // requests

	mu       sync.Mutex
	headers  []http.Header
	last     string            // token that was taken
	subjects map[string]string // of tokens that were
}

// guard starts one. Kinds are legacy, modern and sse.
func guard(t *testing.T, iss *issuertest.Issuer, kind string) *guarded {
	g := &guarded{iss: iss, subjects: map[string]string{}}
	s := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	object := map[string]any{"type": "object"}
	s.AddTool(&mcp.Tool{Name: "whoami", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		g.executed.Add(1)
		token := g.taken() // the SDK's handler of the first transport tells nothing of the request
		if r.Extra != nil {
			token = strings.TrimPrefix(r.Extra.Header.Get("Authorization"), "Bearer ")
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: g.subjects[token]}}}, nil
	})
	var h http.Handler
	of := func(*http.Request) *mcp.Server { return s }
	if kind == "sse" {
		h = mcp.NewSSEHandler(of, nil)
	} else {
		h = mcp.NewStreamableHTTPHandler(of, &mcp.StreamableHTTPOptions{Stateless: kind == "modern"})
	}
	ts := httptest.NewServer(nil)
	g.url = ts.URL + "/mcp"
	ts.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.headers = append(g.headers, r.Header.Clone())
		g.mu.Unlock()
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"resource": g.url, "authorization_servers": []string{iss.URL()}, "scopes_supported": []string{"tools"}})
			return
		}
		if _, err := g.claims(r.Header); err != nil {
			g.refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+ts.URL+`/.well-known/oauth-protected-resource/mcp", scope="tools"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	t.Cleanup(func() {
		for ss := range s.Sessions() {
			_ = ss.Close()
		}
		ts.CloseClientConnections()
		ts.Close()
	})
	return g
}

func (g *guarded) claims(h http.Header) (map[string]any, error) {
	token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, errors.New("a token is needed")
	}
	claims, err := g.iss.Check(token, g.url)
	if err == nil {
		g.mu.Lock()
		g.last, g.subjects[token] = token, fmt.Sprint(claims["sub"])
		g.mu.Unlock()
	}
	return claims, err
}

// taken is the token that was used last.
func (g *guarded) taken() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// revoke makes the token that was used last worthless.
func (g *guarded) revoke() { g.iss.Revoke(g.taken()) }

// all is every header that came so far.
func (g *guarded) all() []http.Header {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.headers)
}

// wantNever looks for secrets in all that came.
func (g *guarded) wantNever(t *testing.T, secrets ...string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.headers) == 0 {
		t.Error("the server was never asked")
	}
	for _, h := range g.headers {
		for name, values := range h {
			for _, s := range secrets {
				if strings.Contains(strings.Join(values, "\n"), s) {
					t.Fatalf("the header %s that came to the server holds a token of the caller: %q", name, values)
				}
			}
		}
	}
}

// kindYAML is what a config says of a server of a kind.
func kindYAML(kind string) string {
	if kind == "sse" {
		return "transport: sse, "
	}
	return ""
}

// whoami calls the tool in one of the eras and returns who the server saw.
func whoami(ctx context.Context, url, token, tool string, modern bool) (string, error) {
	h := http.Header{}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
	if modern {
		h = modernHeader("tools/call", tool)
		body = modernCall(1, tool, map[string]any{})
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	r, err := post(ctx, url, h, body)
	if err != nil {
		return "", err
	}
	m, err := r.answer()
	if err != nil {
		return "", err
	}
	if m.Error != nil {
		return "", m.Error
	}
	var res toolResult
	if err := json.Unmarshal(m.Result, &res); err != nil {
		return "", err
	}
	if res.IsError {
		return "", fmt.Errorf("%s %s", res.text(), res.Meta["tine/error"])
	}
	return res.text(), nil
}

// A rush calls a tool with some callers at once until it is stopped.
type rush struct {
	calls  atomic.Int64
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	failed []error
}

func startRush(t testing.TB, callers int, call func(ctx context.Context, i int) error) *rush {
	ctx, cancel := context.WithCancel(t.Context())
	l := &rush{stop: cancel}
	for i := range callers {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				// A call that has begun is let finish: only its answer tells.
				err := call(context.WithoutCancel(ctx), i)
				l.calls.Add(1)
				if err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// end stops the rush and wants every call to have worked.
func (l *rush) end(t testing.TB) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	if n := len(l.failed); n > 0 {
		t.Errorf("%d of %d calls failed, the first with: %v", n, l.calls.Load(), l.failed[0])
	}
}

// more waits for further calls.
func (l *rush) more(t testing.TB, n int64) {
	t.Helper()
	until := l.calls.Load() + n
	if err := eventually(func() error {
		if now := l.calls.Load(); now < until {
			return fmt.Errorf("%d calls, want %d", now, until)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
