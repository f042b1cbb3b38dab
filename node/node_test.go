package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

func TestBinding(t *testing.T) {
	n := node.Func("echo", "", echo)
	_, err := node.Call[struct{ Name string }, everything](t.Context(), n, struct{ Name string }{"x"})
	if !errors.Is(err, node.ErrNotSent) || !strings.Contains(err.Error(), `requires "name"`) {
		t.Errorf("%v", err)
	}
	type wrong struct {
		Name   int    `json:"name"`
		Nested nested `json:"nested"`
	}
	_, err = node.Call[wrong, everything](t.Context(), n, wrong{})
	if !errors.Is(err, node.ErrNotSent) || !strings.Contains(err.Error(), `"name" as string, which is number`) {
		t.Errorf("%v", err)
	}
	type right struct {
		Name   *string        `json:"name"`
		Nested map[string]any `json:"nested"`
	}
	name := "x"
	for range 2 {
		if _, err := node.Call[*right, everything](t.Context(), n, &right{&name, map[string]any{"kind": "x"}}); err != nil {
			t.Error(err)
		}
	}
}

func TestMergeNames(t *testing.T) {
	n := node.Func("add", "Adds.", add)
	for _, bad := range []string{"", "a__b", "a_", "_a", "ä", strings.Repeat("a", 65)} {
		if _, err := node.Merge(map[string]node.Source{bad: n}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	m, err := node.Merge(map[string]node.Source{"b": n, "a": n})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(m); got != "a__add b__add" {
		t.Error(got)
	}
	all := m.Nodes()
	if d := all[0].Tool().Description; d != "[a] Adds." {
		t.Error(d)
	}
	if again := m.Nodes(); again[0] != all[0] {
		t.Error("nodes that did not change are others")
	}
	if out, err := node.Call[addIn, addOut](t.Context(), all[1], addIn{1, 2}); err != nil || out.Sum != 3 {
		t.Error(out, err)
	}
}

func TestSameName(t *testing.T) {
	n := node.Func("add", "", add)
	if err := node.Expose(mcp.NewServer(&mcp.Implementation{}, nil), n, n); err == nil || !strings.Contains(err.Error(), `"add"`) {
		t.Error(err)
	}
	panics(t, `"add"`, func() { node.Handler(n, n) })
	if err := node.Serve(t.Context(), "127.0.0.1:0", n, n); err == nil {
		t.Error("served")
	}
}

func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, want) {
			t.Errorf("panic %q does not say %q", s, want)
		}
	}()
	f()
}

// TestNilSource has sources of a Connect that failed.
func TestNilSource(t *testing.T) {
	for _, s := range []node.Source{nil, (*node.Server)(nil), (*node.Node)(nil)} {
		if _, err := node.Merge(map[string]node.Source{"files": s}); err == nil || !strings.Contains(err.Error(), `"files" is nil`) {
			t.Error(err)
		}
		if err := node.Serve(t.Context(), "127.0.0.1:0", s); err == nil || !strings.Contains(err.Error(), "source 1 of 1 is nil") {
			t.Error(err)
		}
	}
}

func TestFuncPanics(t *testing.T) {
	panics(t, "not a struct", func() { node.Func("x", "", func(context.Context, int) (int, error) { return 0, nil }) })
	type bad struct {
		N int `json:"n" default:"many"`
	}
	panics(t, "field N: default", func() { node.Func("x", "", func(context.Context, bad) (int, error) { return 0, nil }) })
	type other struct {
		S string `json:"s" enum:"a,b" default:"c"`
	}
	panics(t, "field S: default", func() { node.Func("x", "", func(context.Context, other) (int, error) { return 0, nil }) })
	panics(t, "no name", func() { node.New(&mcp.Tool{}, nil) })
	panics(t, "no function", func() { node.New(tool("x"), nil) })
	panics(t, "no function", func() { node.Func[struct{}, string]("x", "", nil) })
}

func TestResults(t *testing.T) {
	ctx := t.Context()
	text := func(n *node.Node) string {
		t.Helper()
		res, err := n.Call(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.Text()
	}
	if got := text(node.Func("s", "", func(context.Context, any) (string, error) { return "a\"b", nil })); got != `a"b` {
		t.Error(got)
	}
	if got := text(node.Func("l", "", func(context.Context, map[string]any) ([]int, error) { return []int{1, 2}, nil })); got != "[1,2]" {
		t.Error(got)
	}
	if got := text(node.Func("m", "", func(context.Context, struct{}) (map[string]int, error) { return nil, nil })); got != `{}` {
		t.Error(got)
	}
	if got := text(node.Func("t", "", func(context.Context, struct{}) (time.Time, error) { return time.Unix(0, 0).UTC(), nil })); got != `"1970-01-01T00:00:00Z"` {
		t.Error(got)
	}
	image := node.Func("i", "", func(context.Context, struct{}) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: []byte{1}, MIMEType: "image/png"}}}, nil
	})
	res, err := node.Call[struct{}, *node.Result](ctx, image, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := res.MCP(); err != nil || len(d.Content) != 1 {
		t.Error(d, err)
	}
	if err := res.Decode(new(int)); err == nil {
		t.Error("an image is a number")
	}
	if n, err := node.Call[struct{}, int](ctx, node.Func("n", "", func(context.Context, struct{}) (int, error) { return 3, nil }), struct{}{}); n != 3 || err != nil {
		t.Error(n, err)
	}
	// A result whose Raw was replaced is what Raw says.
	res.Raw = json.RawMessage(`{"content":[{"type":"text","text":"new"}]}`)
	if res.Text() != "new" {
		t.Error(res.Text())
	}
	for _, raw := range []string{"", " ", "null", "[]", "{bad", `{"content":[]} {}`, "{\"a\":\"\x01\"}"} {
		bad := node.New(tool("bad"), func(context.Context, json.RawMessage) (*node.Result, error) {
			return &node.Result{Raw: json.RawMessage(raw)}, nil
		})
		url := serve(t, bad)
		for _, path := range []string{"/mcp", "/sse"} {
			s := connect(t, node.HTTP(url+path), nil)
			if _, err := get(t, s, "bad").Call(ctx, nil); !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), "result") {
				t.Errorf("%q at %s: %v", raw, path, err)
			}
		}
	}
}

// TestNoResult calls functions that have nothing to return, or what is not JSON.
func TestNoResult(t *testing.T) {
	for _, n := range []*node.Node{
		node.Func("void", "", func(context.Context, struct{}) (*node.Result, error) { return nil, nil }),
		node.Func("void", "", func(context.Context, struct{}) (*mcp.CallToolResult, error) { return nil, nil }),
		node.Func("void", "", func(context.Context, struct{}) (any, error) { return func() {}, nil }),
		node.New(tool("void"), func(context.Context, json.RawMessage) (*node.Result, error) { return nil, nil }),
	} {
		s := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
		for _, n := range []*node.Node{n, get(t, s, "void")} {
			if _, err := node.Call[struct{}, any](t.Context(), n, struct{}{}); !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), `tool "void"`) {
				t.Error(err)
			}
		}
	}
}

func TestPanicInACall(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	crash := node.Func("crash", "", func(context.Context, struct{}) (string, error) { panic("a secret") })
	s := connect(t, node.HTTP(serve(t, crash)+"/mcp"), nil)
	for range 2 {
		_, err := get(t, s, "crash").Call(t.Context(), nil)
		if !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), `tool "crash" panicked`) || strings.Contains(err.Error(), "a secret") {
			t.Error(err)
		}
	}
	if !strings.Contains(logged.String(), "a secret") || !strings.Contains(logged.String(), "TestPanicInACall") {
		t.Errorf("logged %q", logged.String())
	}
}

// TestOddSchema exposes tools that the SDK does not take.
func TestOddSchema(t *testing.T) {
	odd := node.New(&mcp.Tool{Name: "odd", InputSchema: json.RawMessage(`{"type":"array"}`)},
		func(context.Context, json.RawMessage) (*node.Result, error) {
			return node.NewResult(&mcp.CallToolResult{})
		})
	if got := field(t, listed(t, odd, "odd"), "inputSchema"); got != `{"type":"array"}` {
		t.Error(got)
	}
}

func TestMetaAndRequest(t *testing.T) {
	meta := make(chan mcp.Meta, 2)
	n := node.Func("who", "", func(ctx context.Context, _ struct{}) (string, error) {
		meta <- node.Request(ctx).Params.Meta
		return "", nil
	})
	first := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
	second := connect(t, node.HTTP(serve(t, first)+"/mcp"), &node.Options{ProtocolVersion: "2025-11-25"})
	session, err := second.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: mcp.Meta{"traceparent": "00-1"}, Name: "who"}); err != nil {
		t.Fatal(err)
	}
	if m := <-meta; m["traceparent"] != "00-1" {
		t.Errorf("through a proxy: %v", m)
	}
	if node.Request(t.Context()) != nil {
		t.Error("a request where there is none")
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	addr := "127.0.0.1:" + freePort(t)
	go func() { served <- node.Serve(ctx, addr, node.Func("add", "", add)) }()
	var s *node.Server
	eventually(t, "the server", func() bool {
		var err error
		s, err = node.Connect(t.Context(), node.HTTP("http://"+addr+"/mcp"), nil)
		return err == nil
	})
	if _, err := get(t, s, "add").Call(t.Context(), addIn{1, 2}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	s.Close()
}

func TestProgressThroughProxy(t *testing.T) {
	seen := make(chan struct{})
	n := node.Func("slow", "", func(ctx context.Context, _ struct{}) (string, error) {
		req := node.Request(ctx)
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: "half"})
		if err != nil {
			return "", err
		}
		<-seen // the answer may overtake it otherwise
		return "done", nil
	})
	first := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
	second := connect(t, node.HTTP(serve(t, first)+"/mcp"), &node.Options{Client: &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if r.Params.ProgressToken != "mine" || r.Params.Message != "half" {
				t.Errorf("%+v", r.Params)
			}
			close(seen)
		},
	}})
	session, err := second.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	params := &mcp.CallToolParams{Name: "slow"}
	params.SetProgressToken("mine")
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
}
