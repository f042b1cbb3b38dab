package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is Sessions that notes what it is asked and answers with something
// that has every field.
type scripted struct {
	asked string
	err   error
	wait  bool          // until the caller gives up
	began chan struct{} // receives when it waits
}

func (s *scripted) note(ctx context.Context, what string, args ...any) error {
	b, err := json.Marshal(args)
	if err != nil {
		return err
	}
	s.asked = what + string(b)
	if s.wait {
		s.began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	return s.err
}

var someSession = api.Session{
	ID: "ses_1", Kind: api.SessionOpened, Owner: "ada", Labels: map[string]string{"k": "<v>"}, Parent: "ses_0", From: "snp_1", Depth: 1,
	Created: time.Unix(1, 0).UTC(), Used: time.Unix(2, 0).UTC(), Expires: time.Unix(3, 0).UTC(), Idle: "1h", URL: "http://x/s/ses_1/mcp?a&b",
	Members: []api.Member{{Server: "m", Fork: "memory"}}, Workspace: &api.Workspace{Kind: "tree"}, Calls: 3, InFlight: 1,
}

func (s *scripted) Open(ctx context.Context, caller, key string, in api.NewSession) (api.OpenedSession, error) {
	return api.OpenedSession{Session: someSession, Token: "t"}, s.note(ctx, "open", caller, key, in)
}

func (s *scripted) Fork(ctx context.Context, caller, session, key string, in api.ForkRequest) (api.Forks, error) {
	return api.Forks{Parent: "ses_0", Sessions: []api.OpenedSession{{Session: someSession, Token: "t"}}, Call: "call_1", Paused: 0.5}, s.note(ctx, "fork", caller, session, key, in)
}

func (s *scripted) Snapshot(ctx context.Context, caller, session string, in api.SnapshotRequest) (api.Snapshot, error) {
	return api.Snapshot{ID: "snp_1", Name: "base", Owner: "ada", Session: "ses_1", Created: time.Unix(1, 0).UTC(), Size: 7, Servers: []api.SnapshotMember{{Server: "m"}}}, s.note(ctx, "snapshot", caller, session, in)
}

func (s *scripted) Rewind(ctx context.Context, caller, session string, in api.RewindRequest) (api.Session, error) {
	return someSession, s.note(ctx, "rewind", caller, session, in)
}

func (s *scripted) Close(ctx context.Context, caller, session string) error {
	return s.note(ctx, "close", caller, session)
}

func (s *scripted) List(ctx context.Context, caller, parent string, labels map[string]string, limit int, after string) (api.SessionList, error) {
	return api.SessionList{Sessions: []api.Session{someSession}, Next: "ses_1"}, s.note(ctx, "list", caller, parent, labels, limit, after)
}

func (s *scripted) Servers(context.Context, string) ([]api.Server, error) {
	return []api.Server{{ID: "m", Driver: "docker", Scope: "session", Transport: "stdio", Enabled: true}, {ID: "off", Reason: "no image"}}, nil
}

func (s *scripted) Which(_ context.Context, _, named string) (string, error) {
	return cmp.Or(named, "ses_1"), nil
}

func (s *scripted) Use(context.Context, string, string) error { return nil }

func (s *scripted) Show(ctx context.Context, caller, session string) (api.Session, error) {
	return someSession, s.note(ctx, "show", caller, session)
}

func (s *scripted) Call(ctx context.Context, caller, session, member, tool string, args json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{"content":[]}`), s.note(ctx, "call", caller, session, member, tool, args)
}

func (s *scripted) Tools(ctx context.Context, caller, session, member string) (json.RawMessage, error) {
	return json.RawMessage(`{"tools":[]}`), s.note(ctx, "tools", caller, session, member)
}

func connect(t *testing.T, era string, s Sessions) *mcp.ClientSession {
	t.Helper()
	srv, err := New(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	return nativetest.Connect(t, srv, era, nil)
}

// call makes a call with a handle, as the gateway does.
func call(t *testing.T, cs *mcp.ClientSession, tool, args string) *mcp.CallToolResult {
	t.Helper()
	p := &mcp.CallToolParams{Name: tool, Meta: mcp.Meta{wire.MetaTineCaller: "me"}}
	if args != "" {
		p.Arguments = json.RawMessage(args)
	}
	res, err := cs.CallTool(t.Context(), p)
	if err != nil {
		t.Fatalf("%s %s: %v", tool, args, err)
	}
	return res
}

func textOf(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) != 1 {
		t.Fatalf("content %+v", res.Content)
	}
	return res.Content[0].(*mcp.TextContent).Text
}

func schemaOf(t *testing.T, v any) *jsonschema.Resolved {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTools holds the published schemas against what is read and answered.
func TestTools(t *testing.T) {
	inputs := map[string]reflect.Type{
		"open_session": reflect.TypeFor[openArgs](), "fork_session": reflect.TypeFor[forkArgs](), "snapshot_session": reflect.TypeFor[snapshotArgs](),
		"rewind_session": reflect.TypeFor[rewindArgs](), "close_session": reflect.TypeFor[closeArgs](), "list_sessions": reflect.TypeFor[listArgs](),
		"initialize_session": reflect.TypeFor[initArgs](), "call_backend_tool": reflect.TypeFor[callArgs](), "list_backend_tools": reflect.TypeFor[memberArgs](),
		"cleanup_session": reflect.TypeFor[sessionArgs](), "ping": reflect.TypeFor[sessionArgs](),
	}
	readOnly := []string{"list_sessions", "list_backend_tools", "ping"}
	destroys := []string{"rewind_session", "close_session", "call_backend_tool", "cleanup_session"}
	outputs := map[string]reflect.Type{
		"open_session": reflect.TypeFor[api.OpenedSession](), "fork_session": reflect.TypeFor[api.Forks](), "snapshot_session": reflect.TypeFor[api.Snapshot](),
		"rewind_session": reflect.TypeFor[api.Session](), "close_session": reflect.TypeFor[closed](), "list_sessions": reflect.TypeFor[api.SessionList](),
		"initialize_session": reflect.TypeFor[initialized](), "cleanup_session": reflect.TypeFor[cleanedUp](), "ping": reflect.TypeFor[pong](),
		"call_backend_tool": reflect.TypeFor[mcp.CallToolResult](), "list_backend_tools": reflect.TypeFor[mcp.ListToolsResult](),
	}
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			cs := connect(t, era, &scripted{})
			list, err := cs.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Tools) != len(inputs) || list.NextCursor != "" {
				t.Errorf("%d tools, next %q", len(list.Tools), list.NextCursor)
			}
			for _, tool := range list.Tools {
				in := schemaOf(t, tool.InputSchema).Schema()
				var have []string
				for k := range in.Properties {
					have = append(have, k)
				}
				slices.Sort(have)
				if want := names(inputs[tool.Name]); !slices.Equal(have, want) || in.Type != "object" {
					t.Errorf("%s takes %q and says %q", tool.Name, want, have)
				}
				answers, err := jsonschema.ForType(outputs[tool.Name], nil)
				if err != nil {
					t.Fatal(err)
				}
				out := schemaOf(t, tool.OutputSchema).Schema()
				for k := range out.Properties {
					if answers.Properties[k] == nil {
						t.Errorf("%s says that it answers %s", tool.Name, k)
					}
				}
				for _, k := range out.Required {
					if !slices.Contains(answers.Required, k) {
						t.Errorf("%s may leave %s out", tool.Name, k)
					}
				}
				if a := tool.Annotations; a == nil || a.DestructiveHint == nil || a.OpenWorldHint == nil || a.ReadOnlyHint != slices.Contains(readOnly, tool.Name) ||
					*a.DestructiveHint != slices.Contains(destroys, tool.Name) {
					t.Errorf("%s: %+v", tool.Name, a)
				}
			}
			if _, err := cs.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "x"}); err == nil {
				t.Error("a second page")
			}
		})
	}
}

var asks = []struct{ tool, args, want string }{
	{"open_session", ``, `open["me","",{}]`},
	{"open_session", `{}`, `open["me","",{}]`},
	{"open_session", `{"from":"base","labels":{"a":"b"},"ttl":"2h","idle":"30m","servers":["m"],"eager":true}`,
		`open["me","",{"from":"base","labels":{"a":"b"},"ttl":"2h","idle":"30m","servers":["m"],"eager":true}]`},
	{"fork_session", `{}`, `fork["me","ses_1","",{"count":1}]`},
	{"fork_session", `{"session_id":null,"count":null,"labels":null}`, `fork["me","ses_1","",{"count":1}]`},
	{"fork_session", `{"idempotency_key":"k"}`, `fork["me","ses_1","k",{"count":1}]`},
	{"fork_session", `{"session_id":"ses_0","count":32,"labels":{"a":"b"},"ttl":"1h"}`, `fork["me","ses_0","",{"count":32,"labels":{"a":"b"},"ttl":"1h"}]`},
	{"fork_session", `{"count":-1}`, `fork["me","ses_1","",{"count":-1}]`}, // whose bounds are not known here
	{"snapshot_session", `{}`, `snapshot["me","ses_1",{}]`},
	{"snapshot_session", `{"session_id":"ses_1","name":"base","labels":{"a":"b"}}`, `snapshot["me","ses_1",{"name":"base","labels":{"a":"b"}}]`},
	{"rewind_session", `{}`, `rewind["me","ses_1",{}]`},
	{"rewind_session", `{"session_id":"ses_1","snapshot":"base"}`, `rewind["me","ses_1",{"snapshot":"base"}]`},
	{"close_session", `{"session_id":"ses_1"}`, `close["me","ses_1"]`},
	{"list_sessions", `{}`, `list["me","",null,0,""]`},
	{"list_sessions", `{"parent":"ses_0","labels":{"a":"b"},"limit":5,"after":"ses_9"}`, `list["me","ses_0",{"a":"b"},5,"ses_9"]`},
	{"initialize_session", `{"backends":[{"backend_name_ref":"m"}]}`, `open["me","",{"servers":["m"],"eager":true}]`},
	{"initialize_session", `{"backends":[{"backend_name_ref":"m","num_instances":1}],"idempotency_key":"k"}`, `open["me","k",{"servers":["m"],"eager":true}]`},
	{"initialize_session", `{"backends":[{"backend_name_ref":"m","num_instances":3,"template_details":{"a":[12345678901234567890]},"orchestration_preference":"local_docker"}]}`,
		`open["me","",{"servers":["m"],"eager":true,"members":{"m":{"instances":3,"template":{"a":[12345678901234567890]}}}}]`},
	{"initialize_session", `{"backends":[{"backend_name_ref":"m","orchestration_preference":"docker"}]}`, `open["me","",{"servers":["m"],"eager":true}]`},
	{"call_backend_tool", `{"backend_name_ref":"m","tool_name":"t"}`, `call["me","ses_1","m","t",{}]`},
	{"call_backend_tool", `{"backend_name_ref":"m","tool_name":"t","tool_args":null,"instance_id":3,"session_id":"ses_2"}`, `call["me","ses_2","m~3","t",{}]`},
	{"call_backend_tool", `{"backend_name_ref":"m","tool_name":"t","tool_args":{"args":{"n":12345678901234567890}}}`, `call["me","ses_1","m","t",{"args":{"n":12345678901234567890}}]`},
	{"list_backend_tools", `{"backend_name_ref":"m","instance_id":"m~2"}`, `tools["me","ses_1","m~2"]`},
	{"cleanup_session", `{"rk_session_id":"ses_1"}`, `close["me","ses_1"]`},
	{"ping", `{}`, `show["me","ses_1"]`},
}

// TestCalls makes every call flat and wrapped, in both eras.
func TestCalls(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			s := &scripted{}
			cs := connect(t, era, s)
			list, err := cs.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			outputs := map[string]*jsonschema.Resolved{}
			for _, tool := range list.Tools {
				outputs[tool.Name] = schemaOf(t, tool.OutputSchema)
			}
			for _, tt := range asks {
				for _, args := range []string{tt.args, `{"args":` + tt.args + `}`} {
					if args == `{"args":}` {
						args = `{"args":null}`
					}
					s.asked = ""
					res := call(t, cs, tt.tool, args)
					if res.IsError || s.asked != tt.want {
						t.Errorf("%s %s asks %s, want %s (%+v)", tt.tool, args, s.asked, tt.want, res)
						continue
					}
					var text any
					if err := json.Unmarshal([]byte(textOf(t, res)), &text); err != nil || !reflect.DeepEqual(text, res.StructuredContent) {
						t.Errorf("%s: %v: the text is %s, the content %v", tt.tool, err, textOf(t, res), res.StructuredContent)
					}
					if err := outputs[tt.tool].Validate(res.StructuredContent); err != nil {
						t.Errorf("%s: %v", tt.tool, err)
					}
				}
			}
			if got := textOf(t, call(t, cs, "rewind_session", "")); !strings.Contains(got, `"url":"http://x/s/ses_1/mcp?a&b"`) {
				t.Errorf("the URL is not one any more: %s", got)
			}
			if got := textOf(t, call(t, cs, "close_session", `{"session_id":"ses_1"}`)); got != `{"session_id":"ses_1","closed":true}` {
				t.Errorf("closed: %s", got)
			}
			// Without a handle no caller is made up.
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_sessions", Meta: mcp.Meta{wire.MetaTineCaller: 7}}); err != nil || s.asked != `list["","",null,0,""]` {
				t.Errorf("%v, asked %s", err, s.asked)
			}
		})
	}
}

// errorOf is what a failed call says of itself.
func errorOf(t *testing.T, res *mcp.CallToolResult) api.Error {
	t.Helper()
	b, err := json.Marshal(res.Meta[wire.MetaTineError])
	if err != nil {
		t.Fatal(err)
	}
	var e api.Error
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	if !res.IsError || res.StructuredContent != nil || textOf(t, res) != e.Message || e.Message == "" {
		t.Errorf("failed with %+v", res)
	}
	return e
}

func TestErrors(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			s := &scripted{}
			cs := connect(t, era, s)
			for _, tt := range []struct{ tool, args, say string }{
				{"fork_session", `{"sesion_id":"ses_1"}`, `unknown field "sesion_id"; the arguments are count, idempotency_key, labels, session_id, ttl`},
				{"fork_session", `{"count":"2"}`, `count must be a whole number, got string`},
				{"fork_session", `{"count":1.5}`, `count must be a whole number, got number 1.5`},
				{"fork_session", `{"count":0}`, `count must be at least 1`},
				{"fork_session", `{"args":{"args":{}}}`, `unknown field "args"`},
				{"fork_session", `{"args":{},"count":2}`, `all in args, or none`},
				{"fork_session", `{"args":[]}`, `args must be an object`},
				{"open_session", `{"servers":"m"}`, `servers must be a list of strings, got string`},
				{"open_session", `{"labels":[]}`, `labels must be an object of strings, got array`},
				{"open_session", `{"labels":{"a":1}}`, `must be a string, got number`},
				{"open_session", `{"eager":"yes"}`, `eager must be true or false, got string`},
				{"open_session", `{"from":1}`, `from must be a string, got number`},
				{"close_session", `{}`, `session_id must name`},
				{"close_session", `{"session_id":""}`, `session_id must name`},
				{"initialize_session", `{"backends":[{"backend_name_ref":"m","orchestration_preference":"remote_http_api"}]}`, `backend "m" is run as local_docker`},
				{"initialize_session", `{"backends":[{"backend_name_ref":"m","orchestration_preference":"builtin"}]}`, `backend "m" is run as local_docker`},
			} {
				s.asked = ""
				e := errorOf(t, call(t, cs, tt.tool, tt.args))
				if e.Kind != api.KindInvalid || e.Retryable || !strings.Contains(e.Message, tt.say) || s.asked != "" {
					t.Errorf("%s %s: %+v, asked %q", tt.tool, tt.args, e, s.asked)
				}
			}
			for _, want := range []api.Error{
				{Kind: api.KindRefused, Message: "no room", Retryable: true, RetryAfter: 3},
				{Kind: api.KindTimeout, Message: "a call did not end", Retryable: true},
				{Kind: api.KindInfrastructure, Message: "it broke", Server: "m"},
				{Kind: api.KindInfrastructure, Message: "both broke", Causes: []*api.Error{{Kind: api.KindTimeout, Server: "m", Message: "m broke"}, {Kind: api.KindLost, Server: "n", Message: "n broke"}}},
			} {
				s.err = fmt.Errorf("wrapped: %w", &want)
				for _, tool := range []string{"open_session", "fork_session", "snapshot_session", "rewind_session", "list_sessions"} {
					if e := errorOf(t, call(t, cs, tool, "")); !reflect.DeepEqual(e, want) {
						t.Errorf("%s: %+v, want %+v", tool, e, want)
					}
				}
				if e := errorOf(t, call(t, cs, "close_session", `{"session_id":"ses_1"}`)); !reflect.DeepEqual(e, want) {
					t.Errorf("close_session: %+v, want %+v", e, want)
				}
			}
			s.err = nil
			if e := errorOf(t, call(t, cs, "initialize_session", `{"backends":[{"backend_name_ref":"off"}]}`)); e.Kind != api.KindRefused || !strings.Contains(e.Message, `backend "off" is off: no image`) {
				t.Errorf("a backend that is off: %+v", e)
			}
			s.err = errors.New("disk full")
			if e := errorOf(t, call(t, cs, "open_session", "")); e.Kind != api.KindInfrastructure || e.Message != "disk full" {
				t.Errorf("an error without a kind: %+v", e)
			}
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "end_session"}); err == nil {
				t.Error("a tool that is not there was called")
			}
		})
	}
}

// TestGivenUp checks that a call that its client gives up is given up here too.
func TestGivenUp(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			s := &scripted{wait: true, began: make(chan struct{})}
			cs := connect(t, era, s)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fork_session"})
				done <- err
			}()
			<-s.began
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	if _, err := New(map[string]any{"x": 1}, &scripted{}); err == nil || err.Error() != "settings.x is not known; this server has no settings" {
		t.Errorf("err = %v", err)
	}
}
