package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestEventStreamDoor drives the transport of revision 2024-11-05 with the
// SDK's client for it.
func TestEventStreamDoor(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for path, prefix := range map[string]string{"/sse": "t__", "/sse/t": "", "/mcp/t/sse": ""} {
			t.Run(fmt.Sprintf("%s, modern server=%v", path, isModern), func(t *testing.T) {
				s := newTalkative(t, isModern)
				w := open(t, servers("t", serveSDK(t, s.Server, isModern)))
				progress, changed := make(chan string, 16), make(chan struct{}, 16)
				cs := w.connectTransport(t, &mcp.SSEClientTransport{Endpoint: w.at(path), HTTPClient: w.http}, false, &mcp.ClientOptions{
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"who": "sse"}}, nil
					},
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
						progress <- fmt.Sprint(r.Params.ProgressToken, r.Params.Progress)
					},
					ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
				})
				list, err := cs.ListTools(t.Context(), nil)
				if err != nil || len(list.Tools) != 9 {
					t.Fatalf("listed %v, %v", list, err)
				}
				if got := textOf(t, call(t, cs, prefix+"elicit", nil)); got != "accept sse" {
					t.Errorf("elicited %q", got)
				}
				p := &mcp.CallToolParams{Name: prefix + "progress"}
				p.SetProgressToken("p")
				if _, err := cs.CallTool(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				for i := 1; i <= 3; i++ {
					if got, want := take(t, progress), fmt.Sprint("p", i); got != want {
						t.Errorf("progress %q, want %q", got, want)
					}
				}
				prod(t, changed, changers(t, s)["notifications/tools/list_changed"])

				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = cs.CallTool(ctx, &mcp.CallToolParams{Name: prefix + "wait"}) })
				take(t, s.started)
				cancel()
				take(t, s.ended)
				wg.Wait()
			})
		}
	}
}

// openEvents opens the door by hand and returns its stream and where to post.
func openEvents(t *testing.T, w *world, path string, headers ...string) (*stream, string) {
	t.Helper()
	r := w.do(t, "GET", path, "", append([]string{"Accept", "text/event-stream"}, headers...)...)
	if r.stream == nil {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	name, _, data, err := r.stream.event()
	if err != nil || name != "endpoint" {
		t.Fatalf("the first event is %q %q, %v", name, data, err)
	}
	return r.stream, string(data)
}

func TestEventStreamByHand(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/list": plainTools, "tools/call": strangeResult})
	w := open(t, twoPeople+servers("a", up.URL))
	s, post := openEvents(t, w, "/sse/a", asAda...)
	send := func(body string, who []string) int {
		return w.do(t, "POST", post, body, append([]string{"Content-Type", "application/json"}, who...)...).status
	}
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	if got := send(hello, asBob); got != http.StatusNotFound {
		t.Errorf("bob posts to ada's stream: status %d", got)
	}
	if got := send(hello, nil); got != http.StatusUnauthorized {
		t.Errorf("a post without a token to ada's stream: status %d", got)
	}
	if got := send(hello, asAda); got != http.StatusAccepted {
		t.Fatalf("status %d", got)
	}
	if m := s.next(); !strings.Contains(string(m.Result), `"2024-11-05"`) {
		t.Fatalf("initialize: %s", m.raw)
	}
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, asAda)
	send(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"echo","arguments":`+strange+`}}`, asAda)
	if m := s.next(); string(m.Result) != strangeResult || string(m.ID) != `"c"` {
		t.Errorf("got %s", m.raw)
	}
	if in := up.last(t, "tools/call"); !strings.Contains(string(in.Params), `"arguments":`+strange) {
		t.Errorf("the server got %s", in.Params)
	}
	send(`{"jsonrpc":`, asAda)
	// Whatever the answer to that is, the stream goes on.
	send(`{"jsonrpc":"2.0","id":"after","method":"ping"}`, asAda)
	for {
		if m := s.next(); string(m.ID) == `"after"` {
			break
		}
	}
	s.close()
	testkit.Eventually(t, "the end of the stream is the end of the client", func() bool { return send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, asAda) == http.StatusNotFound })
	if r := w.do(t, "POST", "/sse?channel=nosuch", hello, append([]string{"Content-Type", "application/json"}, asAda...)...); r.status != http.StatusNotFound {
		t.Errorf("an unknown stream: status %d", r.status)
	}
}

// TestEventStreamEndsItsCalls checks that a client's running calls are
// cancelled when its stream ends.
func TestEventStreamEndsItsCalls(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, true)
	w := open(t, servers("t", serveSDK(t, s.Server, true)))
	events, post := openEvents(t, w, "/sse/t")
	send := func(body string) { w.do(t, "POST", post, body, "Content-Type", "application/json") }
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`)
	events.next()
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`)
	take(t, s.started)
	events.close()
	take(t, s.ended)
}
