package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// steps reports its progress, and answers at once after the last notice.
func steps(ctx context.Context, in struct {
	Count int `json:"count"`
}) (string, error) {
	req := node.Request(ctx)
	token := req.Params.GetProgressToken()
	for i := range in.Count {
		if token == nil {
			break
		}
		p := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i), Message: fmt.Sprint("step ", i)}
		if err := req.Session.NotifyProgress(ctx, p); err != nil {
			return "", err
		}
	}
	return fmt.Sprint(token != nil), nil
}

// TestProgress has every notice of calls that are made at once reach the function for it
// before the call returns: of a server, through a proxy, and through a second one.
func TestProgress(t *testing.T) {
	const count = 150
	check := func(t *testing.T, s *node.Server) {
		t.Helper()
		n := get(t, s, "steps")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				var got []float64
				ctx := node.WithProgress(t.Context(), func(p *mcp.ProgressNotificationParams) { got = append(got, p.Progress) })
				res, err := n.Call(ctx, map[string]int{"count": count})
				if err != nil || res.Text() != "true" {
					t.Error(res, err)
				}
				if len(got) != count {
					t.Errorf("%d of %d notices", len(got), count)
				}
				for i, p := range got {
					if p != float64(i) {
						t.Errorf("notice %d is %v", i, p)
						break
					}
				}
			})
		}
		all.Wait()
		if res, err := n.Call(t.Context(), map[string]int{"count": 1}); err != nil || res.Text() != "false" {
			t.Errorf("progress without being asked: %v, %v", res, err)
		}
	}
	for _, tt := range []struct{ path, version string }{{"/mcp", ""}, {"/mcp", "2025-11-25"}, {"/sse", ""}} {
		t.Run(tt.path+tt.version, func(t *testing.T) {
			opts := &node.Options{ProtocolVersion: tt.version}
			first := connect(t, node.HTTP(serve(t, node.Func("steps", "", steps))+tt.path), opts)
			check(t, first)
			second := connect(t, node.HTTP(serve(t, first)+tt.path), opts)
			check(t, second)
			check(t, connect(t, node.HTTP(serve(t, second)+tt.path), nil))
		})
	}
	t.Run("stdio", func(t *testing.T) { check(t, connect(t, self("nodes"), nil)) })
	t.Run("veiled", func(t *testing.T) {
		url := serve(t, node.Func("steps", "", steps)) + "/mcp"
		s := connect(t, func() (mcp.Transport, error) { return &veiled{mcp.StreamableClientTransport{Endpoint: url}}, nil }, nil)
		if _, err := get(t, s, "steps").Call(node.WithProgress(t.Context(), func(*mcp.ProgressNotificationParams) {}), map[string]int{"count": 3}); err != nil {
			t.Error(err)
		}
	})
}

// TestProgressOfAFunc does not take the progress of what a function calls for its own.
func TestProgressOfAFunc(t *testing.T) {
	first := connect(t, node.HTTP(serve(t, node.Func("steps", "", steps))+"/mcp"), nil)
	n := node.Func("outer", "", func(ctx context.Context, _ struct{}) (string, error) {
		return node.Call[map[string]int, string](ctx, get(t, first, "steps"), map[string]int{"count": 3})
	})
	ctx := node.WithProgress(t.Context(), func(p *mcp.ProgressNotificationParams) { t.Errorf("%+v", p) })
	if out, err := node.Call[struct{}, string](ctx, n, struct{}{}); err != nil || out != "false" {
		t.Error(out, err)
	}
}

// TestSlowListener has a function for progress that waits: other calls go on.
func TestSlowListener(t *testing.T) {
	s := connect(t, self("nodes"), nil)
	n := get(t, s, "steps")
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ctx := node.WithProgress(t.Context(), func(*mcp.ProgressNotificationParams) {
		once.Do(func() { close(begun) })
		<-end
	})
	done := make(chan error)
	go func() {
		_, err := n.Call(ctx, map[string]int{"count": 1500})
		done <- err
	}()
	<-begun
	var last float64
	if _, err := n.Call(node.WithProgress(t.Context(), func(p *mcp.ProgressNotificationParams) { last = p.Progress }), map[string]int{"count": 5}); err != nil || last != 4 {
		t.Error(last, err)
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOddProgress has a server that reports with tokens that it was not given.
func TestOddProgress(t *testing.T) {
	other := make(chan any, 4)
	s := connect(t, self("odd"), &node.Options{ProtocolVersion: "2025-11-25", Client: &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			other <- r.Params.ProgressToken
		},
	}})
	if _, err := get(t, s, "odd").Call(node.WithProgress(t.Context(), func(p *mcp.ProgressNotificationParams) { t.Errorf("%+v", p) }), nil); err != nil {
		t.Error(err)
	}
	for token := range other {
		if token == "theirs" {
			break
		}
		if _, ok := token.(string); ok {
			t.Errorf("token %s", token)
		}
	}
}

// TestInput asks a client for input, in both eras and through a proxy.
func TestInput(t *testing.T) {
	n := node.Func("greet", "", func(ctx context.Context, _ struct{}) (*mcp.CallToolResult, error) {
		if r, ok := node.Request(ctx).Params.InputResponses["name"].(*mcp.ElicitResult); ok {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("hello ", r.Content["name"])}}}, nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
			Message: "Who are you?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
		}}}, nil
	})
	asked := func(name string) *mcp.ClientOptions {
		return &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
		}}
	}
	for _, tt := range []struct{ path, version string }{{"/mcp", ""}, {"/mcp", "2025-11-25"}, {"/sse", ""}} {
		s := connect(t, node.HTTP(serve(t, n)+tt.path), &node.Options{ProtocolVersion: tt.version, Client: asked("Ada")})
		if res, err := get(t, s, "greet").Call(t.Context(), nil); err != nil || res.Text() != "hello Ada" {
			t.Errorf("%s %s: %v, %v", tt.path, tt.version, res, err)
		}
		// A proxy answers for its own clients.
		again := connect(t, node.HTTP(serve(t, s)+tt.path), &node.Options{ProtocolVersion: tt.version, Client: asked("Bob")})
		if res, err := get(t, again, "greet").Call(t.Context(), nil); err != nil || res.Text() != "hello Ada" {
			t.Errorf("%s %s, through a proxy: %v, %v", tt.path, tt.version, res, err)
		}
	}
}
