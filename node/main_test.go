package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// The test program is also the servers that tests start as commands.
func TestMain(m *testing.M) {
	switch mode := os.Getenv("NODE_TEST_SERVER"); mode {
	case "":
		code := m.Run()
		if left := leftOver(); code == 0 && left != "" {
			fmt.Fprintf(os.Stderr, "goroutines were left:\n%s\n", left)
			code = 1
		}
		os.Exit(code)
	case "nodes":
		if err := node.ServeStdio(context.Background(), testNodes()...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "hang":
		fmt.Fprintln(os.Stderr, "thinking about it")
		var b [1]byte
		for {
			if _, err := os.Stdin.Read(b[:]); err != nil {
				return
			}
		}
	case "sorry":
		sorry()
	case "odd":
		odd()
	case "flood":
		if err := floods().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "pid", os.Getpid())
		select {}
	case "broken":
		fmt.Fprintln(os.Stderr, "no database")
		os.Exit(3)
	}
}

// simple serves one tool over standard input and output, until the input ends.
func simple(tool string, call func(id json.RawMessage)) {
	in := json.NewDecoder(os.Stdin)
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if in.Decode(&m) != nil {
			return
		}
		switch m.Method {
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"simple","version":"1"}}}`+"\n", m.ID)
		case "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":%q,"inputSchema":{"type":"object"}}]}}`+"\n", m.ID, tool)
		case "tools/call":
			call(m.ID)
		}
	}
}

const someProgress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}` + "\n"

// sorry answers its calls when the input ends: with an error, as the official Python
// SDK does.
func sorry() {
	var waiting []json.RawMessage
	simple("wait", func(id json.RawMessage) {
		waiting = append(waiting, id)
		fmt.Printf(someProgress, `"x"`)
	})
	for _, id := range waiting {
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"Connection closed"}}`+"\n", id)
	}
}

// odd reports progress with tokens that it was not given.
func odd() {
	simple("odd", func(id json.RawMessage) {
		for _, token := range []string{`{"tine-node-call-1":1}`, `["tine-node-call-1"]`, `"tine-node-call-99"`, `"theirs"`} {
			fmt.Printf(someProgress, token)
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`+"\n", id)
	})
}

// floods has tools whose results are longer than a message may be, and one that waits for
// another.
func floods() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "floods"}, nil)
	for _, name := range []string{"big", "add"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", 65<<20)}}}, nil
		})
	}
	end := make(chan struct{})
	server.AddTool(&mcp.Tool{Name: "patient", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-end
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
	})
	server.AddTool(&mcp.Tool{Name: "release", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(end)
		return &mcp.CallToolResult{}, nil
	})
	return server
}

// leftOver is the stacks of goroutines of this package and the SDK that did not
// end, after some time to do so.
func leftOver() string {
	for wait := time.Millisecond; ; wait *= 2 {
		buf := make([]byte, 1<<20)
		var left []string
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "streamableServerConn") {
				continue // a session that its client did not end waits to be idle long enough
			}
			if strings.Contains(g, "tine/node.") || strings.Contains(g, "go-sdk/") || strings.Contains(g, "os/exec.") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || wait > 10*time.Second {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(wait) // nothing announces the end of a goroutine
	}
}

// self is this test program as a server.
func self(mode string) func() (mcp.Transport, error) {
	return func() (mcp.Transport, error) {
		t, err := node.Command(os.Args[0])()
		if err != nil {
			return nil, err
		}
		c := t.(*mcp.CommandTransport)
		c.Command.Env = append(os.Environ(), "NODE_TEST_SERVER="+mode)
		return c, nil
	}
}

type addIn struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

type addOut struct {
	Sum int64 `json:"sum"`
}

func add(_ context.Context, in addIn) (addOut, error) { return addOut{in.A + in.B}, nil }

// testNodes are what the servers of tests have.
func testNodes() []node.Source {
	return []node.Source{
		node.Func("add", "Adds.", add),
		node.Func("fail", "Fails.", func(context.Context, struct{}) (string, error) {
			return "", fmt.Errorf("out of paper")
		}),
		node.Func("big", "Returns as many bytes.", func(_ context.Context, in struct {
			Size int `json:"size"`
		}) (string, error) {
			return strings.Repeat("x", in.Size), nil
		}),
		node.Func("die", "Ends the server.", func(context.Context, struct{}) (string, error) {
			fmt.Fprintln(os.Stderr, "I am dying")
			os.Exit(7)
			return "", nil
		}),
		node.Func("pid", "Says which process it is.", func(context.Context, struct{}) (int, error) { return os.Getpid(), nil }),
		node.Func("steps", "Reports its progress.", steps),
		node.Func("wait", "Waits until it is cancelled.", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}),
		node.New(&mcp.Tool{Name: "odd", Description: "Has fields that no SDK knows.", InputSchema: json.RawMessage(oddSchema)},
			func(_ context.Context, args json.RawMessage) (*node.Result, error) {
				return &node.Result{Raw: json.RawMessage(strings.Replace(oddResult, "ARGS", string(args), 1))}, nil
			}),
	}
}

const (
	oddSchema = `{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}},"x-unknown":[1.10]}`
	oddResult = `{"content":[{"type":"text","text":"grüße","x-mark":{"n":12345678901234567890}}],` +
		`"structuredContent":{"n":9007199254740993,"f":1.10,"args":ARGS},"x-more":[9007199254740995]}`
)

// connect connects for the time of a test.
func connect(t testing.TB, dial func() (mcp.Transport, error), opts *node.Options) *node.Server {
	t.Helper()
	s, err := node.Connect(t.Context(), dial, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error("close:", err)
		}
	})
	return s
}

func get(t testing.TB, s *node.Server, name string) *node.Node {
	t.Helper()
	n, err := s.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// serve serves for the time of a test, and returns the URL.
func serve(t testing.TB, sources ...node.Source) string {
	t.Helper()
	ts := httptest.NewServer(node.Handler(sources...))
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return ts.URL
}

// eventually waits for ok, a minute at most.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond) // nothing announces it
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
