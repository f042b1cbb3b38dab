package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/native/rollout/rollouttest"
)

// TestControlsApart checks that tools for sessions are kept from what a model
// sees, unless the config says otherwise.
func TestControlsApart(t *testing.T) {
	t.Parallel()
	w := openBackends(t, teamYAML, "", nil, "")
	for _, name := range names(tools(t, w.world, "/mcp", asAda...)) {
		if !strings.Contains(name, "__") || strings.HasPrefix(name, "rollout") {
			t.Errorf("the merged view has %s", name)
		}
	}
	for _, tool := range want[api.ToolList](t, w, "GET", "/v1/tools", "", asAda...).Tools {
		if tool.Server == "rollout" {
			t.Errorf("%s is listed", tool.Name)
		}
	}
	for _, name := range []string{"ping", "rollout__ping"} {
		if m := w.modern(t, "/mcp", `{}`, asAda...).ask("tools/call", name, `{"name":"`+name+`"}`); !strings.Contains(string(m.Error), "Unknown tool") {
			t.Errorf("%s in the merged view: %s", name, m.raw)
		}
	}
	// A request that names them has them, in any session.
	s := w.open(t, `{"servers":["memory"]}`, asAda...)
	for _, path := range []string{"/mcp/rollout", "/s/" + s.ID + "/mcp/rollout"} {
		if all := names(tools(t, w.world, path, asAda...)); len(all) != 11 {
			t.Errorf("at %s there are %v", path, all)
		}
	}
	if listed := want[api.ToolList](t, w, "GET", "/v1/tools?server=rollout", "", asAda...); len(listed.Tools) != 11 || listed.Tools[0].Name != "rollout__open_session" {
		t.Errorf("asked for by name: %+v", listed)
	}
	want[api.CallResponse](t, w, "POST", "/v1/call", `{"tool":"rollout__list_sessions"}`, asAda...)
	// A call in a world, whose tool may be a policy's invention, does not.
	for _, caller := range [][]string{asAda, {"Authorization", "Bearer " + s.Token}} {
		e := w.refused(t, http.StatusBadRequest, "POST", "/v1/call", `{"tool":"rollout__list_sessions","session":"`+s.ID+`"}`, caller...)
		if e.Kind != api.KindInvalid || !strings.Contains(e.Message, "Unknown tool") {
			t.Errorf("in a world: %+v", e)
		}
	}
	if got := want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", asAda...); len(got.Members) != 1 {
		t.Errorf("its members are %+v", got.Members)
	}
}

// TestControlsMerged has them among the others, under their own names.
func TestControlsMerged(t *testing.T) {
	t.Parallel()
	w := openBackends(t, teamYAML, ", merged: true", nil, "")
	found := false
	for _, tool := range tools(t, w.world, "/mcp", asAda...) {
		if tool.Name == "fork_session" {
			found = true
			if tool.Description == nil || !strings.HasPrefix(*tool.Description, "Forks a session") {
				t.Errorf("it is described otherwise: %+v", tool)
			}
		}
	}
	if !found {
		t.Error("fork_session is not there")
	}
	c := w.modern(t, "/mcp", `{}`, asAda...)
	if m := c.ask("tools/call", "ping", `{"name":"ping"}`); m.Result == nil {
		t.Errorf("ping: %s", m.raw)
	}
	for _, name := range []string{"pong", "rollout__ping", "nosuch__ping"} {
		if m := c.ask("tools/call", name, `{"name":"`+name+`"}`); !strings.Contains(string(m.Error), "Unknown tool: "+name) {
			t.Errorf("%s: %s", name, m.raw)
		}
	}
	for _, name := range []string{"ping", "rollout__ping"} {
		want[api.CallResponse](t, w, "POST", "/v1/call", `{"tool":"`+name+`"}`, asAda...)
	}
	if err := w.gw.Reload(t.Context(), parse(t, "servers:\n  a: {builtin: rollout, merged: true}\n  b: {builtin: rollout}\n  c: {builtin: rollout, merged: true}\n")); err == nil || !strings.Contains(err.Error(), `servers.c.merged`) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("two of them: %v", err)
	}
	if err := w.gw.Reload(t.Context(), parse(t, "servers:\n  a: {builtin: rollout, merged: true}\n  b: {builtin: rollout}\n")); err != nil {
		t.Errorf("one of them: %v", err)
	}
}

// TestControlsShadowed has a server whose prefixed tool is called like one of
// rollout's: that one is called, and the list says so.
func TestControlsShadowed(t *testing.T) {
	t.Parallel()
	s := script(t, false, map[string]string{"tools/list": toolList("session"), "tools/call": `{"content":[{"type":"text","text":"the other one"}]}`})
	w := openBackends(t, "separator: _\n", ", merged: true", nil, fmt.Sprintf("  open: {url: %q}\n", s.URL))
	n := 0
	for _, name := range names(tools(t, w.world, "/mcp")) {
		if name == "open_session" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("open_session is there %d times", n)
	}
	if got := resultText(t, w.dial(t, "/mcp", `{}`).ask("tools/call", `{"name":"open_session"}`)); got != "the other one" {
		t.Errorf("called %s", got)
	}
	said := false
	for _, m := range want[api.ToolList](t, w, "GET", "/v1/tools", "").Missing {
		said = said || m.Server == "rollout" && strings.Contains(m.Reason, `"open_session" is hidden`)
	}
	if !said {
		t.Error("it is not said that one is hidden")
	}
}

// TestUsesOverARestart checks that a connection still means the session that it
// has opened, and only that connection.
func TestUsesOverARestart(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"ada": teamYAML, "": ""} {
		t.Run("as "+name, func(t *testing.T) {
			w := openBackends(t, yaml, "", nil, "")
			dial := rk(w, "/mcp/rollout")
			ask := func(call rollouttest.Caller) (id string) {
				var p struct {
					ID string `json:"session_id"`
				}
				decode(t, []byte(call(t, "ping", `{}`).Text), &p)
				return p.ID
			}
			first, second, third := dial(t, rollouttest.As{Name: name}), dial(t, rollouttest.As{Name: name}), dial(t, rollouttest.As{Name: name})
			ids := map[string]bool{}
			for _, call := range []rollouttest.Caller{first, second} {
				call(t, "initialize_session", `{"backends":[{"backend_name_ref":"memory"}]}`)
				ids[ask(call)] = true
			}
			before := ask(first)
			w.restart()
			if ask(first) != before || !ids[ask(second)] || ask(second) == before || ids[ask(third)] || len(ids) != 2 {
				t.Errorf("they mean %s, %s and %s", ask(first), ask(second), ask(third))
			}
			// Without a connection nothing is guessed.
			m := w.modern(t, "/mcp/rollout", `{}`, headersOf(rollouttest.As{Name: name})...).ask("tools/call", "cleanup_session", `{"name":"cleanup_session"}`)
			if e := wantKind(t, m, api.KindInvalid); !strings.Contains(e.Message, "no session is named") {
				t.Errorf("without a connection: %+v", e)
			}
		})
	}
}

// TestSessionHeader sends the id of a session where others have that of their
// connection.
func TestSessionHeader(t *testing.T) {
	t.Parallel()
	w := openBackends(t, teamYAML, ", merged: true", nil, "")
	s := w.open(t, `{"servers":["memory"]}`, asAda...)
	// One that the caller is not entitled to is refused, before anything is done.
	for _, path := range []string{"/mcp", "/mcp/rollout"} {
		c := w.dial(t, path, `{}`, asBob...)
		c.id = s.ID
		if r := c.request("tools/call", `{"name":"ping","arguments":{}}`); r.status != http.StatusNotFound || !strings.Contains(string(r.body), "there is no session "+s.ID+" of yours") {
			t.Errorf("bob with the header at %s: status %d %s", path, r.status, r.body)
		}
		c = w.dial(t, path, `{}`, asAda...)
		c.id = s.ID
		if r := c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); r.status != http.StatusAccepted {
			t.Errorf("a notification: status %d %s", r.status, r.body)
		}
		if m := c.ask("tools/list", `{}`); m.Result == nil || !strings.Contains(string(m.Result), "call_backend_tool") {
			t.Errorf("the list with the header: %s", m.raw)
		}
	}
}

// TestUnknownClientMakesNoSession sends an Mcp-Session-Id that no client was given to a
// session of a name that there is not: it is unknown, and the session is not made, unless
// the request needs no client.
func TestUnknownClientMakesNoSession(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	const list, hello = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	named := func() int {
		t.Helper()
		n := 0
		for _, s := range want[api.SessionList](t, w, "GET", "/v1/sessions", "").Sessions {
			if s.Name == "work" {
				n++
			}
		}
		return n
	}
	header := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Session-Id", "stale"}
	for _, tt := range []struct{ method, body string }{{"POST", list}, {"POST", "[" + list + "]"}, {"GET", ""}, {"DELETE", ""}} {
		if r := w.do(t, tt.method, "/mcp?session=work", tt.body, header...); r.status != http.StatusNotFound || named() != 0 {
			t.Errorf("%s %s: status %d %s, and %d sessions", tt.method, tt.body, r.status, r.body, named())
		}
	}
	if r := w.do(t, "POST", "/mcp?session=work", hello, header...); r.status != http.StatusOK || named() != 1 {
		t.Errorf("initialize: status %d %s, and %d sessions", r.status, r.body, named())
	}
}
