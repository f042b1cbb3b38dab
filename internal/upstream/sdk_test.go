package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// everything is a server of the official SDK that does one of each.
func everything() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	schema := json.RawMessage(`{"type":"object"}`)
	text := func(format string, args ...any) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
	}
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%s", r.Params.Arguments), nil
	})
	s.AddTool(&mcp.Tool{Name: "progress", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for n := range 3 {
			// Where the answer is plain JSON there is no way for it.
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(n + 1)})
		}
		return text("done"), nil
	})
	s.AddTool(&mcp.Tool{Name: "confirm", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		in, ok := r.Params.InputResponses["sure"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.CallToolResult{
				InputRequests: mcp.InputRequestMap{"sure": &mcp.ElicitParams{Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}},
				RequestState:  "state-1",
			}, nil
		}
		return text("%s %s", in.Action, r.Params.RequestState), nil
	})
	s.AddResource(&mcp.Resource{URI: "test:///a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test:///a", Text: "hello"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "a prompt"}, nil
	})
	return s
}

// lines is a driver.Stream over a pair of pipes, as stdio is.
type lines struct {
	r    *bufio.Reader
	w    io.WriteCloser
	rc   io.Closer
	mu   sync.Mutex
	once sync.Once
}

func (l *lines) ReadFrame() ([]byte, error) {
	b, err := l.r.ReadBytes('\n')
	return bytes.TrimRight(b, "\r\n"), err
}

func (l *lines) WriteFrame(_ context.Context, b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(append(bytes.Clone(b), '\n')); err != nil {
		return fmt.Errorf("writing: %w", os.ErrClosed)
	}
	return nil
}

func (l *lines) Close() error {
	l.once.Do(func() { l.w.Close(); l.rc.Close() })
	return nil
}

// overPipes runs the server as a child process would run.
func overPipes(t *testing.T, s *mcp.Server, change func(*upstream.Options)) *rig {
	r := &rig{t: t}
	o := r.options()
	change(&o)
	o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		i := &instance{r: r, done: make(chan struct{})}
		link := &lines{r: bufio.NewReader(outR), w: inW, rc: outR}
		i.link = func() (driver.Link, error) { return driver.Link{Stream: link}, nil }
		ctx, cancel := context.WithCancel(context.Background())
		i.script.Go(func() {
			<-i.done
			link.Close()
			cancel()
		})
		i.script.Go(func() { _ = s.Run(ctx, &mcp.IOTransport{Reader: inR, Writer: outW}) })
		return i, nil
	}}
	r.Upstream = upstream.New(o)
	t.Cleanup(r.Close)
	return r
}

// peers are the ways to an SDK server, each with what it should be found to be.
func peers(t *testing.T) map[string]func(t *testing.T, s *mcp.Server) *rig {
	web := func(opts *mcp.StreamableHTTPOptions, protocol string) func(*testing.T, *mcp.Server) *rig {
		return func(t *testing.T, s *mcp.Server) *rig {
			h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, opts)
			r, _ := reach(t, h, func(o *upstream.Options, _ *endpoint) { o.Conn.Protocol = protocol })
			t.Cleanup(func() { closeSessions(s) })
			return r
		}
	}
	sse := func(path, transport string) func(*testing.T, *mcp.Server) *rig {
		return func(t *testing.T, s *mcp.Server) *rig {
			mux := http.NewServeMux()
			mux.Handle(path, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
			r, _ := reach(t, mux, func(_ *upstream.Options, ep *endpoint) {
				ep.URL = strings.TrimSuffix(ep.URL, "/mcp") + path
				ep.Transport = transport
			})
			t.Cleanup(func() { closeSessions(s) })
			return r
		}
	}
	pipes := func(protocol string) func(*testing.T, *mcp.Server) *rig {
		return func(t *testing.T, s *mcp.Server) *rig {
			return overPipes(t, s, func(o *upstream.Options) { o.Conn.Protocol = protocol })
		}
	}
	return map[string]func(*testing.T, *mcp.Server) *rig{
		"2026-07-28 stdio":                  pipes("auto"),
		"2025-11-25 stdio":                  pipes(wire.V20251125),
		"2024-11-05 stdio":                  pipes(wire.V20241105),
		"2026-07-28 stateless":              web(&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}, "auto"),
		"2026-07-28 stateless, pinned":      web(&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}, wire.V20260728),
		"2026-07-28 stateless, JSON":        web(&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, PropagateRequestCancellation: true}, "auto"),
		"2025-11-25 stateful":               web(nil, "auto"),
		"2025-11-25 stateful, JSON":         web(&mcp.StreamableHTTPOptions{JSONResponse: true}, "auto"),
		"2025-06-18 stateful, pinned":       web(nil, wire.V20250618),
		"2025-11-25 stateful, resumable":    web(&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}, "auto"),
		"2025-11-25 SSE by its path":        sse("/sse", "auto"),
		"2025-11-25 SSE by config":          sse("/events", "sse"),
		"2025-11-25 SSE, found after a 400": sse("/mcp", "auto"),
	}
}

func closeSessions(s *mcp.Server) {
	for ss := range s.Sessions() {
		_ = ss.Close()
	}
}

// The same calls against every kind of server, from clients of both eras.
func TestOfficialSDKServers(t *testing.T) {
	const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`
	for name, connect := range peers(t) {
		t.Run(name, func(t *testing.T) {
			s := everything()
			hangs, ends := make(chan struct{}, 1), make(chan struct{}, 1)
			s.AddTool(&mcp.Tool{Name: "hang", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				hangs <- struct{}{}
				<-ctx.Done()
				ends <- struct{}{}
				return nil, ctx.Err()
			})
			r := connect(t, s)
			version := name[:len(wire.V20260728)]
			quietly := strings.Contains(name, "JSON")

			legacy := newClient("old").answers(`{"action":"accept","content":{}}`)
			legacy.Caps = []byte(`{"elicitation":{}}`)
			testkit.Has(t, "echo", legacy.does(t, r, wire.MethodCallTool, `{"name":"echo","arguments":{"n":12345678901234567890}}`), `{\"n\":12345678901234567890}`)
			hello := r.Status().Hello
			if hello.Version != version || !hello.Can("tools") || !strings.Contains(string(hello.Info), `"sdk"`) {
				t.Fatalf("it is %s %s %s", hello.Version, hello.Info, hello.Capabilities)
			}
			modern := newClient("new").modern()
			testkit.Has(t, "echo of a modern client", modern.does(t, r, wire.MethodCallTool, `{"name":"echo","arguments":{"a":1},`+modernMeta+`}}`), `{\"a\":1}`)
			testkit.Has(t, "no such tool", legacy.calls(t, r, "nothing"), "error:", "nothing")
			testkit.Has(t, "tools/list", legacy.does(t, r, wire.MethodListTools, ""), `"name":"echo"`)
			testkit.Has(t, "resources/read", legacy.does(t, r, wire.MethodReadResource, `{"uri":"test:///a"}`), "hello")
			testkit.Has(t, "prompts/get", legacy.does(t, r, wire.MethodGetPrompt, `{"name":"p"}`), "a prompt")

			testkit.Has(t, "progress", legacy.does(t, r, wire.MethodCallTool, `{"name":"progress","arguments":{},"_meta":{"progressToken":"mine"}}`), "done")
			if !quietly {
				for n := 1; n <= 3; n++ {
					note := testkit.Within(t, "progress", legacy.heard)
					if note != fmt.Sprintf(`notifications/progress {"progressToken":"mine","progress":%d}`, n) &&
						!strings.Contains(note, fmt.Sprintf(`"progress":%d`, n)) || !strings.Contains(note, `"progressToken":"mine"`) {
						t.Errorf("progress %d came as %s", n, note)
					}
				}
			}
			// A stateful server that answers with plain JSON can't ask anything.
			if !(quietly && !hello.Modern()) {
				testkit.Has(t, "confirm", legacy.does(t, r, wire.MethodCallTool, `{"name":"confirm","arguments":{}}`), "accept")
				if _, asked := legacy.got(); len(asked) != 1 || !strings.Contains(asked[0], "sure?") {
					t.Errorf("asked %q", asked)
				}
			}

			ctx, cancel := context.WithCancelCause(t.Context())
			out := make(chan string, 1)
			go func() {
				out <- outcome(r.Call(ctx, legacy.request(t, wire.MethodCallTool, `{"name":"hang","arguments":{}}`)))
			}()
			testkit.Within(t, "the call's start", hangs) // a server may hear first what cancels a request that is on its way
			cancel(upstream.Cancelled())
			testkit.Has(t, "a cancelled call", testkit.Within(t, "its end", out), "refused: ")
			testkit.Within(t, "its end in the server", ends)

			var wg sync.WaitGroup
			for n := range 50 {
				wg.Go(func() {
					c := newClient(fmt.Sprint(n))
					got := c.does(t, r, wire.MethodCallTool, fmt.Sprintf(`{"name":"echo","arguments":{"call":%d}}`, n))
					testkit.Has(t, "echo of many", got, fmt.Sprintf(`{\"call\":%d}`, n))
				})
			}
			wg.Wait()
		})
	}
}

func TestOfficialSDKChanges(t *testing.T) {
	for name, connect := range peers(t) {
		if strings.Contains(name, "JSON") || strings.HasPrefix(name, "2024") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := everything()
			r := connect(t, s)
			w := &watcher{}
			defer r.Watch(w)()
			newClient("c").does(t, r, wire.MethodListTools, "")
			heard := func(part string) func() bool {
				return func() bool { return strings.Contains(strings.Join(w.heard(), " "), part) }
			}
			// The stream for it may still be opening, so the server says it until it
			// is heard.
			n := 0
			testkit.Eventually(t, "a change of the tools", func() bool {
				if n++; n%200 == 1 {
					s.AddTool(&mcp.Tool{Name: fmt.Sprint("new", n), InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						return &mcp.CallToolResult{}, nil
					})
				}
				return heard(wire.NoteToolsChanged)()
			})
			if got := outcome(r.Subscribe(t.Context(), "test:///a")); !strings.HasPrefix(got, "{") {
				t.Fatalf("Subscribe got %s", got)
			}
			n = 0
			testkit.Eventually(t, "an update of the resource", func() bool {
				if n++; n%50 == 1 {
					_ = s.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "test:///a"})
				}
				return heard(`"uri":"test:///a"`)()
			})
			// What was listened to before is still heard.
			before := strings.Count(strings.Join(w.heard(), " "), wire.NoteToolsChanged)
			s.AddTool(&mcp.Tool{Name: "last", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
			testkit.Eventually(t, "another change of the tools", func() bool {
				return strings.Count(strings.Join(w.heard(), " "), wire.NoteToolsChanged) > before
			})
		})
	}
}

// A stateful server behind the same address is restarted under a live
// connection.
func TestOfficialSDKServerRestarts(t *testing.T) {
	var mu sync.Mutex
	s := everything()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		now := h
		mu.Unlock()
		now.ServeHTTP(w, req)
	}))
	c := newClient("c")
	for n := range 5 {
		testkit.Has(t, fmt.Sprint("call ", n), c.does(t, r, wire.MethodCallTool, `{"name":"echo","arguments":{"a":1}}`), `{\"a\":1}`)
		next := everything()
		mu.Lock()
		old := s
		s = next
		h = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return next }, nil)
		mu.Unlock()
		closeSessions(old)
	}
	t.Cleanup(func() { closeSessions(s) })
}

// The address that an event stream names must be on the server's own host, or
// our credentials would go where it likes.
func TestSSEEndpointElsewhere(t *testing.T) {
	var thief int
	evil := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { thief++ }))
	defer evil.Close()
	for _, endpoint := range []string{evil.URL + "/messages", "//" + strings.TrimPrefix(evil.URL, "http://") + "/m", "https://127.0.0.1/x", "http://[::1", ""} {
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method != http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			stream(w)("event: endpoint\ndata: %s\n\n", endpoint)
		}), func(_ *upstream.Options, ep *driver.Endpoint) { ep.Transport = "sse" })
		testkit.Has(t, endpoint, newClient("c").calls(t, r, "x"), "infrastructure: ")
	}
	if thief > 0 {
		t.Errorf("another host got %d requests", thief)
	}
}
