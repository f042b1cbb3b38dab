package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/files"
	"github.com/tine-mcp/tine/internal/native/memory"
	"github.com/tine-mcp/tine/internal/native/rollout"
	"github.com/tine-mcp/tine/internal/native/rollout/rollouttest"
)

// backends are servers for rollouts, the real ones and some that don't start,
// beside more of a test's own.
func backends(control *gateway.Control, more map[string]builtin.Kind) map[string]builtin.Kind {
	broken := builtin.Kind{New: func(builtin.Env) (*mcp.Server, io.Closer, error) { return nil, nil, errors.New("it is broken") }}
	kinds := map[string]builtin.Kind{
		"fetch": broken, "time": broken,
		"files": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := files.New(e.Settings, e.Workspace)
			return s, nil, err
		}},
		"memory": {Remembers: true, New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			h, err := layer.Open(e.Layers, e.State, memory.Machine())
			if err != nil {
				return nil, nil, err
			}
			s, err := memory.New(e.Settings, h)
			return s, h, err
		}},
		"rollout": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := rollout.New(e.Settings, control)
			return s, nil, err
		}},
	}
	for name, k := range more {
		kinds[name] = k
	}
	return kinds
}

// openBackends opens a gateway with them, with what rollout's entry says beside
// its kind.
func openBackends(t *testing.T, yaml, of string, more map[string]builtin.Kind, entries string) *worlds {
	t.Helper()
	control := &gateway.Control{}
	w := openWith(t, yaml+`workspace: true
servers:
  memory: {builtin: memory}
  files: {builtin: files}
  all: {builtin: memory, scope: shared}
  bad: {builtin: fetch, scope: session}
  worse: {builtin: time, scope: session}
`+entries+"  rollout: {builtin: rollout"+of+"}\n", func(o *gateway.Options) { o.Control = control }, backends(control, more))
	return &worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}
}

func headersOf(as rollouttest.As) []string {
	switch {
	case as.Token != "":
		return bearer(as.Token)
	case as.Name == "bob":
		return asBob
	case as.Name == "ada":
		return asAda
	}
	return nil
}

// answerOf is a tool's result for the suite.
func answerOf(t *testing.T, m message) rollouttest.Answer {
	t.Helper()
	if m.Result == nil {
		t.Fatalf("no result: %s", m.raw)
	}
	var r struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Text string }
	}
	decode(t, m.Result, &r)
	if len(r.Content) != 1 {
		t.Fatalf("content of %s", m.raw)
	}
	return rollouttest.Answer{IsError: r.IsError, Structured: r.StructuredContent, Text: r.Content[0].Text, Error: tineError(t, m)}
}

// rk connects as RewardKit's own client does: a handshake first, and then, where
// it has a session, that one's id in the place of the connection's.
func rk(w *worlds, path string) func(*testing.T, rollouttest.As) rollouttest.Caller {
	return func(t *testing.T, as rollouttest.As) rollouttest.Caller {
		c := w.dial(t, path, `{}`, headersOf(as)...)
		if as.Session != "" {
			c.id = as.Session
		}
		return func(t *testing.T, tool, args string) rollouttest.Answer {
			t.Helper()
			return answerOf(t, c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args)))
		}
	}
}

func rig(dial func(*testing.T, rollouttest.As) rollouttest.Caller) *rollouttest.Rig {
	return &rollouttest.Rig{
		Dial: dial, Own: [2]string{"memory", "files"}, Shared: "all", Broken: [2]string{"bad", "worse"}, Other: "local_docker",
		Put: func(backend, word string) (string, string) {
			if backend == "files" {
				return "write_file", fmt.Sprintf(`{"path":%q,"content":"x"}`, word)
			}
			return "create_entities", fmt.Sprintf(`{"entities":[{"name":%q,"entityType":"x","observations":[]}]}`, word)
		},
		Get: func(backend string) (string, string) {
			if backend == "files" {
				return "list_directory", `{"path":"."}`
			}
			return "read_graph", `{}`
		},
	}
}

// TestBackends runs the suite at both URLs that the tools are at.
func TestBackends(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/mcp", "/mcp/rollout"} {
		t.Run(path, func(t *testing.T) {
			w := openBackends(t, teamYAML, ", merged: true", nil, "")
			rollouttest.Run(t, rig(rk(w, path)))
			left := want[api.SessionList](t, w, "GET", "/v1/sessions?owner=ada", "", asAda...).Sessions
			left = slices.DeleteFunc(left, func(s api.Session) bool { return s.Kind == api.SessionClient })
			if len(left) > 1 {
				t.Errorf("%d sessions of ada are left, with the default one", len(left))
			}
		})
	}
}
