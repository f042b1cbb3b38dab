package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// guarded is a gateway before a server with one tool that may be called and one
// that may not, of which it must never hear.
func guarded(t *testing.T, isModern bool) (*world, *scripted) {
	up := script(t, isModern, map[string]string{"tools/list": toolList("good", "evil", "größe"), "tools/call": done,
		"resources/read": `{"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`, "prompts/get": `{"messages":[],"resultType":"complete"}`})
	return open(t, servers("a", `{url: "`+up.URL+`", tools: {deny: [evil]}}`)), up
}

func callBody(name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s,"arguments":{},%s}}`, name, meta(`{}`))
}

func b64(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }

func TestHeadersMustMatchTheBody(t *testing.T) {
	t.Parallel()
	good := callBody(`"good"`)
	base := map[string]string{"Mcp-Protocol-Version": modernVersion, "Mcp-Method": "tools/call", "Mcp-Name": "good"}
	tests := []struct {
		name string
		body string
		set  map[string]string // over base; empty removes
		add  []string          // pairs, beside base
		code int
	}{
		{name: "no version", body: good, set: map[string]string{"Mcp-Protocol-Version": ""}, code: -32020},
		{name: "legacy version in the header", body: good, set: map[string]string{"Mcp-Protocol-Version": legacyVersion}, code: -32020},
		{name: "no method", body: good, set: map[string]string{"Mcp-Method": ""}, code: -32020},
		{name: "no name", body: good, set: map[string]string{"Mcp-Name": ""}, code: -32020},
		{name: "another method", body: good, set: map[string]string{"Mcp-Method": "tools/list"}, code: -32020},
		{name: "method in capitals", body: good, set: map[string]string{"Mcp-Method": "Tools/Call"}, code: -32020},
		{name: "another name", body: good, set: map[string]string{"Mcp-Name": "other"}, code: -32020},
		{name: "name in capitals", body: good, set: map[string]string{"Mcp-Name": "GOOD"}, code: -32020},
		{name: "forged name over a denied tool", body: callBody(`"evil"`), code: -32020},
		{name: "forged name over an escaped tool", body: callBody(`"ev\u0069l"`), code: -32020},
		{name: "forged name in base64", body: callBody(`"evil"`), set: map[string]string{"Mcp-Name": b64("good")}, code: -32020},
		{name: "base64 that is none", body: good, set: map[string]string{"Mcp-Name": "=?base64?Z29v*ZA==?="}, code: -32020},
		{name: "base64 that is no text", body: good, set: map[string]string{"Mcp-Name": "=?base64?/w==?="}, code: -32020},
		{name: "marker in capitals", body: good, set: map[string]string{"Mcp-Name": "=?BASE64?Z29vZA==?="}, code: -32020},
		{name: "two names", body: good, add: []string{"Mcp-Name", "evil"}, code: -32020},
		{name: "two methods", body: good, add: []string{"Mcp-Method", "tools/list"}, code: -32020},
		{name: "two versions", body: good, add: []string{"Mcp-Protocol-Version", legacyVersion}, code: -32020},
		{name: "name is no string", body: callBody(`{"x":"good"}`), code: -32602},
		{name: "another version in the body", body: strings.Replace(good, `Version":"2026-07-28"`, `Version":"2025-11-25"`, 1), code: -32020},
		{name: "unknown version", body: strings.Replace(good, "2026-07-28", "2099-01-01", 1), set: map[string]string{"Mcp-Protocol-Version": "2099-01-01"}, code: -32022},
		{name: "no _meta", body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"good"}}`, code: -32602},
		{name: "no params", body: `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, code: -32020},
		{name: "no version in _meta", body: strings.Replace(good, "protocolVersion", "protocolVersio", 1), code: -32602},
		{name: "no capabilities in _meta", body: strings.Replace(good, "clientCapabilities", "clientCapabilitie", 1), code: -32602},
		{name: "capabilities are no object", body: strings.Replace(good, `clientCapabilities":{}`, `clientCapabilities":[]`, 1), code: -32602},
		{name: "version is no string", body: strings.Replace(good, `"2026-07-28"`, `20260728`, 1), code: -32602},
	}
	for _, isModern := range []bool{true, false} {
		w, up := guarded(t, isModern)
		for _, path := range []string{"/mcp/a", "/mcp"} {
			for _, tt := range tests {
				t.Run(fmt.Sprintf("%s at %s, modern=%v", tt.name, path, isModern), func(t *testing.T) {
					body, headers := tt.body, []string{"Content-Type", "application/json", "Accept", bothTypes}
					for key, value := range base {
						if v, ok := tt.set[key]; ok {
							value = v
						}
						if path == "/mcp" && key == "Mcp-Name" && value == "good" {
							value = "a__good"
						}
						if value != "" {
							headers = append(headers, key, value)
						}
					}
					if path == "/mcp" {
						body = strings.NewReplacer(`"name":"good"`, `"name":"a__good"`, `"name":"ev`, `"name":"a__ev`).Replace(body)
					}
					w.do(t, "POST", path, body, append(headers, tt.add...)...).wantError(http.StatusBadRequest, tt.code)
				})
			}
		}
		if n := len(up.of("tools/call")); n != 0 {
			t.Errorf("modern=%v: %d calls reached the server", isModern, n)
		}
	}
}

// TestTwoNamesInOneBody checks bodies that one parser reads one way and the next
// another: none may reach the server.
func TestTwoNamesInOneBody(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{true, false} {
		w, up := guarded(t, isModern)
		for _, members := range []string{
			`"name":"good","name":"evil"`,
			`"name":"evil","name":"good"`,
			`"name":"good","na\u006de":"evil"`,
			`"na\u006de":"evil","name":"good"`,
			`"name":"good","n\u0061me":"good"`,
		} {
			m := strings.Replace(meta(`{}`), `"_meta"`, `"arguments":{},"_meta"`, 1)
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s,%s}}`, members, m)
			for _, headers := range [][]string{modernHeaders("tools/call", "good"), modernHeaders("tools/call", "evil"),
				{"Content-Type", "application/json"}, w.dial(t, "/mcp/a", `{}`).headers()} {
				b := body
				if slices.Contains(headers, legacyVersion) || len(headers) == 2 {
					b = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s,"arguments":{}}}`, members)
				}
				r := w.do(t, "POST", "/mcp/a", b, headers...)
				if r.answer().Error == nil {
					t.Errorf("%s: answered %d %s", members, r.status, r.body)
				}
			}
		}
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"evil"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"good"},"params":{"name":"evil"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"good"},"par\u0061ms":{"name":"evil"}}`,
		} {
			if r := w.do(t, "POST", "/mcp/a", body, "Content-Type", "application/json"); r.answer().Error == nil {
				t.Errorf("%s: answered %d %s", body, r.status, r.body)
			}
		}
		if n := len(up.of("tools/call")); n != 0 {
			t.Errorf("modern=%v: %d calls reached the server", isModern, n)
		}
	}
}

// TestNamesInOtherSpellings checks that a body and a header that mean the same
// pass, however they are written.
func TestNamesInOtherSpellings(t *testing.T) {
	t.Parallel()
	w, up := guarded(t, true)
	for _, tt := range []struct{ name, header string }{
		{`"good"`, "good"}, {`"g\u006fod"`, "good"}, {`"good"`, b64("good")}, {`"größe"`, b64("größe")}, {`"gr\u00f6\u00dfe"`, b64("größe")},
	} {
		m := w.do(t, "POST", "/mcp/a", callBody(tt.name), modernHeaders("tools/call", tt.header)...).answer()
		if m.Result == nil {
			t.Errorf("%s with %s: %s", tt.name, tt.header, m.raw)
			continue
		}
		got := up.last(t, "tools/call")
		var p struct{ Name string }
		decode(t, got.Params, &p)
		if header := got.header.Get("Mcp-Name"); header != p.Name && header != b64(p.Name) {
			t.Errorf("the server got name %q with Mcp-Name %q", p.Name, header)
		}
		if m := got.header.Get("Mcp-Method"); m != "tools/call" {
			t.Errorf("the server got Mcp-Method %q", m)
		}
	}
	// The merged view passes the server's own name on, in both places.
	m := w.do(t, "POST", "/mcp", callBody(`"a__größe"`), modernHeaders("tools/call", b64("a__größe"))...).answer()
	if m.Result == nil {
		t.Fatalf("merged: %s", m.raw)
	}
	if got := up.last(t, "tools/call"); got.header.Get("Mcp-Name") != b64("größe") {
		t.Errorf("the server got Mcp-Name %q", got.header.Get("Mcp-Name"))
	}
}

func TestNamesOfResourcesAndPrompts(t *testing.T) {
	t.Parallel()
	w, up := guarded(t, true)
	for method, key := range map[string]string{"resources/read": "uri", "prompts/get": "name"} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%q:"x://y",%s}}`, method, key, meta(`{}`))
		for _, header := range []string{"", "x://z"} {
			w.do(t, "POST", "/mcp/a", body, modernHeaders(method, header)...).wantError(http.StatusBadRequest, -32020)
		}
		if n := len(up.of(method)); n != 0 {
			t.Errorf("%d of %s reached the server", n, method)
		}
		if m := w.do(t, "POST", "/mcp/a", body, modernHeaders(method, "x://y")...).answer(); m.Result == nil {
			t.Errorf("%s: %s", method, m.raw)
		}
	}
}

func TestUnknownMethods(t *testing.T) {
	t.Parallel()
	w, _ := guarded(t, true)
	for _, path := range []string{"/mcp", "/mcp/a"} {
		for _, method := range []string{"no/such", "initialize", "ping", "logging/setLevel", "resources/subscribe"} {
			w.modern(t, path, `{}`).request(method, "", `{"level":"info","uri":"x://y"}`).wantError(http.StatusNotFound, -32601)
		}
	}
	if e := w.dial(t, "/mcp", `{}`).ask("no/such", `{}`).failure(t); e.Code != -32601 {
		t.Errorf("a legacy client gets %d", e.Code)
	}
}

func TestUnsupportedVersionNamesTheSupported(t *testing.T) {
	t.Parallel()
	w, _ := guarded(t, true)
	body := strings.Replace(callBody(`"good"`), modernVersion, "2099-01-01", 1)
	headers := modernHeaders("tools/call", "good")
	headers[slices.Index(headers, modernVersion)] = "2099-01-01"
	e := w.do(t, "POST", "/mcp/a", body, headers...).wantError(http.StatusBadRequest, -32022)
	var data struct {
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil || data.Requested != "2099-01-01" || !slices.Contains(data.Supported, modernVersion) {
		t.Errorf("data is %s", e.Data)
	}
}
