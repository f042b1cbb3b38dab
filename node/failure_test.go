package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// refused connects, which must fail with all of want in the message.
func refused(t *testing.T, dial func() (mcp.Transport, error), opts *node.Options, want ...string) error {
	t.Helper()
	s, err := node.Connect(t.Context(), dial, opts)
	if err == nil {
		s.Close()
		t.Fatal("connected")
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error("close after a failed set-up:", err)
		}
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	return err
}

// listen serves for the time of a test, longer than those who connect after it.
func listen(t *testing.T, h http.Handler) *httptest.Server {
	ts := httptest.NewServer(h)
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return ts
}

// gone waits until the client is gone.
func gone(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // net/http looks for the client's end after that
	<-r.Context().Done()
}

func TestBadCommand(t *testing.T) {
	err := refused(t, node.Command("no-such-program", "x"), nil, `command "no-such-program"`)
	if !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("not exec.ErrNotFound: %v", err)
	}
	refused(t, self("broken"), nil, os.Args[0], "the program ended: exit status 3; it printed: no database")
	refused(t, func() (mcp.Transport, error) { return nil, errors.New("no key") }, nil, "no key")
	refused(t, func() (mcp.Transport, error) { return nil, nil }, nil, "no transport")
	refused(t, nil, nil, "dial is nil")
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	url := "http://user:secret@" + l.Addr().String()
	for _, path := range []string{"/mcp", "/sse"} {
		err := refused(t, node.HTTP(url+path+"?key=hidden"), nil, "http://"+l.Addr().String()+path, "connection refused")
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q has the password or the query", err)
		}
	}
	for _, path := range []string{"/mcp", "/sse"} {
		ts := httptest.NewServer(node.Handler(testNodes()...))
		s := connect(t, node.HTTP(strings.Replace(ts.URL, "//", "//user:secret@", 1)+path+"?key=hidden"), nil)
		n := get(t, s, "add")
		ts.CloseClientConnections()
		ts.Close()
		eventually(t, "the server is gone", func() bool {
			_, err := n.Call(t.Context(), addIn{1, 2})
			if err == nil || !strings.Contains(err.Error(), ts.URL+path) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
				t.Fatalf("%v; want the URL without password and query", err)
			}
			return errors.Is(err, node.ErrNotSent) && strings.Contains(err.Error(), "connection refused")
		})
	}
	refused(t, node.HTTP("example.com/mcp"), nil, "http://")
	refused(t, node.SSE("ftp://example.com/mcp"), nil, "ftp://example.com/mcp", "https://")
}

func TestHungHandshake(t *testing.T) {
	opts := &node.Options{SetupTimeout: 200 * time.Millisecond}
	ts := listen(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { gone(r) }))
	for _, path := range []string{"/mcp", "/sse"} {
		if err := refused(t, node.HTTP(ts.URL+path), opts, ts.URL+path, "no answer in time"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not a deadline: %v", err)
		}
	}
	refused(t, self("hang"), opts, "no answer in time", "thinking about it")

	ctx, cancel := context.WithCancelCause(t.Context())
	dialed := make(chan struct{}, 1)
	go func() {
		<-dialed
		cancel(errors.New("never mind"))
	}()
	dial := node.HTTP(ts.URL + "/mcp")
	_, err := node.Connect(ctx, func() (mcp.Transport, error) {
		dialed <- struct{}{}
		return dial()
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "never mind") {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHungStream has a server that never answers the GET that the SDK makes after
// the handshake, without a limit.
func TestHungStream(t *testing.T) {
	h := node.Handler(testNodes()...)
	ts := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			gone(r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	refused(t, node.HTTP(ts.URL+"/mcp"), &node.Options{ProtocolVersion: "2025-11-25", SetupTimeout: 300 * time.Millisecond}, "no answer in time")
}

// TestSilentDiscover has a server of the handshake era that does not answer the
// first question of the stateless one.
func TestSilentDiscover(t *testing.T) {
	h := node.Handler(testNodes()...)
	ts := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "server/discover" {
			gone(r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	s := connect(t, node.HTTP(ts.URL+"/mcp"), &node.Options{SetupTimeout: 4 * time.Second})
	if len(s.Nodes()) == 0 {
		t.Error("no nodes")
	}
}

// guarded lets in who has the token.
func guarded(token string, seen *atomic.Int32, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		if got != "" {
			seen.Add(1)
		}
		if got != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func TestToken(t *testing.T) {
	var seen atomic.Int32
	ts := listen(t, guarded("right", &seen, node.Handler(testNodes()...)))
	for _, path := range []string{"/mcp", "/sse"} {
		t.Setenv("MCP_TOKEN", "")
		refused(t, node.HTTP(ts.URL+path), nil, ts.URL+path, "401", "set MCP_TOKEN")
		t.Setenv("MCP_TOKEN", "wrong")
		refused(t, node.HTTP(ts.URL+path), nil, "401", "check MCP_TOKEN")
		t.Setenv("MCP_TOKEN", "right")
		s := connect(t, node.HTTP(ts.URL+path), nil)
		if _, err := get(t, s, "add").Call(t.Context(), addIn{1, 2}); err != nil {
			t.Error(err)
		}
	}

	// Another host, and the same after a redirect.
	var leaked atomic.Int32
	other := listen(t, guarded("right", &leaked, node.Handler(testNodes()...)))
	there := listen(t, http.RedirectHandler(other.URL+"/mcp", http.StatusTemporaryRedirect))
	refused(t, node.HTTP(there.URL+"/mcp"), nil, "401")
	if leaked.Load() > 0 {
		t.Error("the token went to another host after a redirect")
	}

	// A name that is not this machine's, without TLS.
	seen.Store(0)
	dial := node.HTTP("http://plain.example/mcp")
	tr, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := throughProxy(t, tr.(*mcp.StreamableClientTransport).HTTPClient, ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if seen.Load() > 0 {
		t.Error("the token was sent over plain http")
	}
}

// throughProxy asks plain.example, which is really at url.
func throughProxy(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	node.SetProxy(c, url)
	return c.Get("http://plain.example/mcp")
}

func TestDiesInACall(t *testing.T) {
	s := connect(t, self("nodes"), nil)
	pid := func() string {
		res, err := get(t, s, "pid").Call(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.Text()
	}
	first := pid()
	_, err := get(t, s, "die").Call(t.Context(), nil)
	if !errors.Is(err, node.ErrOutcomeUnknown) || !strings.Contains(err.Error(), `tool "die" at command`) || !strings.Contains(err.Error(), "the program ended: exit status 7; it printed: I am dying") {
		t.Errorf("die: %v", err)
	}
	if second := pid(); second == first {
		t.Error("the same process answers")
	}
}

// A cut is a proxy that says something else than the answers, and ends connections.
type cut struct {
	http.Handler
	instead atomic.Value // a string
}

func (c *cut) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if instead, _ := c.instead.Load().(string); instead != "" && strings.Contains(string(body), `"tools/call"`) {
		c.Handler.ServeHTTP(httptest.NewRecorder(), r)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, instead)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.Handler.ServeHTTP(w, r)
}

func TestAnswerLost(t *testing.T) {
	for _, version := range []string{"", "2025-11-25"} {
		c := &cut{Handler: node.Handler(testNodes()...)}
		ts := listen(t, c)
		s := connect(t, node.HTTP(ts.URL+"/mcp"), &node.Options{ProtocolVersion: version})
		n := get(t, s, "add")
		for _, instead := range []string{
			"event: mess",
			"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[}}\n\n",
			"event: message\ndata: {\"id\":1,\"result\":{\"content\":[]}}\n\n",
		} {
			c.instead.Store(instead)
			_, err := n.Call(t.Context(), addIn{1, 2})
			if !errors.Is(err, node.ErrOutcomeUnknown) || !strings.Contains(err.Error(), ts.URL) {
				t.Errorf("version %q, %q: %v", version, instead, err)
			}
			c.instead.Store("")
			if _, err := n.Call(t.Context(), addIn{1, 2}); err != nil {
				t.Errorf("version %q, after %q: %v", version, instead, err)
			}
		}
	}
}

// TestRestart replaces a server over HTTP by another one, which has no sessions and
// another list.
func TestRestart(t *testing.T) {
	for _, tt := range []struct{ path, version string }{{"/mcp", ""}, {"/mcp", "2025-11-25"}, {"/sse", ""}} {
		t.Run(tt.path+tt.version, func(t *testing.T) {
			var h atomic.Value
			h.Store(node.Handler(testNodes()...))
			ts := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Load().(http.Handler).ServeHTTP(w, r) }))
			s := connect(t, node.HTTP(ts.URL+tt.path), &node.Options{ProtocolVersion: tt.version})
			n := get(t, s, "add")
			h.Store(node.Handler(node.Func("add", "Adds.", add), node.Func("new", "New.", add)))
			ts.CloseClientConnections()
			eventually(t, "a call", func() bool {
				_, err := n.Call(t.Context(), addIn{1, 2})
				if err != nil && !errors.Is(err, node.ErrNotSent) && !errors.Is(err, node.ErrOutcomeUnknown) {
					t.Fatal(err)
				}
				return err == nil
			})
			eventually(t, "the new list", func() bool {
				_, err := s.Node("new")
				return err == nil && len(s.Nodes()) == 2
			})
		})
	}
}

func TestCallTimeout(t *testing.T) {
	for _, dial := range []func() (mcp.Transport, error){self("nodes"), node.HTTP(serve(t, testNodes()...) + "/mcp"), node.HTTP(serve(t, testNodes()...) + "/sse")} {
		s := connect(t, dial, &node.Options{CallTimeout: 100 * time.Millisecond})
		_, err := get(t, s, "wait").Call(t.Context(), nil)
		if !errors.Is(err, node.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 100ms") {
			t.Errorf("timeout: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := get(t, s, "add").Call(ctx, addIn{}); !errors.Is(err, node.ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
	}
}

// TestNobodyReads sends to a server that stopped reading.
func TestNobodyReads(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	if err := node.Expose(server, testNodes()...); err != nil {
		t.Fatal(err)
	}
	gate := &gatedReader{ReadCloser: theirs, end: make(chan struct{})}
	ss, err := server.Connect(t.Context(), &mcp.IOTransport{Reader: gate, Writer: theirs}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ss.Close()
	defer close(gate.end)
	s := connect(t, func() (mcp.Transport, error) { return &mcp.IOTransport{Reader: ours, Writer: ours}, nil },
		&node.Options{CallTimeout: 500 * time.Millisecond})
	gate.closed.Store(true)
	for range 3 {
		_, err = get(t, s, "odd").Call(t.Context(), map[string]string{"x": strings.Repeat("x", 64<<10)})
		if !errors.Is(err, node.ErrOutcomeUnknown) {
			t.Errorf("a call that nobody reads: %v", err)
		}
	}
}

type gatedReader struct {
	io.ReadCloser
	closed atomic.Bool
	end    chan struct{}
}

func (g *gatedReader) Read(p []byte) (int, error) {
	if g.closed.Load() {
		<-g.end
		return 0, io.EOF
	}
	return g.ReadCloser.Read(p)
}

func TestCloseInACall(t *testing.T) {
	for _, dial := range []func() (mcp.Transport, error){self("nodes"), node.HTTP(serve(t, testNodes()...) + "/mcp"), node.HTTP(serve(t, testNodes()...) + "/sse")} {
		s, err := node.Connect(t.Context(), dial, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := get(t, s, "wait")
		failed := make(chan error)
		go func() {
			_, err := n.Call(context.Background(), nil)
			failed <- err
		}()
		// Whether the call has begun makes no difference to what follows.
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-failed; !errors.Is(err, node.ErrOutcomeUnknown) && !errors.Is(err, node.ErrNotSent) {
			t.Errorf("closed in a call: %v", err)
		}
		if _, err := n.Call(t.Context(), nil); !errors.Is(err, node.ErrNotSent) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestCloseIsNoAnswer closes a server that answers its calls when it ends.
func TestCloseIsNoAnswer(t *testing.T) {
	waiting := make(chan struct{}, 1)
	s, err := node.Connect(t.Context(), self("sorry"), &node.Options{
		ProtocolVersion: "2025-11-25",
		Client: &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { waiting <- struct{}{} },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := get(t, s, "wait")
	failed := make(chan error)
	go func() {
		_, err := n.Call(context.Background(), nil)
		failed <- err
	}()
	<-waiting
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, node.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "closed with Close") {
		t.Errorf("closed in a call: %v", err)
	}
}

func TestProtocolError(t *testing.T) {
	want := &jsonrpc.Error{Code: -32042, Message: "log in first", Data: json.RawMessage(`{"n":9007199254740993}`)}
	n := node.Func("login", "", func(context.Context, struct{}) (string, error) { return "", want })
	first := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
	second := connect(t, node.HTTP(serve(t, first)+"/mcp"), &node.Options{ProtocolVersion: "2025-11-25"})
	for _, n := range []*node.Node{n, get(t, first, "login"), get(t, second, "login")} {
		_, err := n.Call(t.Context(), nil)
		var got *jsonrpc.Error
		if !errors.Is(err, node.ErrTool) || !errors.As(err, &got) || got.Code != want.Code || got.Message != want.Message || string(got.Data) != string(want.Data) {
			t.Errorf("%v", err)
		}
	}
	s, err := second.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("unknown tool: %v", err)
	}
}

// TestEndlessList has a server whose pages never end.
func TestEndlessList(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "t"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if list, ok := req.(*mcp.ListToolsRequest); ok {
				return &mcp.ListToolsResult{NextCursor: list.Params.Cursor + "x"[:1-len(list.Params.Cursor)]}, nil
			}
			return next(ctx, method, req)
		}
	})
	ct, st := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ss.Close()
	refused(t, func() (mcp.Transport, error) { return ct, nil }, nil, "more than 1000 pages")
}

func TestNodeError(t *testing.T) {
	s := connect(t, node.HTTP(serve(t, testNodes()...)+"/mcp"), nil)
	_, err := s.Node("subtract")
	if err == nil || !strings.Contains(err.Error(), `no tool "subtract"; it has: add, big`) {
		t.Error(err)
	}
	for _, bad := range []any{3, []int{1}, json.RawMessage(`{"a"`), make(chan int)} {
		if _, err := get(t, s, "add").Call(t.Context(), bad); !errors.Is(err, node.ErrNotSent) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestFailedLogin has a server refuse a call, and a login that sends requests of its own with the
// call's context and fails.
func TestFailedLogin(t *testing.T) {
	var refuses atomic.Bool
	h := node.Handler(testNodes()...)
	ts := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" && refuses.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	for _, version := range []string{"", "2025-11-25"} {
		s := connect(t, func() (mcp.Transport, error) {
			return &mcp.StreamableClientTransport{Endpoint: ts.URL + "/mcp", OAuthHandler: &login{url: ts.URL + "/login"}}, nil
		}, &node.Options{ProtocolVersion: version})
		n := get(t, s, "add")
		refuses.Store(true)
		_, err := n.Call(t.Context(), addIn{1, 2})
		if !errors.Is(err, node.ErrNotSent) || !strings.Contains(err.Error(), "wrong password") {
			t.Errorf("version %q: %v", version, err)
		}
		refuses.Store(false)
		if _, err := n.Call(t.Context(), addIn{1, 2}); err != nil {
			t.Errorf("version %q, afterwards: %v", version, err)
		}
	}
}

type login struct {
	auth.AuthorizationCodeHandler
	url string
}

func (l *login) Authorize(ctx context.Context, _ *http.Request, _ *http.Response) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return errors.New("wrong password")
}

// TestNotJSON calls with arguments that are not valid, each way there is, and then with valid ones.
func TestNotJSON(t *testing.T) {
	own := node.New(&mcp.Tool{Name: "own"}, func(context.Context, json.RawMessage) (*node.Result, error) {
		return node.NewResult(&mcp.CallToolResult{})
	})
	url := serve(t, append(testNodes(), own)...)
	nodes := map[string]*node.Node{"own": own, "wrapped": own.Wrap(func(ctx context.Context, args json.RawMessage) (*node.Result, error) {
		return own.Call(ctx, nil)
	})}
	for name, dial := range map[string]func() (mcp.Transport, error){
		"program": self("nodes"), "http": node.HTTP(url + "/mcp"), "sse": node.HTTP(url + "/sse"),
		"veiled": func() (mcp.Transport, error) {
			return &veiled{mcp.StreamableClientTransport{Endpoint: url + "/mcp"}}, nil
		},
	} {
		for _, version := range []string{"", "2025-11-25"} {
			nodes[name+" "+version] = get(t, connect(t, dial, &node.Options{ProtocolVersion: version}), "odd")
		}
	}
	for name, n := range nodes {
		for _, bad := range []string{`{"a"`, `{"a":}`, `{} {}`, "{\"a\":\"\x01\"}"} {
			_, err := n.Call(t.Context(), json.RawMessage(bad))
			if !errors.Is(err, node.ErrNotSent) || !strings.HasSuffix(err.Error(), "arguments: not valid JSON") {
				t.Errorf("%s, %q: %v", name, bad, err)
			}
		}
		if _, err := n.Call(t.Context(), json.RawMessage(`{"a":1}`)); err != nil {
			t.Errorf("%s, afterwards: %v", name, err)
		}
	}
}

// A veiled transport is one of the caller's around streamable HTTP.
type veiled struct{ mcp.StreamableClientTransport }

func (v *veiled) Connect(ctx context.Context) (mcp.Connection, error) {
	return v.StreamableClientTransport.Connect(ctx)
}

func TestVeiledTransport(t *testing.T) {
	c := &cut{Handler: node.Handler(testNodes()...)}
	ts := listen(t, c)
	for _, version := range []string{"", "2025-11-25"} {
		s := connect(t, func() (mcp.Transport, error) {
			return &veiled{mcp.StreamableClientTransport{Endpoint: ts.URL + "/mcp"}}, nil
		}, &node.Options{ProtocolVersion: version})
		n := get(t, s, "add")
		res, err := n.Call(t.Context(), addIn{1, 2})
		if err != nil || len(res.Raw) == 0 {
			t.Fatal(res, err)
		}
		c.instead.Store("event: mess")
		if _, err := n.Call(t.Context(), addIn{1, 2}); !errors.Is(err, node.ErrOutcomeUnknown) {
			t.Error(err)
		}
		c.instead.Store("")
		if _, err := n.Call(t.Context(), addIn{1, 2}); err != nil {
			t.Error(err)
		}
	}
}
