package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestHeavyAnswersCount checks that what is much work has a place among the
// calls, and that everything else does not need one.
func TestHeavyAnswersCount(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, "limits: {calls: 1}\n"+servers("a", up.URL))
	var s api.OpenedSession
	control(t, w, "POST", "/v1/sessions", `{}`, &s)
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__hold"}}`, "Content-Type", "application/json")
	}()
	take(t, started)
	heavy := []string{
		"/v1/sessions/" + s.ID + "/trajectory", "/v1/sessions/" + s.ID + "/tree", "/v1/sessions?label=a=b", "/v1/snapshots?label=a=b", "/v1/snapshots/x/export",
	}
	for _, path := range heavy {
		r := w.do(t, "GET", path, "")
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || !strings.Contains(string(r.body), `"retryable":true`) {
			t.Errorf("%s in a full gateway: status %d %s", path, r.status, r.body)
		}
	}
	for _, path := range []string{"/v1/sessions", "/v1/sessions/" + s.ID, "/v1/snapshots", "/v1/servers", "/v1/status"} {
		if r := w.do(t, "GET", path, ""); r.status != http.StatusOK {
			t.Errorf("%s in a full gateway: status %d %s", path, r.status, r.body)
		}
	}
	close(release)
	<-over
	testkit.Eventually(t, "nothing is in flight", func() bool { return w.gw.InFlight() == 0 })
	for range 3 { // each gives its place back, also when it fails
		for _, path := range heavy {
			if r := w.do(t, "GET", path, ""); r.status != http.StatusOK && r.status != http.StatusNotFound {
				t.Errorf("%s: status %d %s", path, r.status, r.body)
			}
			testkit.Eventually(t, path+" has left", func() bool { return w.gw.InFlight() == 0 })
		}
	}
}

// TestHeavyUntilWritten checks that an answer which is made while it is written
// counts until then.
func TestHeavyUntilWritten(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{}`)
	for range 40 {
		w.tool(t, s.ID, "add")
	}
	seen := 0
	rec := &watching{header: http.Header{}, wrote: func() { seen = max(seen, w.gw.InFlight()) }}
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.ts.URL+"/v1/sessions/"+s.ID+"/trajectory", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.gw.Handler().ServeHTTP(rec, req)
	if seen != 1 || w.gw.InFlight() != 0 {
		t.Errorf("%d in flight while it was written, and %d after", seen, w.gw.InFlight())
	}
}

// watching is an answer that no client reads.
type watching struct {
	header http.Header
	wrote  func()
}

func (w *watching) Header() http.Header { return w.header }
func (w *watching) WriteHeader(int)     {}
func (w *watching) Write(b []byte) (int, error) {
	w.wrote()
	return len(b), nil
}
