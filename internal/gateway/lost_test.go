package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// TestLostState checks that every caller that asks for a state that can't be read
// any more is told so, and that another try does not help.
func TestLostState(t *testing.T) {
	t.Parallel()
	kind, gone := remembering(), atomic.Bool{}
	was := kind.New
	kind.New = func(e builtin.Env) (*mcp.Server, io.Closer, error) {
		if gone.Load() {
			return nil, nil, fmt.Errorf("reading a layer: %w", fs.ErrNotExist)
		}
		return was(e)
	}
	w := &worlds{world: open(t, "servers:\n  n: {builtin: memory, scope: session}\n", map[string]builtin.Kind{"memory": kind})}
	w.doc = readOpenAPI(t, w.world)
	s := w.open(t, `{}`)
	w.tool(t, s.ID, "add")
	gone.Store(true)
	w.restart()
	right := func(what string, e api.Error) {
		t.Helper()
		if e.Kind != api.KindLost || e.Retryable || e.RetryAfter != 0 || e.Server != "n" {
			t.Errorf("%s: %+v", what, e)
		}
	}
	call := fmt.Sprintf(`{"tool":"n__show","session":%q}`, s.ID)
	right("the first call", w.refused(t, http.StatusGone, "POST", "/v1/call", call))
	for _, path := range []string{"/s/" + s.ID + "/mcp", "/s/" + s.ID + "/mcp/n"} {
		name := "show"
		if path == "/s/"+s.ID+"/mcp" {
			name = "n__show"
		}
		m := w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`"}}`, "Content-Type", "application/json").answer()
		var r struct {
			IsError bool
			Meta    struct {
				Error api.Error `json:"tine/error"`
			} `json:"_meta"`
		}
		if err := json.Unmarshal(m.Result, &r); err != nil || !r.IsError {
			t.Fatalf("%s: %s", path, m.raw)
		}
		right(path, r.Meta.Error)
	}
	for range 8 { // neither a pause nor a breaker makes it something else
		right("another call", w.refused(t, http.StatusGone, "POST", "/v1/call", call))
	}
	got := want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "")
	if got.Members[0].State != api.StateFailed || got.Members[0].Reason == "" {
		t.Errorf("its member: %+v", got.Members)
	}
	gone.Store(false)
	if other := w.open(t, `{}`); w.tool(t, other.ID, "add") != "1" {
		t.Error("other sessions are touched by it")
	}
}
