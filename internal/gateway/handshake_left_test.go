package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestLeftInHandshake checks that a client which goes away during its handshake
// leaves neither a session nor a call in the journal.
func TestLeftInHandshake(t *testing.T) {
	t.Parallel()
	up := script(t, false, map[string]string{"tools/list": plainTools})
	started := make(chan string, 1)
	up.on("initialize", func(_ http.ResponseWriter, r *http.Request, _ received) {
		select {
		case started <- "":
		default:
		}
		<-r.Context().Done()
	})
	w := &worlds{world: open(t, servers("a", up.URL))}
	w.doc = readOpenAPI(t, w.world)
	ctx, leave := context.WithCancel(t.Context())
	hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	req, err := http.NewRequestWithContext(ctx, "POST", w.ts.URL+"/mcp/a", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	left := make(chan struct{})
	go func() {
		defer close(left)
		if resp, err := w.http.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("the handshake was answered: %d", resp.StatusCode)
		}
	}()
	take(t, started)
	leave()
	take(t, left)
	testkit.Eventually(t, "its session is closed", func() bool {
		return !slices.ContainsFunc(want[api.SessionList](t, w, "GET", "/v1/sessions", "").Sessions, func(s api.Session) bool { return s.Kind == session.KindClient })
	})
	if list, err := w.journal.List(t.Context(), store.CallFilter{}); err != nil || len(list) != 0 {
		t.Errorf("the journal has %+v, %v", list, err)
	}
}
