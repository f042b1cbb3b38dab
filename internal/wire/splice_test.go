package wire_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/tine-mcp/tine/internal/wire"
)

func TestAppendSpliced(t *testing.T) {
	const src = "0123456789"
	tests := []struct {
		name  string
		edits []wire.Edit
		want  string
	}{
		{"none", nil, "0123456789"},
		{"replace", []wire.Edit{{At: wire.Span{Start: 2, End: 4}, With: []byte("ab")}}, "01ab456789"},
		{"delete", []wire.Edit{{At: wire.Span{Start: 2, End: 4}}}, "01456789"},
		{"insert", []wire.Edit{{At: wire.Span{Start: 2, End: 2}, With: []byte("x")}}, "01x23456789"},
		{"out of order", []wire.Edit{{At: wire.Span{Start: 8, End: 9}, With: []byte("b")}, {At: wire.Span{Start: 0, End: 1}, With: []byte("a")}}, "a1234567b9"},
		{"adjacent", []wire.Edit{{At: wire.Span{Start: 1, End: 2}, With: []byte("a")}, {At: wire.Span{Start: 2, End: 3}, With: []byte("b")}}, "0ab3456789"},
		{"two inserts keep their order", []wire.Edit{{At: wire.Span{Start: 3, End: 3}, With: []byte("a")}, {At: wire.Span{Start: 3, End: 3}, With: []byte("b")}}, "012ab3456789"},
		{"insert before a replaced part", []wire.Edit{{At: wire.Span{Start: 3, End: 5}, With: []byte("b")}, {At: wire.Span{Start: 3, End: 3}, With: []byte("a")}}, "012ab56789"},
		{"insert behind a replaced part", []wire.Edit{{At: wire.Span{Start: 5, End: 5}, With: []byte("b")}, {At: wire.Span{Start: 3, End: 5}, With: []byte("a")}}, "012ab56789"},
		{"all of it", []wire.Edit{{At: wire.Span{Start: 0, End: 10}, With: []byte("x")}}, "x"},
		{"at the end", []wire.Edit{{At: wire.Span{Start: 10, End: 10}, With: []byte("x")}}, "0123456789x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := wire.AppendSpliced([]byte("> "), []byte(src), tt.edits)
			if string(got) != "> "+tt.want {
				t.Errorf("got %q, want %q", got, "> "+tt.want)
			}
		})
	}
}

func TestAppendMessages(t *testing.T) {
	params := []byte(`{"z":1,"name":"srv__echo","arguments":{"n":12345678901234567890,"f":1.0}}`)
	p, err := wire.ScanParams(wire.MethodCallTool, params)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"request", wire.AppendRequest(nil, []byte(`"a1"`), wire.MethodCallTool, params, []wire.Edit{{At: p.Target, With: wire.Quote("echo")}}),
			`{"jsonrpc":"2.0","id":"a1","method":"tools/call","params":{"z":1,"name":"echo","arguments":{"n":12345678901234567890,"f":1.0}}}`},
		{"notification without params", wire.AppendRequest(nil, nil, "n", nil, nil), `{"jsonrpc":"2.0","method":"n","params":{}}`},
		{"method with quotes", wire.AppendRequest(nil, nil, `a"b`, nil, nil), `{"jsonrpc":"2.0","method":"a\"b","params":{}}`},
		{"result", wire.AppendResult(nil, []byte(`7`), []byte(`{"a":1}`)), `{"jsonrpc":"2.0","id":7,"result":{"a":1}}`},
		{"failure", wire.AppendFailure(nil, []byte(`7`), []byte(`{"code":1,"message":"m"}`)), `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}`},
		{"failure of no request", wire.AppendFailure(nil, nil, []byte(`{"code":1,"message":"m"}`)), `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`},
		{"error", wire.AppendError(nil, &wire.Error{Code: -31000, Message: "a\"b\n<c>", Data: []byte(`{"k":1}`)}), `{"code":-31000,"message":"a\"b\n<c>","data":{"k":1}}`},
	}
	for _, tt := range tests {
		if string(tt.got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestParseError(t *testing.T) {
	e := wire.ParseError([]byte(`{"code":-32602,"message":"no such tool","data":{"n":12345678901234567890}}`))
	if e.Code != -32602 || e.Message != "no such tool" || string(e.Data) != `{"n":12345678901234567890}` {
		t.Errorf("got %+v", e)
	}
	for _, raw := range []string{`{"code":"x","message":1}`, `{}`, `garbage`, ``, `null`} {
		if e := wire.ParseError([]byte(raw)); e == nil || e.Error() == "" {
			t.Errorf("ParseError(%q) = %v", raw, e)
		}
	}
}

func TestOneLine(t *testing.T) {
	in := []byte("{\r\n  \"a\": \"x\\ny\",\n\r\"b\": 1\n}\n")
	var want, got any
	if err := json.Unmarshal(in, &want); err != nil {
		t.Fatal(err)
	}
	out := wire.OneLine(slices.Clone(in))
	if bytes.ContainsAny(out, "\r\n") {
		t.Errorf("line breaks are left in %q", out)
	}
	if err := json.Unmarshal(out, &got); err != nil || got.(map[string]any)["a"] != "x\ny" {
		t.Errorf("OneLine broke the message: %q %v", out, err)
	}
}

// FuzzSplice replaces the target and adds to _meta, as every relayed call does,
// and holds that all else stays byte for byte.
func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"name":"srv__a","arguments":{"n":12345678901234567890,"m":1.0,"z":null,"a":"é\u00e9"},"x-new":[1]}`), "a", "t1")
	f.Add([]byte(`{"_meta":{"progressToken":5,"k":1e400},"name":"x"}`), "\"\\\n", "t\"2")
	f.Add([]byte("{ \"name\" : \"x\" ,\n\"_meta\" : { } }"), "\xff", "")
	f.Add([]byte(`{"na\u006de":"x","_meta":{"a":{"b":[{}]}}}`), "日本", "t")
	f.Fuzz(func(t *testing.T, raw []byte, name, token string) {
		before, ok := members(raw)
		if !ok {
			return
		}
		p, err := wire.ScanParams(wire.MethodCallTool, raw)
		if err != nil || !p.Target.Ok() {
			return
		}
		edits := []wire.Edit{{At: p.Target, With: wire.Quote(name)}}
		switch {
		case p.ProgressToken.Ok():
			edits = append(edits, wire.Edit{At: p.ProgressToken, With: wire.Quote(token)})
		case p.Meta.Ok():
			edits = append(edits, wire.InsertMember(raw, p.Meta.Start, wire.MetaProgressToken, wire.Quote(token)))
		default:
			if _, times := lookup(before, "_meta"); times > 0 {
				return // null
			}
			edits = append(edits, wire.InsertMember(raw, bytes.IndexByte(raw, '{'), "_meta", []byte(`{"progressToken":`+string(wire.Quote(token))+`}`)))
		}
		msg := wire.AppendRequest(nil, []byte(`"i"`), wire.MethodCallTool, raw, edits)
		m, err := wire.Scan(msg)
		if err != nil {
			t.Fatalf("spliced message does not scan: %v\n%s", err, msg)
		}
		again, err := wire.ScanParams(m.Method, m.Params)
		if err != nil {
			t.Fatalf("spliced params do not scan: %v\n%s", err, m.Params)
		}
		if want := unquoted(t, string(wire.Quote(name))); again.Name() != want {
			t.Fatalf("name is %q, want %q", again.Name(), want)
		}
		if got, want := string(again.ProgressToken.Of(m.Params)), string(wire.Quote(token)); got != want {
			t.Fatalf("token is %s, want %s", got, want)
		}
		after, _ := members(m.Params)
		rest := func(ms []member) []member {
			return slices.DeleteFunc(slices.Clone(ms), func(m member) bool { return m.key == "name" || m.key == "_meta" })
		}
		if !slices.Equal(rest(before), rest(after)) {
			t.Fatalf("other members changed:\n%s\n%s", raw, m.Params)
		}
		metaOf := func(ms []member) []member {
			raw, _ := lookup(ms, "_meta")
			ms, _ = members([]byte(raw))
			return slices.DeleteFunc(ms, func(m member) bool { return m.key == wire.MetaProgressToken })
		}
		if !slices.Equal(metaOf(before), metaOf(after)) {
			t.Fatalf("other members of _meta changed:\n%s\n%s", raw, m.Params)
		}
	})
}
