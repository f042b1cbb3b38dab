package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// logged is what is logged during a test.
func logged(t *testing.T) *lockedBuffer {
	b := new(lockedBuffer)
	log.SetOutput(b)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	return b
}

// TestClientsAreNotTold has clients of proxies in front of servers that fail. They must
// not be told what is the proxy's own: where the server is, and what it printed.
func TestClientsAreNotTold(t *testing.T) {
	logs := logged(t)
	program := connect(t, self("nodes"), nil)
	gone := listen(t, node.Handler(testNodes()...))
	remote, err := node.Connect(t.Context(), node.HTTP(strings.Replace(gone.URL, "//", "//user:secret@", 1)+"/mcp"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	unreachable := get(t, remote, "add")
	gone.CloseClientConnections()
	gone.Close()
	die := get(t, program, "die")

	calls := func(name string, n *node.Node) []node.Source {
		t := tool(name + "_wrapped")
		return []node.Source{
			node.New(t, func(ctx context.Context, args json.RawMessage) (*node.Result, error) {
				res, err := n.Call(ctx, args)
				if err != nil {
					err = fmt.Errorf("around it: %w", err)
				}
				return res, err
			}),
			node.Func(name+"_func", "", func(ctx context.Context, _ struct{}) (string, error) {
				_, err := n.Call(ctx, nil)
				return "", errors.Join(errors.New("first"), fmt.Errorf("within it: %w", err))
			}),
		}
	}
	sources := append(calls("die", die), calls("add", unreachable)...)
	sources = append(sources, program, node.Func("connect", "", func(ctx context.Context, _ struct{}) (string, error) {
		_, err := node.Connect(ctx, self("broken"), nil)
		return "", err
	}), node.Func("missing", "", func(context.Context, struct{}) (string, error) {
		_, err := program.Node("nothing")
		return "", err
	}))
	url := serve(t, sources...)
	for _, path := range []string{"/mcp", "/sse"} {
		s := connect(t, node.HTTP(url+path), nil)
		for name, want := range map[string]string{
			"die":         `tool "die": the outcome of the call is unknown: the log of the program that serves it says why`,
			"die_wrapped": `around it: tool "die": the outcome of the call is unknown: the log of the program that serves it says why`,
			"die_func":    `within it: tool "die": the outcome of the call is unknown: the log of the program that serves it says why`,
			"add_wrapped": `around it: tool "add": the call was not sent: the log of the program that serves it says why`,
			"add_func":    `within it: tool "add": the call was not sent: the log of the program that serves it says why`,
			"connect":     "connecting to a server failed",
			"missing":     `there is no tool "nothing"`,
		} {
			kind := node.ErrTool
			switch name {
			case "die", "die_wrapped":
				kind = node.ErrOutcomeUnknown
			case "add_wrapped":
				kind = node.ErrNotSent
			}
			_, err := node.Call[any, string](t.Context(), get(t, s, name), nil)
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %s", name, err, want)
				continue
			}
			for _, own := range []string{os.Args[0], gone.URL, "I am dying", "exit status", "refused", "no database"} {
				if strings.Contains(err.Error(), own) {
					t.Errorf("%s: %v; has %q", name, err, own)
				}
			}
		}
	}
	for _, want := range []string{os.Args[0], gone.URL, "I am dying", "exit status 7", "refused", "no database"} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("the log has no %q: %s", want, logs)
		}
	}
	if strings.Contains(logs.String(), "secret") {
		t.Error("the log has the password")
	}
}

// TestClientsAreTold has what is for clients come through a proxy.
func TestClientsAreTold(t *testing.T) {
	first := connect(t, node.HTTP(serve(t, testNodes()...)+"/mcp"), &node.Options{CallTimeout: 100 * time.Millisecond})
	fail := node.Func("failing", "", func(ctx context.Context, _ struct{}) (string, error) {
		return node.Call[struct{}, string](ctx, node.Func("fail", "", func(context.Context, struct{}) (string, error) { return "", errors.New("no paper") }), struct{}{})
	})
	second := connect(t, node.HTTP(serve(t, first, fail)+"/mcp"), nil)
	if _, err := get(t, second, "wait").Call(t.Context(), nil); !errors.Is(err, node.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "no answer within 100ms") {
		t.Error(err)
	}
	if _, err := node.Call[any, string](t.Context(), get(t, second, "failing"), nil); err == nil || !strings.Contains(err.Error(), "no paper") {
		t.Error(err)
	}
}

// TestCause ends calls by contexts with a cause of the caller's.
func TestCause(t *testing.T) {
	why := errors.New("the user left")
	check := func(what string, err error, kinds ...error) {
		t.Helper()
		for _, kind := range append(kinds, why, context.Canceled) {
			if !errors.Is(err, kind) {
				t.Errorf("%s: %v is no %q", what, err, kind)
			}
		}
	}
	for _, dial := range []func() (mcp.Transport, error){self("nodes"), node.HTTP(serve(t, testNodes()...) + "/mcp"), node.HTTP(serve(t, testNodes()...) + "/sse")} {
		s := connect(t, dial, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		called := make(chan error)
		go func() {
			_, err := get(t, s, "wait").Call(ctx, nil)
			called <- err
		}()
		cancel(why)
		err := <-called
		check("a call", err)
		if !errors.Is(err, node.ErrOutcomeUnknown) && !errors.Is(err, node.ErrNotSent) {
			t.Error(err)
		}
		_, err = get(t, s, "add").Call(ctx, addIn{})
		check("a call afterwards", err, node.ErrNotSent)
		_, err = node.Connect(ctx, dial, nil)
		check("connecting", err)
	}
}

func TestKindsOfOwnNodes(t *testing.T) {
	broke := errors.New("broke")
	n := node.New(tool("x"), func(context.Context, json.RawMessage) (*node.Result, error) { return nil, broke })
	if _, err := n.Call(t.Context(), nil); !errors.Is(err, node.ErrTool) || !errors.Is(err, broke) || !strings.Contains(err.Error(), `tool "x"`) {
		t.Error(err)
	}
	late := n.Wrap(func(context.Context, json.RawMessage) (*node.Result, error) {
		return nil, fmt.Errorf("%w: one at a time", node.ErrNotSent)
	})
	if _, err := late.Call(t.Context(), nil); !errors.Is(err, node.ErrNotSent) || errors.Is(err, node.ErrTool) {
		t.Error(err)
	}
	s := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
	if _, err := get(t, s, "x").Call(t.Context(), nil); !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), "broke") {
		t.Error(err)
	}
	panics(t, "there is no tool", func() { node.New(nil, nil) })
	panics(t, `tool "x" has no function`, func() { n.Wrap(nil) })
}

// TestErrorsNameTheServer has errors that come from no request.
func TestErrorsNameTheServer(t *testing.T) {
	url := serve(t, testNodes()...) + "/mcp"
	s := connect(t, node.HTTP(url), nil)
	merged, err := node.Merge(map[string]node.Source{"s": s})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node.Node{get(t, s, "add"), merged.Nodes()[0]} {
		_, noJSON := n.Call(t.Context(), 3)
		_, noProperty := node.Call[struct{}, int](t.Context(), n, struct{}{})
		_, noInt := node.Call[addIn, []int](t.Context(), n, addIn{1, 2})
		for _, err := range []error{noJSON, noProperty, noInt} {
			if err == nil || !strings.Contains(err.Error(), "at "+url) {
				t.Errorf("%v; want the URL", err)
			}
		}
	}
	if _, err := node.Call[any, string](t.Context(), get(t, s, "fail"), nil); err == nil || !strings.Contains(err.Error(), `tool "fail" at `+url+": the tool failed: out of paper") {
		t.Error(err)
	}
}

// TestRefusedLater has a server that lets a client in no longer.
func TestRefusedLater(t *testing.T) {
	for _, version := range []string{"", "2025-11-25"} {
		var refuses atomic.Bool
		h := node.Handler(testNodes()...)
		ts := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refuses.Load() {
				http.Error(w, "expired", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		}))
		s := connect(t, node.HTTP(ts.URL+"/mcp"), &node.Options{ProtocolVersion: version})
		n := get(t, s, "add")
		refuses.Store(true)
		for range 2 {
			if _, err := n.Call(t.Context(), addIn{}); !errors.Is(err, node.ErrNotSent) || !strings.Contains(err.Error(), "set MCP_TOKEN") {
				t.Errorf("version %q: %v", version, err)
			}
		}
		refuses.Store(false)
		eventually(t, "a call", func() bool {
			_, err := n.Call(t.Context(), addIn{})
			return err == nil
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	refused(t, self("nodes"), &node.Options{ProtocolVersion: "2025"}, `ProtocolVersion "2025" is unknown; use one of 2026-07-28, `)
}

// TestHugeNumber sends a number that no float holds.
func TestHugeNumber(t *testing.T) {
	everyWay(t, func(t *testing.T, s *node.Server) {
		res, err := get(t, s, "odd").Call(t.Context(), json.RawMessage(`{"n":1e400}`))
		switch {
		case err == nil && !strings.Contains(string(res.Raw), `"args":{"n":1e400}`):
			t.Errorf("%s", res.Raw)
		case err != nil && (!errors.Is(err, node.ErrNotSent) || errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), "number 1e400")):
			t.Error(err)
		}
	})
}

// TestStubborn connects to a program that answers nothing and does not end.
func TestStubborn(t *testing.T) {
	err := refused(t, self("stubborn"), &node.Options{SetupTimeout: time.Second / 2}, "no answer in time", "pid ")
	var pid int
	if _, scanned := fmt.Sscanf(err.Error()[strings.Index(err.Error(), "pid "):], "pid %d", &pid); scanned != nil {
		t.Fatal(scanned)
	}
	if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Errorf("process %d lives", pid)
	}
}

// TestToolErrorOfProtocol passes an error of JSON-RPC on that a consumed tool answered.
func TestToolErrorOfProtocol(t *testing.T) {
	want := &jsonrpc.Error{Code: -32042, Message: "log in first"}
	first := connect(t, node.HTTP(serve(t, node.Func("in", "", func(context.Context, struct{}) (string, error) { return "", want }))+"/mcp"), nil)
	n := node.Func("out", "", func(ctx context.Context, _ struct{}) (string, error) {
		return node.Call[struct{}, string](ctx, get(t, first, "in"), struct{}{})
	})
	_, err := get(t, connect(t, node.HTTP(serve(t, n)+"/mcp"), nil), "out").Call(t.Context(), nil)
	var got *jsonrpc.Error
	if !errors.As(err, &got) || got.Code != want.Code || got.Message != want.Message {
		t.Error(err)
	}
}
