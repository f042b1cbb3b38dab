package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// rated lets ada make so many calls, and then none for the rest of the test.
func rated(burst int) string {
	return twoPeople + fmt.Sprintf("  rules: [{principals: [ada], rate: {calls: 0.0001, burst: %d}}, {principals: [bob]}]\n", burst)
}

// TestRateOfAPrincipal checks that the calls of a principal are counted together,
// whatever way they come, and refused as other limits refuse.
func TestRateOfAPrincipal(t *testing.T) {
	t.Parallel()
	up := partly(t, true, "", "one")
	other := echoServer(t, true, "one")
	w := open(t, rated(3)+servers("a", up.URL, "b", other.URL))
	asJSON := append([]string{"Content-Type", "application/json"}, asAda...)
	young, old := w.modern(t, "/mcp/a", `{}`, asAda...), w.dial(t, "/mcp", `{}`, asAda...)
	young.get("tools/call", "one", `{"name":"one"}`)
	old.get("tools/call", `{"name":"b__one"}`)
	old.get("resources/read", `{"uri":"tine://a/res://one"}`)
	sent := len(up.of("tools/call"))

	e := wantRefused(t, young.request("tools/call", "one", `{"name":"one"}`))
	if !strings.Contains(e.Message, `"ada"`) || !strings.Contains(e.Message, "auth.rules") {
		t.Errorf("the refusal names neither the principal nor the key: %q", e.Message)
	}
	wantKind(t, old.ask("tools/call", `{"name":"a__one"}`), api.KindRefused)
	for method, params := range map[string]string{"prompts/get": `{"name":"a__p"}`, "completion/complete": `{"ref":{"type":"ref/prompt","name":"a__p"},"argument":{"name":"x","value":""}}`} {
		if m := old.ask(method, params); m.Error == nil {
			t.Errorf("%s: %s", method, m.raw)
		}
	}
	batch := w.do(t, "POST", "/mcp/a", `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one"}}]`, append(asJSON, "Accept", bothTypes)...)
	if !strings.Contains(string(batch.body), `"refused"`) {
		t.Errorf("a batch got %s", batch.body)
	}
	events, post := openEvents(t, w, "/sse/a", asAda...)
	w.do(t, "POST", post, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`, asJSON...)
	events.next()
	w.do(t, "POST", post, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"one"}}`, asJSON...)
	wantKind(t, events.next(), api.KindRefused)

	// The control API answers 429, also where a call is made again.
	var list api.CallList
	decode(t, w.do(t, "GET", "/v1/calls?server=a", "", asAda...).body, &list)
	list.Calls = slices.DeleteFunc(list.Calls, func(c api.Call) bool { return c.Outcome != "ok" || c.Method != "tools/call" })
	for path, body := range map[string]string{
		"/v1/call": `{"tool":"a__one"}`,
		"/v1/calls/" + list.Calls[0].ID + "/replay": "",
	} {
		if r := w.do(t, "POST", path, body, asJSON...); r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d %s", path, r.status, r.body)
		}
	}
	if n := len(up.of("tools/call")); n != sent {
		t.Errorf("%d calls reached the server, want %d", n, sent)
	}
	// What is not a call goes on, and so do others.
	young.get("tools/list", "", `{}`)
	old.get("tools/list", `{}`)
	for range 5 {
		w.modern(t, "/mcp/a", `{}`, asBob...).get("tools/call", "one", `{"name":"one"}`)
	}
	decode(t, w.do(t, "GET", "/v1/calls?failed=true", "", asAda...).body, &list)
	if len(list.Calls) == 0 || !strings.Contains(list.Calls[0].Error, "auth.rules") {
		t.Errorf("the journal has %+v", list.Calls)
	}
}

// TestRateOfASessionsToken checks that a session's token counts for its owner.
func TestRateOfASessionsToken(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, rated(4))
	s := w.open(t, `{}`, asAda...)
	for range 2 {
		w.tool(t, s.ID, "add", asAda...)
		w.tool(t, s.ID, "add", bearer(s.Token)...)
	}
	for _, who := range [][]string{asAda, bearer(s.Token)} {
		wantKind(t, w.modern(t, "/s/"+s.ID+"/mcp/n", `{}`, who...).ask("tools/call", "add", `{"name":"add"}`), api.KindRefused)
	}
}

// TestRateOfNestedCalls checks that a call through rollout counts once.
func TestRateOfNestedCalls(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, rated(3), "")
	s := r.open(t, `{}`, asAda...)
	args := `{"session_id":"` + s.ID + `","backend_name_ref":"slow","tool_name":"show"}`
	for n, call := range []way{r.ways(t, "", asAda...)["stateless"], r.ways(t, "", asAda...)["handshake"], r.ways(t, "", asAda...)["stateless"]} {
		if m := call("call_backend_tool", args); strings.Contains(string(m.raw), "tine/error") {
			t.Errorf("call %d: %s", n, m.raw)
		}
	}
	wantKind(t, r.ways(t, "", asAda...)["stateless"]("call_backend_tool", args), api.KindRefused)
}
