package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestRulesByKind checks that a rule for tools opens neither resources, nor
// prompts, nor completions of a server, that rules for those do, and that what is
// hidden can't be told from what is not there.
func TestRulesByKind(t *testing.T) {
	t.Parallel()
	const rules = `auth:
  tokens: [{name: ada, token: ada-ada-ada-ada-ada}, {name: bob, token: bob-bob-bob-bob-bob}]
  rules:
    - {principals: [ada], tools: ["a__*"]}
    - {principals: [bob], prompts: ["a__p"], resources: [a]}
`
	promptOf := func(name string) string {
		return `{"ref":{"type":"ref/prompt","name":"` + name + `"},"argument":{"name":"x","value":""}}`
	}
	resourceOf := func(uri string) string {
		return `{"ref":{"type":"ref/resource","uri":"` + uri + `"},"argument":{"name":"x","value":""}}`
	}
	for _, path := range []string{"/mcp/a", "/mcp"} {
		up := partly(t, false, "", "one")
		up.answers["prompts/list"] = result1(`{"prompts":[{"name":"p"},{"name":"secret"}]}`)
		w := open(t, rules+servers("a", up.URL))
		pre, uri := "", ""
		if path == "/mcp" {
			pre, uri = "a__", "tine://a/"
		}
		ada, bob := w.dial(t, path, `{}`, asAda...), w.dial(t, path, `{}`, asBob...)
		ada.get("tools/call", `{"name":"`+pre+`one"}`)
		if m := bob.ask("tools/call", `{"name":"`+pre+`one"}`); m.Error == nil {
			t.Errorf("%s: bob called a tool: %s", path, m.raw)
		}
		for _, q := range []struct{ method, params string }{
			{"prompts/get", `{"name":"` + pre + `p"}`},
			{"resources/read", `{"uri":"` + uri + `res://one"}`},
			{"resources/subscribe", `{"uri":"` + uri + `res://one"}`},
			{"completion/complete", promptOf(pre + "p")},
			{"completion/complete", resourceOf(uri + "res://one")},
		} {
			reached := len(up.of(q.method))
			m := ada.ask(q.method, q.params)
			if m.Error == nil || len(up.of(q.method)) != reached {
				t.Errorf("%s: ada's %s %s: %s", path, q.method, q.params, m.raw)
			}
			if m := bob.ask(q.method, q.params); m.Error != nil {
				t.Errorf("%s: bob's %s %s: %s", path, q.method, q.params, m.raw)
			}
		}
		// An operator reads what it was that ada has no rule for.
		var list api.CallList
		decode(t, w.do(t, "GET", "/v1/calls?principal=ada&failed=true", "", "Authorization", "Bearer "+operator).body, &list)
		var why []string
		for _, c := range slices.Backward(list.Calls) {
			why = append(why, c.Method+": "+strings.TrimPrefix(c.Error, `auth.rules give "ada" no `))
		}
		if want := []string{
			"prompts/get: prompt p of server a", "resources/read: resource res://one of server a", "resources/subscribe: resource res://one of server a",
			"completion/complete: prompt p of server a", "completion/complete: resource res://one of server a",
		}; !slices.Equal(why, want) {
			t.Errorf("%s: an operator reads %q", path, why)
		}
		for method, empty := range map[string]string{"prompts/list": `"prompts":[]`, "resources/list": `"resources":[]`, "resources/templates/list": `"resourceTemplates":[]`} {
			if got := string(ada.get(method, `{}`)); !strings.Contains(got, empty) {
				t.Errorf("%s: ada's %s: %s", path, method, got)
			}
			if got := string(bob.get(method, `{}`)); strings.Contains(got, empty) || strings.Contains(got, "secret") {
				t.Errorf("%s: bob's %s: %s", path, method, got)
			}
		}
		// A prompt that is hidden and one that is not there are answered alike.
		up.answers["prompts/get"] = func(w http.ResponseWriter, _ *http.Request, in received) {
			writeFailure(w, http.StatusOK, in, -32602, "never heard of it")
		}
		hidden, absent := bob.ask("prompts/get", `{"name":"`+pre+`secret"}`), bob.ask("prompts/get", `{"name":"`+pre+`absent"}`)
		if h, a := hidden.failure(t).Message, absent.failure(t).Message; strings.Replace(h, "secret", "absent", 1) != a {
			t.Errorf("%s: a hidden prompt is %q, an absent one %q", path, h, a)
		}
	}
	// A view of one server says nothing of what it hides.
	w := open(t, rules+servers("a", partly(t, false, "", "one").URL))
	hello := w.do(t, "POST", "/mcp/a", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`,
		append([]string{"Content-Type", "application/json", "Accept", bothTypes}, asAda...)...)
	if caps := string(hello.answer().Result); !strings.Contains(caps, `"tools"`) || strings.Contains(caps, `"prompts"`) || strings.Contains(caps, `"resources"`) || strings.Contains(caps, `"completions"`) {
		t.Errorf("ada is greeted with %s", caps)
	}
}
