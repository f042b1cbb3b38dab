package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/store"
)

// inner has a name that is none of its methods.
type inner = store.Clients

// brittleStore panics in the middle of a request.
type brittleStore struct {
	inner
	broken *atomic.Bool
}

func (s brittleStore) PutClient(ctx context.Context, c store.Client) error {
	if s.broken.Load() {
		panic("a mistake in a request")
	}
	return s.inner.PutClient(ctx, c)
}

// A panic in a request is answered as an error of the gateway, counted and logged,
// and the gateway goes on.
func TestPanicInARequest(t *testing.T) {
	up := echoServer(t, true, "one")
	var broken atomic.Bool
	w := openWith(t, servers("a", up.URL), func(o *gateway.Options) { o.Clients = brittleStore{o.Clients, &broken} })
	before := w.metric(t, "tine_panics_total", `where="edge"`)
	broken.Store(true)
	r := w.do(t, "POST", "/mcp", helloAgain, "Content-Type", "application/json", "Accept", bothTypes)
	var e api.Error
	if err := json.Unmarshal(r.body, &e); err != nil || r.status != http.StatusBadGateway && r.status != http.StatusInternalServerError || e.Kind != api.KindInfrastructure {
		t.Errorf("a request that panics: status %d %s, %v", r.status, r.body, err)
	}
	broken.Store(false)
	if got := w.metric(t, "tine_panics_total", `where="edge"`); got != before+1 {
		t.Errorf("%v panics are counted, after %v", got, before)
	}
	if log := w.log.String(); !strings.Contains(log, "a mistake in a request") || !strings.Contains(log, "panic_test.go") {
		t.Error("the log has no stack")
	}
	w.dial(t, "/mcp", `{}`).get("tools/list", `{}`)
}

// An answer that breaks off in the middle is seen as broken, not as whole.
func TestPartOfAnAnswerIsNotTheWhole(t *testing.T) {
	w := open(t, servers())
	srv := w.handler.Load()
	cut := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*srv).ServeHTTP(breakingOff{rw}, r)
	}))
	w.handler.Store(&cut)
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.at("/v1/openapi.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return // cut off before its headers
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("an answer that was cut off is whole: status %d, %d bytes", resp.StatusCode, len(body))
	}
}

// breakingOff is a response that a handler breaks off once it has begun.
type breakingOff struct{ http.ResponseWriter }

func (b breakingOff) Write(p []byte) (int, error) {
	_, _ = b.ResponseWriter.Write(p[:len(p)/2])
	panic(http.ErrAbortHandler)
}
