package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/wire"
)

func TestScanFinds(t *testing.T) {
	tests := []struct {
		name   string
		in     string
		id     string
		method string
		params string
		result string
		err    string
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`, `1`, "tools/call", `{"name":"a"}`, "", ""},
		{"request without params", `{"jsonrpc":"2.0","id":"x","method":"ping"}`, `"x"`, "ping", "", "", ""},
		{"any order", `{"params":{"a":1},"method":"m","id":"7","jsonrpc":"2.0"}`, `"7"`, "m", `{"a":1}`, "", ""},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`, "", "notifications/progress", `{"progress":1}`, "", ""},
		{"answer", `{"jsonrpc":"2.0","id":3,"result":{"ok":true}}`, `3`, "", "", `{"ok":true}`, ""},
		{"empty answer", `{"jsonrpc":"2.0","id":3,"result":{}}`, `3`, "", "", `{}`, ""},
		{"failed answer", `{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}`, `3`, "", "", "", `{"code":-1,"message":"no"}`},
		{"answer with a null error", `{"jsonrpc":"2.0","id":3,"result":{"ok":true},"error":null}`, `3`, "", "", `{"ok":true}`, ""},
		{"failed answer with a null result", `{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":-1,"message":"no"}}`, `3`, "", "", "", `{"code":-1,"message":"no"}`},
		{"null result", `{"jsonrpc":"2.0","id":3,"result":null}`, `3`, "", "", `null`, ""},
		{"error that names no request", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`, ``, "", "", "", `{"code":-32700,"message":"no"}`},
		{"null params", `{"jsonrpc":"2.0","id":3,"method":"m","params":null}`, `3`, "m", "", "", ""},
		{"big id", `{"jsonrpc":"2.0","id":12345678901234567890,"method":"m"}`, `12345678901234567890`, "m", "", "", ""},
		{"string id with escapes is kept raw", `{"jsonrpc":"2.0","id":"\u0061\n","method":"m"}`, `"\u0061\n"`, "m", "", "", ""},
		{"space everywhere", " \t\r\n{ \"jsonrpc\" : \"2.0\" ,\n \"id\" : 1 , \"method\" : \"m\" , \"params\" : { \"a\" : [ 1 , 2 ] } } \n", `1`, "m", `{ "a" : [ 1 , 2 ] }`, "", ""},
		{"escaped keys", `{"jsonrpc":"2.0","\u0069d":5,"me\u0074hod":"m","p\u0061rams":{"x":1}}`, `5`, "m", `{"x":1}`, "", ""},
		{"escaped method", `{"jsonrpc":"2.0","id":5,"method":"tools\/c\u0061ll"}`, `5`, "tools/call", "", "", ""},
		{"unknown keys before and after", `{"x":{"method":"no","id":9},"jsonrpc":"2.0","id":1,"method":"m","y":[{"params":{}}]}`, `1`, "m", "", "", ""},
		{"other case is another key", `{"jsonrpc":"2.0","id":1,"method":"m","Paramsx":{"a":1}}`, `1`, "m", "", "", ""},
		{"values that look like keys", `{"jsonrpc":"2.0","id":"method","method":"id","params":{"id":"params"}}`, `"method"`, "id", `{"id":"params"}`, "", ""},
		{"huge number", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":-1` + strings.Repeat("0", 400) + `.5e+4000}}`, `1`, "m", `{"n":-1` + strings.Repeat("0", 400) + `.5e+4000}`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := wire.Scan([]byte(tt.in))
			if err != nil {
				t.Fatalf("Scan: %v", err)
			}
			got := [...]string{string(m.ID), m.Method, string(m.Params), string(m.Result), string(m.Error)}
			want := [...]string{tt.id, tt.method, tt.params, tt.result, tt.err}
			if got != want {
				t.Errorf("id, method, params, result, error\n got %q\nwant %q", got, want)
			}
			if m.IsRequest() != (tt.method != "" && tt.id != "") ||
				m.IsNotification() != (tt.method != "" && tt.id == "") ||
				m.IsResponse() != (tt.method == "") {
				t.Errorf("request %v, notification %v, answer %v", m.IsRequest(), m.IsNotification(), m.IsResponse())
			}
		})
	}
}

func TestScanRefuses(t *testing.T) {
	tests := []struct{ name, in string }{
		{"nothing", ``},
		{"space", ` `},
		{"a string", `"x"`},
		{"null", `null`},
		{"a number", `1`},
		{"garbage", `hello`},
		{"an HTML page", `<html></html>`},
		{"cut off", `{"jsonrpc":"2.0","id":1,"method":"m"`},
		{"cut off in a string", `{"jsonrpc":"2.0","id":1,"method":"m`},
		{"cut off after a backslash", `{"jsonrpc":"2.0","id":1,"method":"m\`},
		{"cut off in an escape", `{"jsonrpc":"2.0","id":1,"method":"\u00`},
		{"more after the end", `{"jsonrpc":"2.0","id":1,"method":"m"}x`},
		{"two messages", `{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"n"}`},
		{"comma at the end", `{"jsonrpc":"2.0","id":1,"method":"m",}`},
		{"comma at the start", `{,"jsonrpc":"2.0","id":1,"method":"m"}`},
		{"no comma", `{"jsonrpc":"2.0" "id":1,"method":"m"}`},
		{"no colon", `{"jsonrpc" "2.0","id":1,"method":"m"}`},
		{"key without quotes", `{jsonrpc:"2.0","id":1,"method":"m"}`},
		{"single quotes", `{'jsonrpc':'2.0','id':1,'method':'m'}`},
		{"comment", `{"jsonrpc":"2.0",/**/"id":1,"method":"m"}`},
		{"NaN", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}`},
		{"leading zero", `{"jsonrpc":"2.0","id":01,"method":"m"}`},
		{"plus", `{"jsonrpc":"2.0","id":+1,"method":"m"}`},
		{"bare minus", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":-}}`},
		{"dot without digits", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1.}}`},
		{"exponent without digits", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1e}}`},
		{"control character in a string", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}"},
		{"control character deep inside", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":[\"\x01\"]}}"},
		{"bad escape", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\x41"}}`},
		{"bad unicode escape", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\u00g1"}}`},
		{"bad literal", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":tru}}`},
		{"literal with a tail", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":truee}}`},
		{"wrong bracket", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1}}`},
		{"byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"m"}`},
		{"no-break space", "{\u00a0\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}"},

		{"id is an object", `{"jsonrpc":"2.0","id":{},"method":"m"}`},
		{"id is an array", `{"jsonrpc":"2.0","id":[1],"method":"m"}`},
		{"id is true", `{"jsonrpc":"2.0","id":true,"method":"m"}`},
		{"method is a number", `{"jsonrpc":"2.0","id":1,"method":1}`},
		{"method is an object", `{"jsonrpc":"2.0","id":1,"method":{}}`},
		{"params is a string", `{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}`},
		{"neither request nor answer", `{"jsonrpc":"2.0","id":1}`},
		{"empty object", `{}`},
		{"request and answer at once", `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`},
		{"result and error at once", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}`},
		{"a request with an empty method", `{"jsonrpc":"2.0","id":1,"method":""}`},
		{"another JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"m"}`},
		{"no JSON-RPC", `{"id":1,"method":"m"}`},

		{"method twice", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`},
		{"method twice, once escaped", `{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}`},
		{"params twice", `{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{"name":"b"}}`},
		{"params twice, once escaped", `{"jsonrpc":"2.0","id":1,"method":"a","\u0070arams":{},"params":{"name":"b"}}`},
		{"id twice", `{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}`},
		{"result twice", `{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`},
		{"error twice", `{"jsonrpc":"2.0","id":1,"error":{},"error":{}}`},
		{"null and then a value", `{"jsonrpc":"2.0","id":1,"method":"a","params":null,"params":{}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if m, err := wire.Scan([]byte(tt.in)); err == nil {
				t.Errorf("Scan(%q) = id %q method %q params %q result %q error %q, want an error",
					tt.in, m.ID, m.Method, m.Params, m.Result, m.Error)
			}
		})
	}
}

func TestScanDepth(t *testing.T) {
	deep := func(n int, open, shut string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` +
			strings.Repeat(open, n) + `1` + strings.Repeat(shut, n) + `}}`)
	}
	if _, err := wire.Scan(deep(100, "[", "]")); err != nil {
		t.Errorf("100 arrays deep: %v", err)
	}
	if _, err := wire.Scan(deep(100, `{"a":`, "}")); err != nil {
		t.Errorf("100 objects deep: %v", err)
	}
	for _, open := range []string{"[", `{"a":`} {
		if _, err := wire.Scan([]byte(`{"jsonrpc":"2.0","params":` + strings.Repeat(open, 2_000_000))); err == nil {
			t.Errorf("2,000,000 times %s passed", open)
		}
	}
	if _, err := wire.Scan(deep(1_000_000, "[", "]")); err == nil {
		t.Error("1,000,000 arrays in each other passed; no server can read that")
	}
}

func TestScanBatch(t *testing.T) {
	if _, err := wire.Scan([]byte(` [{"jsonrpc":"2.0","id":1,"method":"m"}]`)); !errors.Is(err, wire.ErrBatch) {
		t.Errorf("Scan of an array: %v, want ErrBatch", err)
	}
	ms, err := wire.ScanBatch([]byte("[ {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"} ,\n{\"jsonrpc\":\"2.0\",\"method\":\"b\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]"), 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(ms) != 3 || !ms[0].IsRequest() || !ms[1].IsNotification() || !ms[2].IsResponse() || string(ms[0].ID) != "1" {
		t.Errorf("got %+v", ms)
	}
	for name, in := range map[string]string{
		"too many":       `[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","method":"c"},{"jsonrpc":"2.0","method":"d"}]`,
		"empty":          `[]`,
		"no array":       `{"jsonrpc":"2.0","id":1,"method":"a"}`,
		"a batch inside": `[[{"jsonrpc":"2.0","id":1,"method":"a"}]]`,
		"a bad one":      `[{"jsonrpc":"2.0","id":1,"method":"a"},1]`,
		"cut off":        `[{"jsonrpc":"2.0","id":1,"method":"a"},`,
		"more after it":  `[{"jsonrpc":"2.0","id":1,"method":"a"}]]`,
	} {
		if ms, err := wire.ScanBatch([]byte(in), 3); err == nil {
			t.Errorf("%s: got %+v, want an error", name, ms)
		}
	}
}

// FuzzScan holds Scan to what encoding/json reads: a message that a server
// would understand in another way must not pass.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"na\u006de","arguments":{"n":12345678901234567890}}}`,
		`{"jsonrpc":"2.0","i\u0064":"a\"b","method":"ping"}`,
		`{"jsonrpc":"2.0","id":null,"method":"x"}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}`,
		`{"jsonrpc":"2.0","id":-0,"result":{"a":[[[]],{}],"b":1e400}}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"\ud83d\ude00\ud800\"\\"}`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}",
		`{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`,
		`{"a":{"a":{"a":[{"a":1}]}},"id":1,"method":"m"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"a"}]`,
		strings.Repeat("[", 300), `{`, `{"`, `{"\`, `{"\u`, `{"a":-`, `{"a":1e`, "\x00", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		m, err := wire.Scan(b)
		if string(b) != before {
			t.Fatalf("Scan changed its input to %q", b)
		}
		ms, object := members(b)
		if err != nil {
			if object && plain(ms) && deepest(b) < 100 {
				t.Fatalf("Scan(%q): %v, but it is a plain message", b, err)
			}
			return
		}
		if !object {
			t.Fatalf("Scan passed %q, which is no JSON object", b)
		}
		for key, got := range map[string]string{
			"id": string(m.ID), "params": string(m.Params), "result": string(m.Result), "error": string(m.Error),
		} {
			want, times := lookup(ms, key)
			if times > 1 {
				t.Fatalf("Scan passed %q with %s %d times", b, key, times)
			}
			if got != want && !(got == "" && want == "null") {
				t.Fatalf("Scan(%q): %s = %q, encoding/json reads %q", b, key, got, want)
			}
		}
		method, times := lookup(ms, "method")
		switch {
		case times > 1:
			t.Fatalf("Scan passed %q with method %d times", b, times)
		case times == 0 && m.Method != "":
			t.Fatalf("Scan(%q) found method %q, which is not there", b, m.Method)
		case times == 1 && m.Method != unquoted(t, method):
			t.Fatalf("Scan(%q): method %q, encoding/json reads %q", b, m.Method, unquoted(t, method))
		}
		kinds := 0
		for _, is := range []bool{m.IsRequest(), m.IsNotification(), m.IsResponse()} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Fatalf("Scan(%q) is %d kinds of message", b, kinds)
		}
	})
}

// plain reports whether an object is a message that every parser takes: the
// known keys once each, of the right types, in a legal combination.
func plain(ms []member) bool {
	count := map[string]int{}
	for _, m := range ms {
		count[m.key]++
		if count[m.key] > 1 {
			return false
		}
		switch m.key {
		case "jsonrpc":
			if m.raw != `"2.0"` {
				return false
			}
		case "id":
			if m.raw[0] != '"' && strings.Trim(m.raw, "0123456789") != "" {
				return false
			}
		case "method":
			var s string
			if json.Unmarshal([]byte(m.raw), &s) != nil || s == "" || m.raw[0] != '"' {
				return false
			}
		case "params", "result", "error":
			if m.raw[0] != '{' {
				return false
			}
		}
	}
	answer := count["result"]+count["error"] == 1 && count["method"] == 0 && count["params"] == 0 && count["id"] == 1
	request := count["method"] == 1 && count["result"]+count["error"] == 0
	return count["jsonrpc"] == 1 && (answer || request)
}
