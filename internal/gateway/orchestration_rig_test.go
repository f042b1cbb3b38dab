package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
)

// openOrchestrator starts a gateway that speaks the orchestration API, with the
// document of that API.
func openOrchestrator(t *testing.T, yaml string) *worlds {
	t.Helper()
	w := openWith(t, yaml+`servers:
  n: {builtin: memory, scope: session}
  other: {builtin: memory, scope: session}
  one: {builtin: everything, scope: shared}
  off: {builtin: memory, scope: session, enabled: false}
  ctl: {builtin: rollout}
`, func(o *gateway.Options) { o.Orchestrate = true }, map[string]builtin.Kind{
		"memory":     countedIn(),
		"everything": factory(func() *mcp.Server { return sdkServer("everything", nil) }),
		"rollout":    factory(func() *mcp.Server { return sdkServer("rollout", nil) }),
	})
	return &worlds{w, readDocument(t, w, "/openapi.json", "Authorization", "Bearer "+operator)}
}

// countedIn is the server that counts, which may begin with as much as a file has
// bytes.
func countedIn() builtin.Kind {
	k := remembering()
	k.Import = func(_ context.Context, e builtin.Env, template string, _ func(done, total int64)) error {
		b, err := os.ReadFile(template)
		if err != nil {
			return err
		}
		h, err := layer.Open(e.Layers, e.State, &layer.Machine[int]{Apply: func(n int, _ []byte, _ layer.Extent) (int, error) { return n + 1, nil }})
		if err != nil {
			return err
		}
		for range b {
			_, cerr := h.Commit(func(int) ([]byte, io.Reader, int64, error) { return []byte{1}, nil, 0, nil })
			err = errors.Join(err, cerr)
		}
		return errors.Join(err, h.Close())
	}
	return k
}

// instances makes some.
func (w *worlds) instances(t testing.TB, body string, who ...string) []api.Instance {
	t.Helper()
	return want[[]api.Instance](t, w, "POST", "/instances", body, who...)
}

// speak calls a tool by MCP where an instance says that it is, with its token.
func (w *worlds) speak(t *testing.T, i api.Instance, tool string) string {
	t.Helper()
	path, ok := strings.CutPrefix(i.URL, w.ts.URL)
	if !ok {
		t.Fatalf("%s is not below %s", i.URL, w.ts.URL)
	}
	r := w.do(t, "POST", path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool),
		"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Authorization", "Bearer "+i.Token)
	var out struct {
		Result struct{ Content []struct{ Text string } }
	}
	decode(t, r.body, &out)
	if r.status != http.StatusOK || len(out.Result.Content) != 1 {
		t.Fatalf("%s: status %d %s", path, r.status, r.body)
	}
	return out.Result.Content[0].Text
}

// unanswer makes a request with a key one that the gateway was killed over: it
// has made what was asked for and not answered. No gateway may run.
func (w *world) unanswer(t *testing.T, owner, key string) {
	t.Helper()
	db := sqlitetest.Open(t, w.dir)
	defer db.Close()
	if err := db.EndCreation(t.Context(), owner, key, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := db.BeginCreation(t.Context(), store.Creation{Owner: owner, Key: key, At: time.Now()}, time.Time{}); err != nil || !ok {
		t.Fatal(ok, err)
	}
}
