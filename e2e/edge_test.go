//go:build unix

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

const headerMismatch = -32020

// TestForgedName holds that a denied tool is not reached by saying one name in
// the header and another in the body, nor by saying two names in the body. The
// server behind counts what reaches it.
func TestForgedName(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	upstream := serve(t, badServer, func(addr string) []string { return []string{"-http", addr, "-calls", calls} })
	g := startGateway(t, "servers:\n  vault:\n    url: http://"+upstream+"/mcp\n    tools:\n      deny: [secret]\n")
	legacy := mustOpen(t, g.url+"/mcp")
	legacyOne := mustOpen(t, g.url+"/mcp/vault")

	with := func(h http.Header, key, value string) http.Header {
		h = h.Clone()
		h.Set(key, value)
		return h
	}
	modern := modernHeader("tools/call", "vault__echo")
	modernOne := modernHeader("tools/call", "echo")
	arg := map[string]any{"text": "open up"}
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	body := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `}}`
	}
	for _, tt := range []struct {
		name   string
		url    string
		header http.Header
		body   string
		code   int // of the JSON-RPC error; 0 where any refusal will do
	}{
		{"modern", "/mcp", modern, modernCall(1, "vault__secret", arg), headerMismatch},
		{"modern, one server", "/mcp/vault", modernOne, modernCall(1, "secret", arg), headerMismatch},
		{"modern, the other way", "/mcp", with(modern, "Mcp-Name", "vault__secret"), modernCall(1, "vault__echo", arg), headerMismatch},
		{"modern, another method", "/mcp", with(modern, "Mcp-Method", "tools/list"), modernCall(1, "vault__echo", arg), headerMismatch},
		{"modern, another version", "/mcp", with(modern, "Mcp-Protocol-Version", legacyVersion), modernCall(1, "vault__secret", arg), 0},
		{"legacy", "/mcp", with(legacy.header, "Mcp-Name", "vault__echo"), body(`"name":"vault__secret","arguments":{}`), headerMismatch},
		{"legacy, one server", "/mcp/vault", with(legacyOne.header, "Mcp-Name", "echo"), body(`"name":"secret","arguments":{}`), headerMismatch},
		{"without a session", "/mcp", http.Header{"Mcp-Name": {"vault__echo"}}, body(`"name":"vault__secret","arguments":{}`), headerMismatch},
		{"honest", "/mcp", with(modern, "Mcp-Name", "vault__secret"), modernCall(1, "vault__secret", arg), 0},
		{"honest, legacy", "/mcp", legacy.header, body(`"name":"vault__secret","arguments":{}`), 0},
		{"honest, one server", "/mcp/vault", legacyOne.header, body(`"name":"secret","arguments":{}`), 0},
		{"two names", "/mcp", modern, body(`"name":"vault__echo","name":"vault__secret","arguments":{},` + meta), 0},
		{"two names, the other way", "/mcp", modern, body(`"name":"vault__secret","name":"vault__echo","arguments":{},` + meta), 0},
		{"two names, legacy", "/mcp/vault", legacyOne.header, body(`"name":"echo","name":"secret","arguments":{}`), 0},
		{"two names, one escaped", "/mcp/vault", legacyOne.header, body(`"name":"echo","na\u006de":"secret","arguments":{}`), 0},
		{"two names, another case", "/mcp/vault", legacyOne.header, body(`"name":"echo","Name":"secret","arguments":{}`), 0},
		{"two params", "/mcp/vault", legacyOne.header, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"params":{"name":"secret"}}`, 0},
		{"two params, another case", "/mcp/vault", legacyOne.header, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"Params":{"name":"secret"}}`, 0},
		{"two methods", "/mcp/vault", legacyOne.header, `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"secret"}}`, 0},
		{"an escaped name", "/mcp/vault", legacyOne.header, body(`"name":"\u0073ecret","arguments":{}`), 0},
		{"a batch", "/mcp/vault", legacyOne.header, `[` + body(`"name":"echo","arguments":{}`) + `,` + body(`"name":"secret","arguments":{}`) + `]`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := post(t.Context(), g.url+tt.url, tt.header, tt.body)
			if err != nil {
				t.Fatal(err)
			}
			if tt.code == 0 {
				return // what counts is that it did not arrive; see below
			}
			m, err := r.answer()
			if err != nil {
				t.Fatal(err)
			}
			if m.Error == nil || m.Error.Code != tt.code {
				t.Errorf("%d %s %+v, want the error %d", r.status, m.Result, m.Error, tt.code)
			}
		})
	}

	// An allowed call does arrive, so the count below means something.
	if got := legacy.mustCall(t, "vault__echo", arg); got != "open up" {
		t.Errorf("the allowed tool answers %q", got)
	}
	r, err := post(t.Context(), g.url+"/mcp", modern, modernCall(1, "vault__echo", arg))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.answer(); err != nil || m.Error != nil || !strings.Contains(string(m.Result), "open up") {
		t.Errorf("the allowed modern call answers %d %s %+v %v", r.status, m.Result, m.Error, err)
	}
	seen, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	reached := strings.Fields(string(seen))
	if slices.Contains(reached, "secret") {
		t.Errorf("the denied tool was reached; the server saw %v", reached)
	}
	if !slices.Contains(reached, "echo") {
		t.Errorf("the server saw only %v", reached)
	}
}

// TestDeniedToolSaysSo holds that a denied tool is not listed and that calling
// it is refused and not unknown.
func TestDeniedToolSaysSo(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlServer("vault", badServer, nil, "tools: {deny: [secret]}"))
	s := mustOpen(t, g.url+"/mcp")
	names, err := s.tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(names, "vault__secret") || !slices.Contains(names, "vault__echo") {
		t.Errorf("listed: %v", names)
	}
	r, err := s.call(t.Context(), "vault__secret", map[string]any{})
	if err != nil {
		return // refused as a JSON-RPC error
	}
	if e := r.tineError(t); !r.IsError || e == nil || e.Kind != api.KindRefused && e.Kind != api.KindInvalid {
		t.Errorf("the denied tool answers %q %+v", r.text(), r.tineError(t))
	}
}

// TestOrigin holds the checks against pages that reach for a gateway on
// loopback through the browser of another person.
func TestOrigin(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "cors:\n  origins: [https://app.example]\nservers:\n"+yamlServer("good", badServer, nil))
	host := strings.TrimPrefix(g.url, "http://")
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, tt := range []struct {
		name   string
		header http.Header
		want   bool
	}{
		{"no origin", nil, true},
		{"own origin", http.Header{"Origin": {g.url}}, true},
		{"allowed origin", http.Header{"Origin": {"https://app.example"}}, true},
		{"foreign origin", http.Header{"Origin": {"https://evil.example"}}, false},
		{"null origin", http.Header{"Origin": {"null"}}, false},
		{"origin with our name in it", http.Header{"Origin": {"http://" + strings.ReplaceAll(host, ":", ".") + ".evil.example"}}, false},
		{"rebound host", http.Header{"Host": {"evil.example"}}, false},
		{"rebound host with our port", http.Header{"Host": {"evil.example" + host[strings.LastIndex(host, ":"):]}}, false},
		{"localhost", http.Header{"Host": {"localhost" + host[strings.LastIndex(host, ":"):]}}, true},
	} {
		for _, path := range []string{"/mcp", "/mcp/good", "/streamable-http", "/v1/servers"} {
			t.Run(tt.name+path, func(t *testing.T) {
				var status int
				var allowed string
				if strings.HasPrefix(path, "/v1") {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header = tt.header.Clone()
					if req.Header == nil {
						req.Header = http.Header{}
					}
					req.Host = tt.header.Get("Host")
					r, err := g.record()
					if err != nil {
						t.Fatal(err)
					}
					if r.Token != "" {
						req.Header.Set("Authorization", "Bearer "+r.Token)
					}
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					status, allowed = resp.StatusCode, resp.Header.Get("Access-Control-Allow-Origin")
				} else {
					r, err := post(t.Context(), g.url+path, tt.header, list)
					if err != nil {
						t.Fatal(err)
					}
					status, allowed = r.status, r.header.Get("Access-Control-Allow-Origin")
				}
				if got := status == http.StatusOK; got != tt.want {
					t.Errorf("status %d", status)
				}
				if !tt.want && (status < 400 || status >= 500) {
					t.Errorf("status %d, want one that says the request is refused", status)
				}
				if tt.name == "allowed origin" && allowed != "https://app.example" {
					t.Errorf("Access-Control-Allow-Origin is %q", allowed)
				}
			})
		}
	}
}

// TestRawRelay holds that what passes through is passed as it is: fields that
// no SDK knows, integers that no float holds.
func TestRawRelay(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlServer("good", badServer, nil))
	s := mustOpen(t, g.url+"/mcp/good")
	raw, err := s.request(t.Context(), "tools/call", json.RawMessage(`{"name":"mirror","arguments":{"n":12345678901234567890,"x":1.0,"unknown":{"b":1,"a":2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Strange   json.RawMessage   `json:"strange"`
		Content   []json.RawMessage `json:"content"`
		Arguments json.RawMessage   `json:"arguments"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if want := `{"n":12345678901234567890,"x":1.0,"unknown":{"b":1,"a":2}}`; string(got.Arguments) != want {
		t.Errorf("arguments came back as %s, want %s", got.Arguments, want)
	}
	if want := `{"z":98765432109876543210,"a":[]}`; string(got.Strange) != want {
		t.Errorf("an unknown field came back as %s, want %s", got.Strange, want)
	}
	if len(got.Content) != 1 || !strings.Contains(string(got.Content[0]), "hologram") {
		t.Errorf("content of an unknown type came back as %s", got.Content)
	}
}
