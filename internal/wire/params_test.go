package wire_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/wire"
)

func TestScanParams(t *testing.T) {
	const meta = `"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/logLevel":"info","other":12345678901234567890}`
	tests := []struct {
		name, method, in string
		target           string
		uri              bool
	}{
		{"tool", wire.MethodCallTool, `{"name":"a","arguments":{"name":"b"}}`, `a`, false},
		{"tool, name last", wire.MethodCallTool, `{"arguments":{"name":"b"},"name":"a"}`, `a`, false},
		{"tool, escaped key", wire.MethodCallTool, `{"na\u006de":"a"}`, `a`, false},
		{"tool, escaped value", wire.MethodCallTool, `{"name":"\u0061\/b"}`, `a/b`, false},
		{"tool with no name", wire.MethodCallTool, `{"arguments":{}}`, ``, false},
		{"prompt", wire.MethodGetPrompt, `{"name":"p"}`, `p`, false},
		{"resource", wire.MethodReadResource, `{"name":"no","uri":"file:///x"}`, `file:///x`, true},
		{"subscribe", wire.MethodSubscribe, `{"uri":"file:///x"}`, `file:///x`, true},
		{"unsubscribe", wire.MethodUnsubscribe, `{"uri":"file:///x"}`, `file:///x`, true},
		{"completion of a prompt", wire.MethodComplete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x","value":"y"}}`, `p`, false},
		{"completion of a resource", wire.MethodComplete, `{"argument":{"name":"x"},"ref":{"uri":"f:/{x}","type":"ref/resource"}}`, `f:/{x}`, true},
		{"completion, slash escaped as PHP does", wire.MethodComplete, `{"ref":{"type":"ref\/prompt","name":"p"}}`, `p`, false},
		{"method without a target", wire.MethodListTools, `{"name":"a","uri":"b"}`, ``, false},
		{"no params", wire.MethodListTools, ``, ``, false},
		{"empty params", wire.MethodCallTool, `{}`, ``, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := wire.ScanParams(tt.method, []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if p.Name() != tt.target || p.TargetURI != tt.uri || string(p.Raw) != tt.in {
				t.Errorf("target %q uri %v raw %q", p.Name(), p.TargetURI, p.Raw)
			}
			if p.Meta.Ok() || p.ProgressToken.Ok() {
				t.Errorf("found meta %q, token %q", p.Meta.Of(p.Raw), p.ProgressToken.Of(p.Raw))
			}
			if len(tt.in) < 3 {
				return
			}
			p, err = wire.ScanParams(tt.method, []byte(`{`+meta+`,"requestState":"s","inputResponses":{"k":{}},`+tt.in[1:]))
			if err != nil {
				t.Fatalf("with _meta: %v", err)
			}
			if p.Name() != tt.target {
				t.Errorf("with _meta: target %q", p.Name())
			}
			got := [...]string{
				string(p.Meta.Of(p.Raw)), string(p.ProgressToken.Of(p.Raw)), string(p.Version.Of(p.Raw)), string(p.ClientInfo.Of(p.Raw)),
				string(p.ClientCaps.Of(p.Raw)), string(p.LogLevel.Of(p.Raw)), string(p.RequestState.Of(p.Raw)), string(p.InputResponses.Of(p.Raw)),
			}
			want := [...]string{strings.TrimPrefix(meta, `"_meta":`), `7`, `"2026-07-28"`, `{"name":"c","version":"1"}`, `{"sampling":{}}`, `"info"`, `"s"`, `{"k":{}}`}
			if got != want {
				t.Errorf("places\n got %q\nwant %q", got, want)
			}
		})
	}
}

func TestNullMeta(t *testing.T) {
	raw := []byte(`{"name":"a","_meta": null }`)
	p, err := wire.ScanParams(wire.MethodCallTool, raw)
	if err != nil || p.Meta.Ok() || string(p.NullMeta.Of(raw)) != "null" {
		t.Errorf("meta %q, null %q, %v", p.Meta.Of(raw), p.NullMeta.Of(raw), err)
	}
}

func TestScanParamsRefuses(t *testing.T) {
	tests := []struct{ name, method, in string }{
		{"name twice", wire.MethodCallTool, `{"name":"allowed","name":"denied"}`},
		{"name twice, once escaped", wire.MethodCallTool, `{"name":"allowed","n\u0061me":"denied"}`},
		{"name in another case", wire.MethodCallTool, `{"name":"allowed","Name":"denied"}`},
		{"only a name in another case", wire.MethodCallTool, `{"NAME":"denied"}`},
		{"name in another case, escaped", wire.MethodCallTool, `{"name":"allowed","\u004eame":"denied"}`},
		{"uri in another case", wire.MethodReadResource, `{"uri":"a","URI":"b"}`},
		{"uri twice", wire.MethodReadResource, `{"uri":"a","uri":"b"}`},
		{"ref twice", wire.MethodComplete, `{"ref":{"type":"ref/prompt","name":"a"},"ref":{"type":"ref/prompt","name":"b"}}`},
		{"ref in another case", wire.MethodComplete, `{"ref":{"type":"ref/prompt","name":"a"},"Ref":{"type":"ref/prompt","name":"b"}}`},
		{"ref.name twice", wire.MethodComplete, `{"ref":{"type":"ref/prompt","name":"a","name":"b"}}`},
		{"ref.name in another case", wire.MethodComplete, `{"ref":{"type":"ref/prompt","name":"a","nAme":"b"}}`},
		{"ref.type twice", wire.MethodComplete, `{"ref":{"type":"ref/prompt","type":"ref/resource","name":"a","uri":"b"}}`},
		{"ref is a string", wire.MethodComplete, `{"ref":"x"}`},
		{"ref of an unknown type", wire.MethodComplete, `{"ref":{"type":"ref/tool","name":"a"}}`},
		{"name is a number", wire.MethodCallTool, `{"name":1}`},
		{"name is null", wire.MethodCallTool, `{"name":null}`},
		{"name is an object", wire.MethodCallTool, `{"name":{"name":"a"}}`},
		{"_meta twice", wire.MethodCallTool, `{"name":"a","_meta":{},"_meta":{"progressToken":1}}`},
		{"_meta in another case", wire.MethodCallTool, `{"name":"a","_Meta":{"progressToken":1}}`},
		{"_meta with a long s", wire.MethodListTools, `{"reque\u017ftState":"x"}`},
		{"_meta is an array", wire.MethodCallTool, `{"name":"a","_meta":[]}`},
		{"token twice", wire.MethodCallTool, `{"name":"a","_meta":{"progressToken":1,"progressToken":2}}`},
		{"token in another case", wire.MethodCallTool, `{"name":"a","_meta":{"progressToken":1,"ProgressToken":2}}`},
		{"version twice", wire.MethodCallTool, `{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol\/protocolVersion":"2025-11-25"}}`},
		{"state twice", wire.MethodCallTool, `{"name":"a","requestState":"x","requestState":"y"}`},
		{"array", wire.MethodCallTool, `["a"]`},
		{"cut off", wire.MethodCallTool, `{"name":"a"`},
		{"cut off in _meta", wire.MethodCallTool, `{"name":"a","_meta":{`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if p, err := wire.ScanParams(tt.method, []byte(tt.in)); err == nil {
				t.Errorf("ScanParams(%s) passed with target %q", tt.in, p.Name())
			}
		})
	}
}

// FuzzScanParams holds the places that ScanParams finds to what encoding/json
// finds there.
func FuzzScanParams(f *testing.F) {
	methods := []string{wire.MethodCallTool, wire.MethodReadResource, wire.MethodComplete, wire.MethodListTools, "x/y"}
	for i, s := range []string{
		`{"name":"a","arguments":{"x":[1,{"name":"b"}]},"_meta":{"progressToken":"t"}}`,
		`{"uri":"file:///x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`,
		`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}`,
		`{"cursor":"12345678901234567890","_meta":null}`,
		`{"n\u0061me":"\ud83d\ude00","_m\u0065ta":{"progressT\u006fken":12345678901234567890}}`,
		`{"name":"a","name":"b"}`, `{"_meta":{"progressToken":1,"progressToken":1}}`, `{"requestState":"s","inputResponses":{"a":{}}}`,
		`{"NAME":"x"}`, `{`, `{}`, `[]`, `null`, ``, "{\"name\":\"\xff\"}",
	} {
		f.Add(i, []byte(s))
	}
	f.Fuzz(func(t *testing.T, which int, raw []byte) {
		method := methods[uint(which)%uint(len(methods))]
		p, err := wire.ScanParams(method, raw)
		if err != nil || len(raw) == 0 {
			return
		}
		for what, s := range map[string]wire.Span{
			"target": p.Target, "_meta": p.Meta, "token": p.ProgressToken, "version": p.Version, "info": p.ClientInfo,
			"caps": p.ClientCaps, "level": p.LogLevel, "state": p.RequestState, "responses": p.InputResponses,
		} {
			if s.Start < 0 || s.End > len(raw) || s.Start > s.End {
				t.Fatalf("%s at %v of %d bytes", what, s, len(raw))
			}
		}
		ms, ok := members(raw)
		if !ok {
			// What comes here was scanned before; more after the object is the
			// one thing that only that scan sees.
			return
		}
		same := func(what string, got wire.Span, path ...string) {
			want := at(raw, path...)
			if string(got.Of(raw)) != want && !(want == "null" && !got.Ok()) {
				t.Fatalf("%s of %q: got %q, encoding/json reads %q", what, raw, got.Of(raw), want)
			}
		}
		switch method {
		case wire.MethodCallTool:
			same("name", p.Target, "name")
		case wire.MethodReadResource:
			same("uri", p.Target, "uri")
		case wire.MethodComplete:
			if p.TargetURI {
				same("ref.uri", p.Target, "ref", "uri")
			} else {
				same("ref.name", p.Target, "ref", "name")
			}
		default:
			if p.Target.Ok() {
				t.Fatalf("%s has target %q", method, p.Target.Of(raw))
			}
		}
		same("_meta", p.Meta, "_meta")
		same("progressToken", p.ProgressToken, "_meta", "progressToken")
		same("protocolVersion", p.Version, "_meta", wire.MetaVersion)
		same("clientInfo", p.ClientInfo, "_meta", wire.MetaClientInfo)
		same("clientCapabilities", p.ClientCaps, "_meta", wire.MetaClientCaps)
		same("logLevel", p.LogLevel, "_meta", wire.MetaLogLevel)
		same("requestState", p.RequestState, "requestState")
		same("inputResponses", p.InputResponses, "inputResponses")
		for _, key := range []string{"_meta", "requestState", "inputResponses"} {
			if _, times := lookup(ms, key); times > 1 {
				t.Fatalf("ScanParams passed %q with %s %d times", raw, key, times)
			}
		}
	})
}
