package gateway_test

//lint:file-ignore SA1019 what newer revisions deprecate is relayed all the same

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
)

// nested calls a tool of a backend through rollout and returns the text of its
// own result.
func nested(ctx context.Context, t *testing.T, cs *mcp.ClientSession, session, backend, tool, args string, token any) (string, error) {
	t.Helper()
	p := &mcp.CallToolParams{Name: "call_backend_tool", Arguments: json.RawMessage(fmt.Sprintf(
		`{"session_id":%q,"backend_name_ref":%q,"tool_name":%q,"tool_args":%s}`, session, backend, tool, args))}
	if token != nil {
		p.SetProgressToken(token)
	}
	res, err := cs.CallTool(ctx, p)
	if err != nil {
		return "", err
	}
	var own struct{ Content []struct{ Text string } }
	decode(t, []byte(textOf(t, res)), &own)
	if len(own.Content) != 1 {
		t.Fatalf("%s: %s", tool, textOf(t, res))
	}
	return own.Content[0].Text, nil
}

// TestNestedCalls checks that a call through rollout is one like any other:
// progress and questions reach the client, and what it gives up ends.
func TestNestedCalls(t *testing.T) {
	t.Parallel()
	old, young := newTalkative(t, false), newTalkative(t, true)
	w := openBackends(t, "", "", nil, fmt.Sprintf("  old: {url: %q}\n  young: {url: %q}\n", serveSDK(t, old.Server, false), serveSDK(t, young.Server, true)))
	for _, isModern := range []bool{false, true} {
		for backend, server := range map[string]*talkative{"old": old, "young": young} {
			t.Run(fmt.Sprintf("modern=%v/%s", isModern, backend), func(t *testing.T) {
				progress := make(chan *mcp.ProgressNotificationParams, 16)
				cs := w.connect(t, "/mcp/rollout", isModern, &mcp.ClientOptions{
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params },
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"who": "me"}}, nil
					},
					CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
						return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "hi"}}, nil
					},
				})
				res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "initialize_session", Arguments: json.RawMessage(`{"backends":[{"backend_name_ref":"` + backend + `"}]}`)})
				if err != nil || res.IsError {
					t.Fatalf("%v %+v", err, res)
				}
				var s struct {
					ID string `json:"session_id"`
				}
				decode(t, []byte(textOf(t, res)), &s)
				for tool, want := range map[string]string{"elicit": "accept me", "sample": "m: hi", "two": "me", "echo": `{"n":12345678901234567890}`} {
					got, err := nested(t.Context(), t, cs, s.ID, backend, tool, `{"n":12345678901234567890}`, nil)
					if err != nil || !strings.Contains(got, want) {
						t.Errorf("%s: %q, %v", tool, got, err)
					}
				}
				if _, err := nested(t.Context(), t, cs, s.ID, backend, "progress", `{}`, "my-token"); err != nil {
					t.Fatal(err)
				}
				for i := 1; i <= 3; i++ {
					if p := take(t, progress); p.ProgressToken != "my-token" || p.Progress != float64(i) {
						t.Errorf("progress %d: %+v", i, p)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := nested(ctx, t, cs, s.ID, backend, "wait", `{}`, nil)
					done <- err
				}()
				take(t, server.started)
				cancel()
				if err := take(t, server.ended); err == nil {
					t.Error("the server was not told")
				}
				if take(t, done) == nil {
					t.Error("the call was answered")
				}
				res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "call_backend_tool", Arguments: json.RawMessage(
					fmt.Sprintf(`{"session_id":%q,"backend_name_ref":%q,"tool_name":"fail"}`, s.ID, backend))})
				if err != nil || res.IsError || len(res.Meta) > 0 && res.Meta["tine/error"] != nil || !strings.Contains(textOf(t, res), `"isError":true`) {
					t.Errorf("a tool's own failure: %+v, %v", res, err)
				}
			})
		}
	}
}

// TestNestedGate checks that a call through rollout holds up a fork of the session
// that it is about, and not of the one that it is made in.
func TestNestedGate(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML+"sessions: {fork_wait: 10ms}\n", "")
	outer, inner := r.open(t, `{}`, asAda...), r.open(t, `{}`, asAda...)
	call := r.ways(t, outer.ID, asAda...)["handshake"]
	done := make(chan message, 1)
	go func() {
		done <- call("call_backend_tool", `{"session_id":"`+inner.ID+`","backend_name_ref":"slow","tool_name":"change"}`)
	}()
	take(t, r.slow.began)
	if f := act[api.Forks](t, call, "fork_session", `{}`); f.Parent != outer.ID {
		t.Errorf("forked %+v", f)
	}
	if e := wantKind(t, call("fork_session", `{"session_id":"`+inner.ID+`"}`), api.KindTimeout); !strings.Contains(e.Message, "slow__change") {
		t.Errorf("a fork in the middle of a call: %+v", e)
	}
	r.slow.free <- struct{}{}
	if m := take(t, done); m.Result == nil {
		t.Errorf("%s", m.raw)
	}
	// It is written down where it was made, as the caller's.
	calls := want[api.CallList](t, r.worlds, "GET", "/v1/calls?server=slow&session="+inner.ID, "", asAda...)
	if len(calls.Calls) != 1 || calls.Calls[0].Name != "change" || calls.Calls[0].Principal != "ada" {
		t.Errorf("the journal has %+v", calls)
	}
}

// TestRawResults checks that a backend's result comes through to the digit.
func TestRawResults(t *testing.T) {
	t.Parallel()
	s := script(t, false, map[string]string{
		"tools/call": `{"content":[{"type":"text","text":"<x>","annotations":null,"z":[null]}],"big":12345678901234567890,"deep":{"f":1.10,"n":null},"structuredContent":{"a":null},"_meta":null,"isError":null}`,
		"tools/list": `{"tools":[{"name":"a","title":null,"inputSchema":{"type":"object","default":null},"later":12345678901234567890}],"nextCursor":null}`,
	})
	w := openBackends(t, "", "", nil, fmt.Sprintf("  raw: {url: %q}\n", s.URL))
	c := w.dial(t, "/mcp/rollout", `{}`)
	answerOf(t, c.ask("tools/call", `{"name":"initialize_session","arguments":{"args":{"backends":[{"backend_name_ref":"raw"}]}}}`))
	for tool, want := range map[string]string{
		"call_backend_tool":  `{"content":[{"type":"text","text":"<x>","z":[null]}],"big":12345678901234567890,"deep":{"f":1.10,"n":null},"structuredContent":{"a":null},"isError":false}`,
		"list_backend_tools": `{"tools":[{"name":"a","inputSchema":{"type":"object","default":null},"later":12345678901234567890}]}`,
	} {
		args := `{"backend_name_ref":"raw"}`
		if tool == "call_backend_tool" {
			args = `{"backend_name_ref":"raw","tool_name":"a","tool_args":{"n":12345678901234567890,"z":null}}`
		}
		a := answerOf(t, c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"args":%s}}`, tool, args)))
		if a.Text != want || canonical(t, string(a.Structured)) != canonical(t, want) || a.IsError {
			t.Errorf("%s:\n%s, not\n%s\n%s", tool, a.Text, want, a.Structured)
		}
	}
	if got := string(s.last(t, "tools/call").Params); !strings.Contains(got, `{"n":12345678901234567890,"z":null}`) {
		t.Errorf("the server got %s", got)
	}
}
