package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestModernResultsAreOfTheirEra checks what revision 2026-07-28 wants in every
// result, above all where the server is of another era and does not send it.
func TestModernResultsAreOfTheirEra(t *testing.T) {
	t.Parallel()
	bare := map[string]string{
		"tools/list": `{"tools":[]}`, "resources/list": `{"resources":[]}`, "resources/templates/list": `{"resourceTemplates":[]}`, "prompts/list": `{"prompts":[]}`,
		"resources/read": `{ "contents":[] }`, "tools/call": `{"content":[]}`, "prompts/get": `{}`, "completion/complete": `{"completion":{"values":[]}}`,
	}
	up := script(t, false, bare)
	w := open(t, servers("a", up.URL))
	var uri string
	for path, prefix := range map[string]string{"/mcp/a": "", "/mcp": "a__"} {
		c := w.modern(t, path, `{}`)
		if uri = "x://y"; prefix != "" {
			// The merged view's own form of an address.
			up.on("resources/list", result1(`{"resources":[{"uri":"x://y","name":"n"}]}`))
			var list struct{ Resources []struct{ URI string } }
			decode(t, c.get("resources/list", "", `{}`), &list)
			uri = list.Resources[0].URI
		}
		for method := range bare {
			name, params := "", `{}`
			switch method {
			case "tools/call", "prompts/get":
				name = prefix + "x"
				params = fmt.Sprintf(`{"name":%q}`, name)
			case "resources/read":
				name, params = uri, fmt.Sprintf(`{"uri":%q}`, uri)
			case "completion/complete":
				params = fmt.Sprintf(`{"ref":{"type":"ref/prompt","name":%q},"argument":{"name":"a","value":"b"}}`, prefix+"x")
			}
			wantModern(t, method, c.get(method, name, params))
		}
		wantModern(t, "server/discover", c.get("server/discover", "", `{}`))
	}
}

func wantModern(t *testing.T, method string, result []byte) {
	t.Helper()
	var r struct {
		ResultType string          `json:"resultType"`
		TTL        json.RawMessage `json:"ttlMs"`
		Scope      string          `json:"cacheScope"`
	}
	decode(t, result, &r)
	if r.ResultType != "complete" {
		t.Errorf("%s: resultType %q in %s", method, r.ResultType, result)
	}
	if strings.HasSuffix(method, "/list") || method == "resources/read" || method == "server/discover" {
		if len(r.TTL) == 0 || r.TTL[0] == '-' || r.Scope != "private" && r.Scope != "public" {
			t.Errorf("%s: no caching hints in %s", method, result)
		}
	}
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/list": plainTools})
	up.caps = `{"tools":{},"extensions":{"com.example/x":{"n":12345678901234567890}}}`
	w := open(t, servers("a", up.URL, "gone", deadURL(t)))
	for _, path := range []string{"/mcp", "/mcp/a"} {
		var d struct {
			SupportedVersions []string
			Capabilities      map[string]json.RawMessage
			Meta              map[string]struct{ Name string } `json:"_meta"`
		}
		result := w.modern(t, path, `{}`).get("server/discover", "", `{}`)
		decode(t, result, &d)
		if !slices.Contains(d.SupportedVersions, modernVersion) || d.Capabilities["tools"] == nil {
			t.Errorf("%s: %s", path, result)
		}
		if d.Meta["io.modelcontextprotocol/serverInfo"].Name == "" {
			t.Errorf("%s: who it is is not said: %s", path, result)
		}
		if path == "/mcp/a" && string(d.Capabilities["extensions"]) != `{"com.example/x":{"n":12345678901234567890}}` {
			t.Errorf("the server's extensions are %s", d.Capabilities["extensions"])
		}
	}
}

func TestInitializeNegotiates(t *testing.T) {
	t.Parallel()
	w := open(t, servers("a", echoServer(t, true, "one").URL))
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "1999-01-01": "2025-11-25", "": "2025-11-25",
	} {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			r := w.do(t, "POST", path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`, asked),
				"Content-Type", "application/json", "Accept", bothTypes)
			var got struct{ ProtocolVersion string }
			decode(t, r.answer().Result, &got)
			if got.ProtocolVersion != want {
				t.Errorf("%s: asked for %q, got %q, want %q", path, asked, got.ProtocolVersion, want)
			}
		}
	}
}

// TestWhatServersAreTold checks what Tine claims for its clients: what they can
// do and the server's config allows.
func TestWhatServersAreTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		entry, client string
		want          []string
	}{
		{"", `{"elicitation":{},"sampling":{},"roots":{}}`, []string{"elicitation", "sampling"}},
		{"", `{"elicitation":{"form":{},"url":{}}}`, []string{"elicitation"}},
		{"", `{}`, nil},
		{", client_capabilities: []", `{"elicitation":{},"sampling":{},"roots":{}}`, nil},
		{", client_capabilities: [roots]", `{"elicitation":{},"sampling":{},"roots":{}}`, []string{"roots"}},
	} {
		for _, isModern := range []bool{false, true} {
			up := echoServer(t, isModern, "one")
			w := open(t, servers("a", `{url: "`+up.URL+`"`+tt.entry+`}`))
			w.dial(t, "/mcp/a", tt.client).get("tools/call", `{"name":"one"}`)
			var caps map[string]json.RawMessage
			if isModern {
				var p struct {
					Meta struct {
						Caps map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
					} `json:"_meta"`
				}
				decode(t, up.last(t, "tools/call").Params, &p)
				caps = p.Meta.Caps
			} else {
				var p struct{ Capabilities map[string]json.RawMessage }
				decode(t, up.last(t, "initialize").Params, &p)
				caps = p.Capabilities
			}
			for _, name := range []string{"elicitation", "sampling", "roots"} {
				if _, claimed := caps[name]; claimed != slices.Contains(tt.want, name) {
					t.Errorf("modern=%v%s: for a client with %s %s is claimed: %v", isModern, tt.entry, tt.client, name, claimed)
				}
			}
		}
	}
}

// TestMirroredArguments checks the Mcp-Param headers: passed on from modern
// clients, made for those who don't know them, and held against the body.
func TestMirroredArguments(t *testing.T) {
	t.Parallel()
	const list = `{"tools":[{"name":"q","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"}}}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	for _, isModern := range []bool{true, false} {
		up := script(t, isModern, map[string]string{"tools/list": list, "tools/call": done})
		up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
			if isModern && in.header.Get("Mcp-Param-Region") != "eu" {
				writeFailure(w, http.StatusBadRequest, in, -32020, "Header mismatch: Mcp-Param-Region")
				return
			}
			writeResult(w, in, done)
		})
		w := open(t, servers("a", up.URL))
		c := w.dial(t, "/mcp", `{}`)
		if got := resultText(t, c.ask("tools/call", `{"name":"a__q","arguments":{"region":"eu","n":7}}`)); got != "done" {
			t.Errorf("modern=%v: %q", isModern, got)
		}
		if got := up.last(t, "tools/call").header; isModern && (got.Get("Mcp-Param-Region") != "eu" || got.Get("Mcp-Param-Count") != "7") {
			t.Errorf("made for a legacy client: %v", got)
		}
		w.modern(t, "/mcp/a", `{}`).get("tools/list", "", `{}`) // from where clients know of the headers
		call := func(headers ...string) *reply {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"q","arguments":{"region":"eu","n":7},%s}}`, meta(`{}`))
			return w.do(t, "POST", "/mcp/a", body, append(modernHeaders("tools/call", "q"), headers...)...)
		}
		if m := call("Mcp-Param-Region", "eu", "Mcp-Param-Count", "7", "Mcp-Param-Unheard", "x").answer(); m.Result == nil {
			t.Errorf("modern=%v: %s", isModern, m.raw)
		}
		if got := up.last(t, "tools/call").header; isModern && (got.Get("Mcp-Param-Region") != "eu" || got.Get("Mcp-Param-Unheard") != "x") {
			t.Errorf("passed on from a modern client: %v", got)
		}
		call("Mcp-Param-Region", "us", "Mcp-Param-Count", "7").wantError(http.StatusBadRequest, -32020)
	}
}
