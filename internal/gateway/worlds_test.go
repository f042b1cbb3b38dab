package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/layer"
)

// remembering is a built-in server that counts and does not forget.
func remembering() builtin.Kind {
	machine := &layer.Machine[int]{Apply: func(n int, _ []byte, _ layer.Extent) (int, error) { return n + 1, nil }}
	return builtin.Kind{
		Remembers: true,
		Read: func(_ context.Context, e builtin.Env, each func(driver.Item) error) error {
			h, err := layer.Open(e.Layers, e.State, machine)
			if err != nil {
				return err
			}
			return errors.Join(each(driver.Item{Kind: "count", Value: fmt.Append(nil, h.Value())}), h.Close())
		},
		New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			h, err := layer.Open(e.Layers, e.State, machine)
			if err != nil {
				return nil, nil, err
			}
			s := sdkServer("remembering", nil)
			s.AddTool(&mcp.Tool{Name: "add", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				n, err := h.Commit(func(int) ([]byte, io.Reader, int64, error) { return []byte{1}, nil, 0, nil })
				if err != nil {
					return nil, err
				}
				return text(fmt.Sprint(n)), nil
			})
			s.AddTool(&mcp.Tool{Name: "grow", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				b := make([]byte, 2<<20)
				_, _ = rand.Read(b) // nothing makes it smaller
				n, err := h.Commit(func(int) ([]byte, io.Reader, int64, error) { return []byte{1}, bytes.NewReader(b), int64(len(b)), nil })
				if err != nil {
					return nil, err
				}
				return text(fmt.Sprint(n)), nil
			})
			s.AddTool(&mcp.Tool{Name: "show", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return text(fmt.Sprint(h.Value())), nil
			})
			return s, h, nil
		},
	}
}

// teamYAML has people of every role.
const teamYAML = `auth:
  tokens:
    - {name: ada, token: ada-ada-ada-ada-ada}
    - {name: bob, token: bob-bob-bob-bob-bob}
    - {name: eve, token: eve-eve-eve-eve-eve, role: viewer}
    - {name: ops, token: ops-ops-ops-ops-ops, role: operator}
`

var (
	asEve = []string{"Authorization", "Bearer eve-eve-eve-eve-eve"}
	asOps = []string{"Authorization", "Bearer ops-ops-ops-ops-ops"}
)

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// worlds is a gateway whose sessions remember something, and its document.
type worlds struct {
	*world
	doc *openAPI
}

func openWorlds(t *testing.T, yaml string) *worlds {
	t.Helper()
	return openWorldsWith(t, yaml, nil)
}

// openWorldsWith changes what the gateway works with.
func openWorldsWith(t *testing.T, yaml string, change func(*gateway.Options)) *worlds {
	t.Helper()
	w := openWith(t, yaml+"servers:\n  n: {builtin: memory, scope: session}\n", change, map[string]builtin.Kind{"memory": remembering()})
	return &worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}
}

// ask makes a request and holds its answer against the document.
func (w *worlds) ask(t testing.TB, method, path, body string, who ...string) *reply {
	t.Helper()
	r := w.do(t, method, path, body, append([]string{"Content-Type", "application/json"}, who...)...)
	if t, ok := t.(*testing.T); ok {
		w.doc.check(t, method, path, r)
	}
	return r
}

// want makes a request that is answered well.
func want[T any](t testing.TB, w *worlds, method, path, body string, who ...string) (out T) {
	t.Helper()
	r := w.ask(t, method, path, body, who...)
	if r.status != http.StatusOK {
		t.Fatalf("%s %s: status %d %s", method, path, r.status, r.body)
	}
	dec := json.NewDecoder(bytes.NewReader(r.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, r.body)
	}
	return out
}

// refused makes one that must fail.
func (w *worlds) refused(t testing.TB, status int, method, path, body string, who ...string) api.Error {
	t.Helper()
	r := w.ask(t, method, path, body, who...)
	var e api.Error
	if err := json.Unmarshal(r.body, &e); err != nil || r.status != status || e.Kind == "" || e.Message == "" {
		t.Errorf("%s %s %s: status %d %s, want %d", method, path, body, r.status, r.body, status)
	}
	return e
}

// gone makes a DELETE.
func (w *worlds) gone(t testing.TB, path string, who ...string) {
	t.Helper()
	if r := w.ask(t, "DELETE", path, "", who...); r.status != http.StatusNoContent || len(r.body) > 0 {
		t.Errorf("DELETE %s: status %d %s", path, r.status, r.body)
	}
}

func (w *worlds) open(t testing.TB, body string, who ...string) api.OpenedSession {
	t.Helper()
	return want[api.OpenedSession](t, w, "POST", "/v1/sessions", body, who...)
}

// tool calls a tool of a session and returns the text of its result.
func (w *worlds) tool(t testing.TB, session, name string, who ...string) string {
	t.Helper()
	out := want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__%s","session":%q}`, name, session), who...)
	var r struct{ Content []struct{ Text string } }
	decode(t, out.Result, &r)
	if len(r.Content) != 1 {
		t.Fatalf("got %s", out.Result)
	}
	return r.Content[0].Text
}
