package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/native/rollout"
)

// TestMetaOfTheOtherEra checks that clients of the older era don't get what only
// the newer one knows in _meta, and that all else of it passes.
func TestMetaOfTheOtherEra(t *testing.T) {
	t.Parallel()
	const meta = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"a","icons":[]},"own/key":1}`
	up := script(t, true, map[string]string{
		"tools/list":     strings.Replace(toolList("one"), "{", "{"+meta+",", 1),
		"tools/call":     `{` + meta + `,"content":[],"resultType":"complete"}`,
		"resources/read": `{` + meta + `,"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
	})
	w := open(t, servers("a", up.URL))
	for method, params := range map[string]string{"tools/call": `{"name":"one"}`, "tools/list": `{}`, "resources/read": `{"uri":"x://y"}`} {
		old := string(w.dial(t, "/mcp/a", `{}`).get(method, params))
		if strings.Contains(old, "io.modelcontextprotocol") || !strings.Contains(old, `"own/key":1`) {
			t.Errorf("an older client gets %s", old)
		}
		name := map[string]string{"tools/call": "one", "resources/read": "x://y"}[method]
		if young := string(w.modern(t, "/mcp/a", `{}`).get(method, name, params)); !strings.Contains(young, meta) {
			t.Errorf("a newer client gets %s", young)
		}
	}
}

// TestBackendsAnswer checks what call_backend_tool gives of a backend's answer: its
// own error is inside, its _meta is that of the older era, and what fails is an error
// of the protocol where the endpoint has it so.
func TestBackendsAnswer(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, "sessions: {max: 20}\n", "")
	s := r.open(t, `{}`)
	args := func(tool string) string {
		return `{"session_id":"` + s.ID + `","backend_name_ref":"slow","tool_name":"` + tool + `"}`
	}
	for name, call := range r.ways(t, "") {
		m := call("call_backend_tool", args("show"))
		if got := string(m.Result); strings.Contains(got, `\"io.modelcontextprotocol`) || strings.Contains(got, `"isError":true`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	path := "/mcp/rollout?errors=protocol"
	m := r.dial(t, path, `{}`).ask("tools/call", `{"name":"fork_session","arguments":{"session_id":"`+s.ID+`","count":21}}`)
	if wantKind(t, m, api.KindRefused); m.failure(t).Code != -31000 {
		t.Errorf("a refusal: %s", m.raw)
	}
}

// TestRelayedUnknownTools checks what those get who pass a tool's result on to a model,
// of a tool that is not there: what the server itself has answered, or the same in the
// words of the gateway. It is no failure of the call, and invalid in the journal unless
// the server made a result of it.
func TestRelayedUnknownTools(t *testing.T) {
	t.Parallel()
	says, fails, bare := partly(t, false, "isError", "one", "two"), partly(t, false, "", "one"), partly(t, false, "", "one")
	bare.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		writeFailure(w, http.StatusOK, in, -32602, "it was called wrong")
	})
	control := &gateway.Control{}
	w := openWith(t, "servers:\n"+
		"  says: {url: \""+says.URL+"\"}\n  fails: {url: \""+fails.URL+"\"}\n  bare: {url: \""+bare.URL+"\"}\n"+
		"  denies: {url: \""+says.URL+"\", tools: {deny: [two]}}\n  n: {builtin: memory}\n  rollout: {builtin: rollout}\n",
		func(o *gateway.Options) { o.Control, o.Orchestrate = control, true }, map[string]builtin.Kind{
			"memory": remembering(),
			"rollout": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
				s, err := rollout.New(e.Settings, control)
				return s, nil, err
			}},
		})
	ws := &worlds{w, readDocument(t, w, "/openapi.json", "Authorization", "Bearer "+operator)}
	s := (&worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}).open(t, `{}`)
	const none = `{"content":[{"type":"text","text":"MCP error -32602: Tool %s not found"}],"isError":true}`
	for _, tt := range []struct{ server, tool, want, outcome string }{
		{"says", "nope", `{"content":[{"type":"text","text":"no tool nope"}],"isError":true,"resultType":"complete"}`, "tool"},
		{"fails", "nope", fmt.Sprintf(none, "nope"), "invalid"},
		{"bare", "nope", fmt.Sprintf(none, "nope"), "invalid"},
		{"denies", "two", fmt.Sprintf(none, "two"), "invalid"},
		{"denies", "nope", fmt.Sprintf(none, "nope"), "tool"},
		{"n", `a"b`, fmt.Sprintf(none, `a\"b`), "invalid"},
	} {
		journal := func(way string) {
			var list api.CallList
			decode(t, w.do(t, "GET", "/v1/calls?limit=1&server="+tt.server, "").body, &list)
			if len(list.Calls) != 1 || list.Calls[0].Outcome != tt.outcome || list.Calls[0].Name != tt.tool {
				t.Errorf("%s %s by %s is in the journal as %+v, want %s", tt.server, tt.tool, way, list.Calls, tt.outcome)
			}
		}
		args, err := json.Marshal(map[string]any{"session_id": s.ID, "backend_name_ref": tt.server, "tool_name": tt.tool, "tool_args": map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/mcp/rollout", "/mcp/rollout?errors=protocol"} {
			m := w.dial(t, path, `{}`).ask("tools/call", `{"name":"call_backend_tool","arguments":`+string(args)+`}`)
			var out struct {
				Content []struct{ Text string }
				IsError bool
			}
			if m.Result == nil {
				t.Fatalf("%s %s: %s", tt.server, tt.tool, m.raw)
			}
			if decode(t, m.Result, &out); out.IsError || len(out.Content) != 1 || canonical(t, out.Content[0].Text) != canonical(t, tt.want) {
				t.Errorf("%s %s at %s: %s, want %s", tt.server, tt.tool, path, m.raw, tt.want)
			}
			journal(path)
		}
		i := ws.instances(t, `{"resource_type_identifier":"`+tt.server+`"}`)[0]
		r := w.do(t, "POST", "/instances/"+i.ID+"/call", fmt.Sprintf(`{"tool_name":%q}`, tt.tool), "Content-Type", "application/json")
		if r.status != http.StatusOK || canonical(t, string(r.body)) != canonical(t, tt.want) {
			t.Errorf("%s %s by the orchestration API: status %d %s, want %s", tt.server, tt.tool, r.status, r.body, tt.want)
		}
		journal("the orchestration API")
	}
	// A call that is wrong is one still, of a tool that is there.
	args := `{"session_id":"` + s.ID + `","backend_name_ref":"bare","tool_name":"one"}`
	wantKind(t, w.dial(t, "/mcp/rollout", `{}`).ask("tools/call", `{"name":"call_backend_tool","arguments":`+args+`}`), api.KindInvalid)
}
