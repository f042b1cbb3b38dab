package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// TestPlainCurl makes the requests that people try first: a POST without a
// handshake, with one header or with what curl adds, answered with plain JSON.
func TestPlainCurl(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up := echoServer(t, isModern, "get_projects")
		w := open(t, servers("benchling", up.URL))
		for _, path := range []string{"/mcp", "/mcp/", "/streamable-http"} {
			for _, accept := range []string{"", "*/*", "application/json"} {
				t.Run(fmt.Sprintf("modern=%v %s accept %q", isModern, path, accept), func(t *testing.T) {
					curl := func(body string) message {
						t.Helper()
						r := w.do(t, "POST", path, body, "Content-Type", "application/json", "Accept", accept, "User-Agent", "curl/8.0")
						if ct := r.header.Get("Content-Type"); r.status != http.StatusOK || ct != "application/json" {
							t.Fatalf("answered %d %s", r.status, ct)
						}
						return r.answer()
					}
					var list struct{ Tools []listedTool }
					decode(t, curl("{\n    \"jsonrpc\": \"2.0\",\n    \"id\": 1,\n    \"method\": \"tools/list\"\n  }").Result, &list)
					if got := names(list.Tools); !slices.Equal(got, []string{"benchling__get_projects"}) {
						t.Errorf("listed %q", got)
					}
					m := curl("{\n    \"jsonrpc\": \"2.0\",\n    \"id\": 2,\n    \"method\": \"tools/call\",\n    \"params\": {\n      \"name\": \"benchling__get_projects\",\n      \"arguments\": {\"limit\": 10}\n    }\n  }")
					if got := resultText(t, m); got != "done" || string(m.ID) != "2" {
						t.Errorf("answered %s", m.raw)
					}
				})
			}
		}
		if got := up.last(t, "tools/call"); !slices.Contains([]string{`{"limit": 10}`}, argumentsOf(t, got)) {
			t.Errorf("the server got %s", got.Params)
		}
	}
}

func argumentsOf(t *testing.T, r received) string {
	t.Helper()
	var p struct{ Arguments rawText }
	decode(t, r.Params, &p)
	return string(p.Arguments)
}

// rawText is JSON kept as it was written.
type rawText string

func (r *rawText) UnmarshalJSON(b []byte) error { *r = rawText(b); return nil }

// TestBareRequests checks the corners of a POST without a handshake.
func TestBareRequests(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	post := func(body string, headers ...string) *reply {
		return w.do(t, "POST", "/mcp", body, append([]string{"Content-Type", "application/json"}, headers...)...)
	}
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
		code       int // zero when the answer is no JSON-RPC error
	}{
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202, 0},
		{"an answer to nothing", `{"jsonrpc":"2.0","id":5,"result":{}}`, nil, 202, 0},
		{"no JSON", `{"jsonrpc":`, nil, 400, -32700},
		{"two messages", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, nil, 400, -32700},
		{"empty", ``, nil, 400, -32700},
		{"a string", `"x"`, nil, 400, -32700},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, nil, 200, -32601},
		{"unknown tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"zz__y"}}`, nil, 200, -32602},
		{"no name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, nil, 200, -32602},
		{"an unknown version", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"Mcp-Protocol-Version", "1999-01-01"}, 400, 0},
		{"a wrong type", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"Accept", "text/html"}, 406, 0},
	} {
		r := post(tt.body, tt.headers...)
		if r.status != tt.status {
			t.Errorf("%s: status %d %s, want %d", tt.name, r.status, r.body, tt.status)
		}
		if tt.code != 0 {
			if e := r.answer().failure(t); e.Code != tt.code {
				t.Errorf("%s: code %d, want %d", tt.name, e.Code, tt.code)
			}
		}
	}
	for _, ct := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"} {
		// What a web page can send without asking first must not be a call.
		if r := w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type", ct); r.status != http.StatusUnsupportedMediaType {
			t.Errorf("Content-Type %q: status %d, want 415", ct, r.status)
		}
	}
	if r := w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Content-Type", "application/json; charset=utf-8"); r.status != 200 {
		t.Errorf("with a charset: status %d", r.status)
	}
	if r := w.do(t, "PUT", "/mcp", ``); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") == "" {
		t.Errorf("PUT: status %d, Allow %q", r.status, r.header.Get("Allow"))
	}
}

// TestIDsComeBackAsTheyWere checks that an answer carries the id of its request
// to the byte.
func TestIDsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	for _, id := range []string{`1`, `0`, `-7`, `12345678901234567890`, `"x"`, `"\u00e9\n"`, `""`, `1.0`} {
		for _, method := range []string{"tools/list", "ping", "x/y"} {
			m := w.do(t, "POST", "/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method), "Content-Type", "application/json").answer()
			if string(m.ID) != id {
				t.Errorf("%s with id %s: answered as %s", method, id, m.ID)
			}
		}
	}
}
