package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestTakenToolsAreGoneEverywhere has an operator take a tool away, at run time
// and in the config, and looks for it on every way to it: in sessions that were
// opened before, in their forks, in those from older snapshots, after a restart, by
// replay, and by the tools of rollout.
func TestTakenToolsAreGoneEverywhere(t *testing.T) {
	patch := func(body string) func(*worlds) {
		return func(w *worlds) { want[api.Server](t, w, "PATCH", "/v1/servers/n", body, asOps...) }
	}
	config := func(with string) func(*worlds) {
		return func(w *worlds) {
			w.reload(t, strings.Replace(w.yaml, "  n: {builtin: memory, scope: session", "  n: {builtin: memory, scope: session"+with, 1))
		}
	}
	back := func(with string) func(*worlds) {
		return func(w *worlds) { w.reload(t, strings.Replace(w.yaml, with, "", 1)) }
	}
	for name, tt := range map[string]struct{ take, giveBack func(*worlds) }{
		"denied at run time":      {patch(`{"set":{"tools":{"deny":["ad*"]}}}`), patch(`{"reset":true}`)},
		"not allowed at run time": {patch(`{"set":{"tools":{"allow":["show"]}}}`), patch(`{"unset":["tools"]}`)},
		"denied in the config":    {config(", tools: {deny: [add]}"), back(", tools: {deny: [add]}")},
		"off at run time":         {patch(`{"enabled":false}`), patch(`{"enabled":true}`)},
		"off in the config":       {config(", enabled: false"), back(", enabled: false")},
	} {
		t.Run(name, func(t *testing.T) {
			w := openCurtain(t)
			s := w.open(t, `{}`, asBob...)
			w.tool(t, s.ID, "add", asBob...)
			snap := want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"a"}`, asBob...)
			fork := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", asBob...).Sessions[0]
			inst := want1[[]api.Instance](t, w, "POST", "/instances", `{"resource_type_identifier":"n"}`, asBob...)[0]
			var call api.Call
			testkit.Eventually(t, "the call is in the journal", func() bool {
				list := want[api.CallList](t, w, "GET", "/v1/calls?session="+s.ID, "", asBob...).Calls
				at := slices.IndexFunc(list, func(c api.Call) bool { return c.Name == "add" })
				if at >= 0 {
					call = list[at]
				}
				return at >= 0
			})
			live := w.dial(t, "/s/"+s.ID+"/mcp", `{}`, asBob...) // connected since before
			live.get("tools/list", `{}`)

			// Each way leads to it now.
			if r := w.rollout(t, "call_backend_tool", fmt.Sprintf(`{"session_id":%q,"backend_name_ref":"n","tool_name":"add","tool_args":{}}`, fork.ID), asBob...); strings.Contains(r, `"isError":true`) || strings.Contains(r, `"error"`) {
				t.Fatalf("by rollout: %s", r)
			}
			want1[map[string]any](t, w, "POST", "/instances/"+inst.ID+"/call", `{"tool_name":"add"}`, asBob...)
			want[api.Replay](t, w, "POST", "/v1/calls/"+call.ID+"/replay", "", asBob...)
			if m := live.ask("tools/call", `{"name":"n__add"}`); m.Error != nil {
				t.Fatalf("by MCP: %s", m.raw)
			}
			tt.take(w)
			for _, restarted := range []bool{false, true} {
				if restarted {
					w.restart()
				}
				from := w.open(t, `{"from":"`+snap.ID+`"}`, asBob...)
				late := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", asBob...).Sessions[0]
				for what, one := range map[string]string{"opened before": s.ID, "forked before": fork.ID, "from an older snapshot": from.ID, "forked later": late.ID} {
					for who, headers := range map[string][]string{"bob": asBob, "an operator": asOps} {
						if r := w.ask(t, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q}`, one), headers...); r.status < 400 {
							t.Errorf("%s, %s calls it: %s", what, who, r.body)
						}
						for _, path := range []string{"/s/" + one + "/mcp", "/s/" + one + "/mcp/n"} {
							tool := "add"
							if strings.HasSuffix(path, "mcp") {
								tool = "n__add"
							}
							r := w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`, append([]string{"Content-Type", "application/json"}, headers...)...)
							if strings.Contains(string(r.body), `"content"`) && !strings.Contains(string(r.body), `"isError":true`) {
								t.Errorf("%s, %s calls it at %s: %s", what, who, path, r.body)
							}
						}
						if r := w.rollout(t, "call_backend_tool", fmt.Sprintf(`{"session_id":%q,"backend_name_ref":"n","tool_name":"add","tool_args":{}}`, one), headers...); !strings.Contains(r, `"isError":true`) && !strings.Contains(r, `"error"`) {
							t.Errorf("%s, %s calls it by rollout: %s", what, who, r)
						}
					}
					for _, tool := range want[api.ToolList](t, w, "GET", "/v1/tools?session="+one, "", asBob...).Tools {
						if tool.Name == "n__add" {
							t.Errorf("%s, it is listed", what)
						}
					}
				}
				if r := w.ask(t, "POST", "/v1/calls/"+call.ID+"/replay", "", asBob...); r.status < 400 {
					t.Errorf("it is replayed: %s", r.body)
				}
				if r := w.do(t, "POST", "/instances/"+inst.ID+"/call", `{"tool_name":"add"}`, append([]string{"Content-Type", "application/json"}, asBob...)...); r.status < 400 && !strings.Contains(string(r.body), "Tool add not found") {
					t.Errorf("an instance has it: %s", r.body)
				}
				if !restarted {
					if m := live.ask("tools/call", `{"name":"n__add"}`); m.Error == nil && !strings.Contains(string(m.Result), `"isError":true`) {
						t.Errorf("who was connected calls it: %s", m.raw)
					}
				}
			}
			tt.giveBack(w)
			for one, want := range map[string]string{s.ID: "4", fork.ID: "3"} {
				if got := w.tool(t, one, "add", asBob...); got != want {
					t.Errorf("given back it says %s, want %s", got, want)
				}
			}
		})
	}
}

// want1 is want for the orchestration API, which the document does not have.
func want1[T any](t *testing.T, w *worlds, method, path, body string, who ...string) (out T) {
	t.Helper()
	r := w.do(t, method, path, body, append([]string{"Content-Type", "application/json"}, who...)...)
	if r.status != 200 {
		t.Fatalf("%s %s: status %d %s", method, path, r.status, r.body)
	}
	decode(t, r.body, &out)
	return out
}

// rollout calls a tool of server rollout and returns what came back.
func (w *worlds) rollout(t *testing.T, tool, args string, who ...string) string {
	t.Helper()
	r := w.do(t, "POST", "/mcp/rollout", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+args+`}}`,
		append([]string{"Content-Type", "application/json"}, who...)...)
	return string(r.body)
}
