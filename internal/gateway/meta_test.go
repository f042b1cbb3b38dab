package gateway_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
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
// own error is inside, its _meta is that of the older era, a tool that it does not
// have is the caller's mistake, and what fails is an error of the protocol where the
// endpoint has it so.
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
		wantKind(t, call("call_backend_tool", args("nope")), api.KindInvalid)
	}
	path := "/mcp/rollout?errors=protocol"
	m := r.dial(t, path, `{}`).ask("tools/call", `{"name":"call_backend_tool","arguments":`+args("nope")+`}`)
	if m.Result == nil {
		t.Errorf("a mistake: %s", m.raw)
	}
	m = r.dial(t, path, `{}`).ask("tools/call", `{"name":"fork_session","arguments":{"session_id":"`+s.ID+`","count":21}}`)
	if wantKind(t, m, api.KindRefused); m.failure(t).Code != -31000 {
		t.Errorf("a refusal: %s", m.raw)
	}
}
