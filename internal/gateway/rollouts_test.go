package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/memory"
	"github.com/tine-mcp/tine/internal/native/rollout"
)

// spied is who acts on sessions, and what handles it was given.
type spied struct {
	rollout.Sessions
	mu      sync.Mutex
	handles []string
}

func (s *spied) seen(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles = append(s.handles, caller)
}

func (s *spied) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.handles...)
}

func (s *spied) Open(ctx context.Context, caller, key string, in api.NewSession) (api.OpenedSession, error) {
	s.seen(caller)
	return s.Sessions.Open(ctx, caller, key, in)
}

func (s *spied) Fork(ctx context.Context, caller, session, key string, in api.ForkRequest) (api.Forks, error) {
	s.seen(caller)
	return s.Sessions.Fork(ctx, caller, session, key, in)
}

func (s *spied) List(ctx context.Context, caller, parent string, labels map[string]string, limit int, after string) (api.SessionList, error) {
	s.seen(caller)
	return s.Sessions.List(ctx, caller, parent, labels, limit, after)
}

// slow is a built-in server whose one change takes as long as the test likes.
type slow struct{ began, free chan struct{} }

func (s *slow) kind() builtin.Kind {
	machine := &layer.Machine[int]{Apply: func(n int, _ []byte, _ layer.Extent) (int, error) { return n + 1, nil }}
	return builtin.Kind{Remembers: true, New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
		h, err := layer.Open(e.Layers, e.State, machine)
		if err != nil {
			return nil, nil, err
		}
		srv := sdkServer("slow", nil)
		srv.AddTool(&mcp.Tool{Name: "change", InputSchema: anyObject}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			s.began <- struct{}{}
			select {
			case <-s.free:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			n, err := h.Commit(func(int) ([]byte, io.Reader, int64, error) { return []byte{1}, nil, 0, nil })
			if err != nil {
				return nil, err
			}
			return text(fmt.Sprint(n)), nil
		})
		srv.AddTool(&mcp.Tool{Name: "show", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(fmt.Sprint(h.Value())), nil
		})
		return srv, h, nil
	}}
}

// rollouts is a gateway with the server rollout, beside the real memory and a
// slow one.
type rollouts struct {
	*worlds
	spy  *spied
	slow *slow
}

func openRollouts(t *testing.T, yaml, policy string) *rollouts {
	t.Helper()
	control := &gateway.Control{}
	r := &rollouts{spy: &spied{Sessions: control}, slow: &slow{make(chan struct{}), make(chan struct{})}}
	kinds := map[string]builtin.Kind{
		"sqlite": r.slow.kind(),
		"memory": {Remembers: true, New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			h, err := layer.Open(e.Layers, e.State, memory.Machine())
			if err != nil {
				return nil, nil, err
			}
			s, err := memory.New(e.Settings, h)
			return s, h, err
		}},
		"rollout": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := rollout.New(e.Settings, r.spy)
			return s, nil, err
		}},
	}
	w := openWith(t, yaml+"servers:\n  n: {builtin: memory}\n  slow: {builtin: sqlite}\n  rollout: {builtin: rollout, merged: true"+policy+"}\n",
		func(o *gateway.Options) { o.Control = control }, kinds)
	r.worlds = &worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}
	return r
}

// A way is one to call a tool of rollout.
type way func(tool, args string) message

// ways are all of them, in a session; an empty one is the
// caller's own.
func (r *rollouts) ways(t *testing.T, session string, who ...string) map[string]way {
	t.Helper()
	base := ""
	if session != "" {
		base = "/s/" + session
	}
	params := func(tool, args string) string { return fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args) }
	return map[string]way{
		"handshake": func(tool, args string) message {
			return r.dial(t, base+"/mcp/rollout", `{}`, who...).ask("tools/call", params(tool, args))
		},
		"stateless": func(tool, args string) message {
			return r.modern(t, base+"/mcp/rollout", `{}`, who...).ask("tools/call", tool, params(tool, args))
		},
		"merged": func(tool, args string) message {
			return r.modern(t, base+"/mcp", `{}`, who...).ask("tools/call", tool, params(tool, args))
		},
	}
}

// act calls a tool that must work, and checks that both forms of its answer are
// the same.
func act[T any](t *testing.T, call way, tool, args string) (out T) {
	t.Helper()
	m := call(tool, args)
	var r struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Text string }
	}
	if m.Result == nil {
		t.Fatalf("%s %s: %s", tool, args, m.raw)
	}
	decode(t, m.Result, &r)
	if r.IsError || len(r.Content) != 1 {
		t.Fatalf("%s %s: %s", tool, args, m.raw)
	}
	if canonical(t, r.Content[0].Text) != canonical(t, string(r.StructuredContent)) {
		t.Errorf("%s: the text is %s, the content %s", tool, r.Content[0].Text, r.StructuredContent)
	}
	decode(t, r.StructuredContent, &out)
	return out
}

// know has the memory of a session know of something, and remembers tells
// whether it does.
func (r *rollouts) know(t testing.TB, s api.OpenedSession, what string) {
	t.Helper()
	m := r.modern(t, "/s/"+s.ID+"/mcp/n", `{}`, bearer(s.Token)...).ask("tools/call", "create_entities",
		fmt.Sprintf(`{"name":"create_entities","arguments":{"entities":[{"name":%q,"entityType":"x","observations":[]}]}}`, what))
	if m.Result == nil || bytes.Contains(m.Result, []byte(`"isError":true`)) {
		t.Fatalf("%s", m.raw)
	}
}

func (r *rollouts) remembers(t testing.TB, s api.OpenedSession) string {
	t.Helper()
	m := r.modern(t, "/s/"+s.ID+"/mcp/n", `{}`, bearer(s.Token)...).ask("tools/call", "read_graph", `{"name":"read_graph"}`)
	var got struct {
		StructuredContent struct{ Entities []struct{ Name string } }
	}
	if m.Result == nil {
		t.Fatalf("%s", m.raw)
	}
	decode(t, m.Result, &got)
	var all []string
	for _, e := range got.StructuredContent.Entities {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// shown is what the slow server of a session has.
func (r *rollouts) shown(t testing.TB, s api.OpenedSession) string {
	t.Helper()
	return resultText(t, r.modern(t, "/s/"+s.ID+"/mcp/slow", `{}`, bearer(s.Token)...).ask("tools/call", "show", `{"name":"show"}`))
}
