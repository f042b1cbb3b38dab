package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// wantMistake checks the answer to a call of a tool that is not there.
func wantMistake(t *testing.T, what string, m message) {
	t.Helper()
	e := m.failure(t)
	var data struct {
		Kind string
		Tine api.Error `json:"tine/error"`
	}
	if len(e.Data) > 0 {
		decode(t, e.Data, &data)
	}
	if e.Code != -32602 || data.Kind != "invalid" || data.Tine.Kind != api.KindInvalid || data.Tine.Message != e.Message {
		t.Errorf("%s: %s, want -32602 of kind invalid", what, m.raw)
	}
}

// TestMistakesOfCallers has tools called that are unknown or denied, on every way
// in: each answer says that the mistake is the caller's, and so does the journal.
func TestMistakesOfCallers(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		up := partly(t, modern, "", "one", "two")
		w := open(t, servers("a", `{url: "`+up.URL+`"}`, "b", `{url: "`+up.URL+`", tools: {deny: [two]}}`))
		for tool, want := range map[string]string{
			"a__nope": `Unknown tool: a__nope; server "a" says: never heard of nope`, "b__nope": "Unknown tool: b__nope", "b__two": "Unknown tool: b__two",
			"c__one": "Unknown tool: c__one", "nope": "Unknown tool: nope",
		} {
			params := fmt.Sprintf(`{"name":%q}`, tool)
			m := w.dial(t, "/mcp", `{}`).ask("tools/call", params)
			wantMistake(t, tool, m)
			if e := m.failure(t); e.Message != want {
				t.Errorf("%s: told %q, want %q", tool, e.Message, want)
			}
			wantMistake(t, tool+", stateless", w.modern(t, "/mcp", `{}`).ask("tools/call", tool, params))
			r := w.do(t, "POST", "/v1/call", fmt.Sprintf(`{"tool":%q}`, tool), "Content-Type", "application/json")
			var e api.Error
			if decode(t, r.body, &e); r.status != http.StatusBadRequest || e.Kind != api.KindInvalid || e.Message != want {
				t.Errorf("%s by the control API: status %d %s", tool, r.status, r.body)
			}
			var list api.CallList
			decode(t, w.do(t, "GET", "/v1/calls?limit=3", "").body, &list)
			for _, c := range list.Calls {
				if c.Outcome != "invalid" || !strings.HasSuffix(tool, c.Name) {
					t.Errorf("%s is in the journal as %+v", tool, c)
				}
			}
		}
		// What an operator took away since can't be replayed, and that is no failure either.
		w.do(t, "POST", "/v1/call", `{"tool":"a__two"}`, "Content-Type", "application/json")
		var list api.CallList
		decode(t, w.do(t, "GET", "/v1/calls?limit=1", "").body, &list)
		w.reload(t, servers("a", `{url: "`+up.URL+`", tools: {deny: [two]}}`))
		r := w.do(t, "POST", "/v1/calls/"+list.Calls[0].ID+"/replay", "")
		var e api.Error
		if decode(t, r.body, &e); e.Kind != api.KindInvalid || e.Message != "Unknown tool: two" {
			t.Errorf("replayed: status %d %s", r.status, r.body)
		}
	}
}

// TestMistypedTools has a name that is nearly that of a tool called: the answer has the
// whole name as the client sent it and the one that was meant, whatever way the server
// has to say that it knows no such tool.
func TestMistypedTools(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"", "isError"} {
		up := partly(t, false, how, "convert_time", "say")
		w := open(t, servers("a", `{url: "`+up.URL+`"}`, "b", `{url: "`+up.URL+`", tools: {deny: [say]}}`))
		says := map[string]string{"": "never heard of convert_tim", "isError": "no tool convert_tim"}[how]
		for _, tt := range []struct{ path, params, want string }{
			{"/mcp", `{"name":"a__convert_tim"}`, `Unknown tool: a__convert_tim (did you mean a__convert_time?); server "a" says: ` + says},
			{"/mcp/a", `{"name":"convert_tim"}`, `Unknown tool: convert_tim (did you mean convert_time?); server "a" says: ` + says},
			{"/mcp?view=search", `{"name":"call_tool","arguments":{"name":"a__convert_tim"}}`, `Unknown tool: a__convert_tim (did you mean a__convert_time?); server "a" says: ` + says},
			{"/mcp", `{"name":"b__convert_tim"}`, `Unknown tool: b__convert_tim`}, // as one that is hidden
		} {
			m := w.dial(t, tt.path, `{}`).ask("tools/call", tt.params)
			wantMistake(t, tt.path, m)
			if e := m.failure(t); e.Message != tt.want {
				t.Errorf("%s %s: told %q, want %q", tt.path, tt.params, e.Message, tt.want)
			}
		}
		// A tool that fails is not mistyped, and neither is what it says changed.
		up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
			writeResult(w, in, `{"content":[{"type":"text","text":"say: no voice"}],"isError":true}`)
		})
		if m := w.dial(t, "/mcp", `{}`).ask("tools/call", `{"name":"a__say"}`); !strings.Contains(string(m.Result), "say: no voice") {
			t.Errorf("a tool that failed: %s", m.raw)
		}
	}
}

// TestServersDataStays checks that what a server says of a mistake is passed on.
func TestServersDataStays(t *testing.T) {
	t.Parallel()
	up := partly(t, false, "", "one")
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	for raw, want := range map[string]string{
		`{"code":-32602,"message":"m","data":{"field":"x"}}`:  `"field":"x"`,
		`{"code":-32602,"message":"m","data":"plain"}`:        `"data":"plain"`,
		`{"code":-32602,"message":"m","data":{}}`:             `"tine/error":{"kind":"invalid"`,
		`{"code":-32001,"message":"m"}`:                       `{"code":-32001,"message":"m"}`,
		`{"code":-32602,"message":"m","data":{"kind":"own"}}`: `"kind":"own"`,
	} {
		up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, in.ID, raw)
		})
		m := c.ask("tools/call", `{"name":"one"}`)
		if !strings.Contains(string(m.raw), want) || !json.Valid(m.raw) || strings.Count(string(m.raw), `"kind":"own"`) > 1 {
			t.Errorf("of %s the client is told %s", raw, m.raw)
		}
	}
}

// TestListsAreNoCalls checks that lists don't use up the rate of a server, and
// that they neither wait for it.
func TestListsAreNoCalls(t *testing.T) {
	t.Parallel()
	up := partly(t, false, "", "one")
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {rate: {calls: 0.01, burst: 2}, concurrency: {queue: 0}, cache: {lists: 0s}}}`))
	c := w.dial(t, "/mcp/a", `{}`)
	for range 5 {
		c.get("tools/list", `{}`)
		c.get("prompts/list", `{}`)
	}
	c.get("tools/call", `{"name":"one"}`)
	c.get("tools/call", `{"name":"one"}`)
	wantKind(t, c.ask("tools/call", `{"name":"one"}`), api.KindRefused)
	c.get("tools/list", `{}`)
}

// failsEachWay is a config with a server for each kind of failure.
func failsEachWay(t *testing.T) string {
	slow := script(t, false, map[string]string{"tools/list": toolList("one")})
	slow.on("tools/call", func(_ http.ResponseWriter, r *http.Request, _ received) { <-r.Context().Done() })
	up, broken := partly(t, false, "", "one"), partly(t, false, "", "one")
	broken.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		writeResult(w, in, `{"content":[{"type":"text","text":"one is broken"}],"isError":true}`)
	})
	return servers(
		"infrastructure", `{url: "http://127.0.0.1:1/mcp", policy: {retry: {attempts: 1}, breaker: {failures: 0}}}`,
		"timeout", `{url: "`+slow.URL+`", timeout: 20ms, policy: {retry: {attempts: 1}, breaker: {failures: 0}}}`,
		"refused", `{url: "`+up.URL+`", policy: {rate: {calls: 0.0001, burst: 1}, concurrency: {queue: 0}}}`,
		"tool", broken.URL)
}

// TestErrorsOfTheProtocol has every kind of failure told as JSON-RPC errors, by the
// URL of the endpoint and by the config, on every transport.
func TestErrorsOfTheProtocol(t *testing.T) {
	t.Parallel()
	wantProtocol := func(what string, m message, kind api.Kind) {
		t.Helper()
		e := m.failure(t)
		var data struct{ Kind api.Kind }
		if len(e.Data) > 0 {
			decode(t, e.Data, &data)
		}
		if e.Code != -31000 || data.Kind != kind || wantKind(t, m, kind).Message != e.Message {
			t.Errorf("%s: %s, want code -31000 and kind %s", what, m.raw, kind)
		}
	}
	yaml := failsEachWay(t)
	w := open(t, yaml)
	w.do(t, "POST", "/v1/call", `{"tool":"refused__one"}`, "Content-Type", "application/json")
	for _, kind := range []api.Kind{api.KindInfrastructure, api.KindTimeout, api.KindRefused} {
		name := string(kind) + "__one"
		params := fmt.Sprintf(`{"name":%q}`, name)
		if m := w.dial(t, "/mcp", `{}`).ask("tools/call", params); m.Result == nil {
			t.Errorf("%s without being asked: %s", kind, m.raw)
		}
		for _, path := range []string{"/mcp?errors=protocol", "/streamable-http?errors=protocol"} {
			wantProtocol(path, w.dial(t, path, `{}`).ask("tools/call", params), kind)
			wantProtocol(path+", stateless", w.modern(t, path, `{}`).ask("tools/call", name, params), kind)
			batch := w.do(t, "POST", path, `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}]`, "Content-Type", "application/json")
			var all []message
			decode(t, batch.body, &all)
			all[0].raw = batch.body
			wantProtocol(path+", batch", all[0], kind)
		}
		events, post := openEvents(t, w, "/sse?errors=protocol")
		w.do(t, "POST", post, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, "Content-Type", "application/json")
		wantProtocol("event stream", events.next(), kind)
	}
	// A tool's own error is no failure, and a mistake is the caller's.
	c := w.dial(t, "/mcp?errors=protocol", `{}`)
	if m := c.ask("tools/call", `{"name":"tool__one"}`); m.Result == nil {
		t.Errorf("a tool's own error: %s", m.raw)
	}
	wantMistake(t, "unknown", c.ask("tools/call", `{"name":"nowhere__one"}`))
	for _, query := range []string{"errors=loud", "errors=protocol&errors=results", "errors="} {
		r := w.do(t, "POST", "/mcp?"+query, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type", "application/json")
		if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "results") || !strings.Contains(string(r.body), "protocol") {
			t.Errorf("?%s: status %d %s", query, r.status, r.body)
		}
	}
	// The config says it for all endpoints, or for the view of one server, and the
	// URL goes before it.
	w = open(t, "errors: protocol\n"+yaml)
	wantProtocol("errors: protocol", w.dial(t, "/mcp", `{}`).ask("tools/call", `{"name":"infrastructure__one"}`), api.KindInfrastructure)
	if m := w.dial(t, "/mcp?errors=results", `{}`).ask("tools/call", `{"name":"infrastructure__one"}`); m.Result == nil {
		t.Errorf("?errors=results: %s", m.raw)
	}
	w = open(t, strings.Replace(yaml, "timeout: 20ms", "timeout: 20ms, errors: protocol", 1))
	wantProtocol("of its view", w.dial(t, "/mcp/timeout", `{}`).ask("tools/call", `{"name":"one"}`), api.KindTimeout)
	if m := w.dial(t, "/mcp", `{}`).ask("tools/call", `{"name":"timeout__one"}`); m.Result == nil {
		t.Errorf("in the merged view: %s", m.raw)
	}
}
