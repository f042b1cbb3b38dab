package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A call does not run out of time while its client is asked something, whichever
// era client and server are of.
func TestQuestionsDoNotTimeOut(t *testing.T) {
	const answer = `{"action":"accept","content":{"who":"ada"}}`
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				protocol := map[bool]string{false: legacyVersion, true: modernVersion}[era.upstream]
				w := &world{t: t, dir: t.TempDir(), log: new(testkit.Log),
					yaml:   servers("a", fmt.Sprintf(`{builtin: everything, protocol: %q, timeout: 10s, scope: session}`, protocol)),
					native: map[string]builtin.Kind{"everything": factory(func() *mcp.Server { return newTalkative(t, era.upstream).Server })},
				}
				w.start()
				defer w.stop(false)
				const long = 9 * time.Minute
				var got string
				if era.client {
					got = w.askedModern(t, long, answer)
				} else {
					got = w.askedLegacy(t, long, answer)
				}
				if !strings.Contains(got, "accept ada") {
					t.Errorf("the call was answered with %s", got)
				}
			})
		})
	}
}

// handle serves one request without a network, in whose waits no time passes.
func (w *world) handle(body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(w.t.Context(), "POST", "http://localhost/mcp/a", strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	(*w.handler.Load()).ServeHTTP(rec, r)
	return rec
}

// askedModern makes a call that asks something, and makes it again with the answer
// after a while.
func (w *world) askedModern(t *testing.T, wait time.Duration, answer string) string {
	body := func(more string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"elicit","arguments":{},` + more + meta(`{"elicitation":{}}`) + `}}`
	}
	first, err := parseMessage(w.handle(body(""), modernHeaders("tools/call", "elicit")...).Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		RequestState  string
		InputRequests map[string]any
	}
	decode(t, first.Result, &in)
	time.Sleep(wait) // in a bubble
	for key := range in.InputRequests {
		more := fmt.Sprintf(`"requestState":%q,"inputResponses":{%q:%s},`, in.RequestState, key, answer)
		return w.handle(body(more), modernHeaders("tools/call", "elicit")...).Body.String()
	}
	t.Fatalf("the client was asked nothing: %s", first.raw)
	return ""
}

// A liveRecorder can be read while it is written to.
type liveRecorder struct {
	*httptest.ResponseRecorder
	mu sync.Mutex
}

func (r *liveRecorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(b)
}

func (r *liveRecorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Body.String()
}

// askedLegacy makes a call that asks something, and answers that after a while.
func (w *world) askedLegacy(t *testing.T, wait time.Duration, answer string) string {
	headers := []string{"Content-Type", "application/json", "Accept", bothTypes}
	hi := w.handle(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacyVersion+`","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"0"}}}`, headers...)
	headers = append(headers, "Mcp-Session-Id", hi.Header().Get("Mcp-Session-Id"))
	answered := make(chan struct{})
	posted := &liveRecorder{ResponseRecorder: httptest.NewRecorder()}
	go func() {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/mcp/a", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"elicit","arguments":{}}}`))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		(*w.handler.Load()).ServeHTTP(posted, r)
		close(answered)
	}()
	synctest.Wait()
	_, asked, ok := strings.Cut(posted.text(), `"id":"tine-`)
	id, _, _ := strings.Cut(asked, `"`)
	if !ok {
		t.Fatalf("the client was asked nothing: %s", posted.text())
	}
	time.Sleep(wait) // in a bubble
	if r := w.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":"tine-%s","result":%s}`, id, answer), headers...); r.Code != http.StatusAccepted {
		t.Errorf("the answer: %d %s", r.Code, r.Body)
	}
	<-answered
	return posted.text()
}
