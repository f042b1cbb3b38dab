package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// strange is an arguments object that no decoder gives back as it was: a big
// integer, a float with zeros, keys out of order, escapes, space, doubled
// separators and unknown things.
const strange = `{ "z":12345678901234567890, "a" : 1.50e+01,"\u00e9\/<>&":"\ud83d\ude00 é <b> \u003c \u2028","n":{"b":[1,  2,{}],"a":null},"":-0.0, "__":"a__b"}`

// strangeResult is a result of the same sort, with content of a type that does
// not exist and members that are not of the protocol.
const strangeResult = `{"zeta":{"y":12345678901234567890,"x":0.10}, "content":[{"type":"text","text":"a\u0062c \ud83d\ude00 <&>","annotations":{"priority":1.0,"audience":["user"],"lastModified":"x","more":9007199254740993}},` +
	`{"type":"hologram","payload":{"k":[1,2,  3]}},{"type":"image","data":"AA==","mimeType":"image/png","icons":[{"src":"data:,","sizes":["any"],"hue":1e400}]}],` +
	`"structuredContent":{"b":12345678901234567890,"a":[1.0]},"isError":true,"_meta":{"z/last":1,"a/first":{"n":18446744073709551616},"progressToken":"not mine"},"resultType":"complete","unknown":[]}`

const plainTools = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`

// eras names the four combinations.
var eras = []struct {
	name             string
	client, upstream bool // modern
}{
	{"legacy client, legacy server", false, false},
	{"legacy client, modern server", false, true},
	{"modern client, legacy server", true, false},
	{"modern client, modern server", true, true},
}

// rawCall calls a tool with params of the test's own making and returns the
// answer. The extra members go into _meta.
func rawCall(t *testing.T, w *world, modernClient bool, path, tool, members, metaMembers string) message {
	t.Helper()
	if !modernClient {
		c := w.dial(t, path, `{}`)
		return c.ask("tools/call", fmt.Sprintf(`{%s"name":%q,"_meta":{%s}}`, members, tool, metaMembers))
	}
	m := strings.Replace(meta(`{}`), `"_meta":{`, `"_meta":{`+metaMembers+`,`, 1)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"q-\u00e9","method":"tools/call","params":{%s"name":%q,%s}}`, members, tool, m)
	return w.do(t, http.MethodPost, path, body, modernHeaders("tools/call", tool)...).answer()
}

func TestArgumentsReachTheServerUntouched(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, view := range []struct{ path, tool string }{{"/mcp/a", "echo"}, {"/mcp", "a__echo"}} {
			t.Run(era.name+" at "+view.path, func(t *testing.T) {
				up := script(t, era.upstream, map[string]string{"tools/list": plainTools, "tools/call": `{"content":[],"resultType":"complete"}`})
				w := open(t, servers("a", up.URL))
				members := `"future":{"b": 12345678901234567890,"a":[ ]},"arguments":` + strange + `, "z":"\u007a",`
				rawCall(t, w, era.client, view.path, view.tool, members, `"z.y/x":{"big":12345678901234567890, "s":"\u0041"},"a/b":[1.0]`)

				got := up.last(t, "tools/call")
				for _, want := range []string{
					members, // whole, with the space in it
					`"name":"echo"`,
					`"z.y/x":{"big":12345678901234567890, "s":"\u0041"},"a/b":[1.0]`,
				} {
					if !bytes.Contains(got.Params, []byte(want)) {
						t.Errorf("lost on the way: %s\nthe server got %s", want, got.Params)
					}
				}
				if i, j := bytes.Index(got.Params, []byte(`"future"`)), bytes.Index(got.Params, []byte(`"name"`)); i > j {
					t.Errorf("members changed places: %s", got.Params)
				}
			})
		}
	}
}

func TestParamsOfTheSameEraAreTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", isModern), func(t *testing.T) {
			up := script(t, isModern, map[string]string{"tools/list": plainTools, "tools/call": `{"content":[],"resultType":"complete"}`})
			w := open(t, servers("a", up.URL))
			for _, view := range []struct{ path, tool string }{{"/mcp/a", "echo"}, {"/mcp", "a__echo"}} {
				template := `{"arguments":` + strange + ` ,"name" : %q, "x":[ 12345678901234567890 ]%s}`
				if isModern {
					params := fmt.Sprintf(template, view.tool, ","+meta(`{"experimental":{"z":1.0,"a":{}},"elicitation":{}}`))
					w.do(t, http.MethodPost, view.path, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+params+`}`,
						modernHeaders("tools/call", view.tool)...).answer()
					want := fmt.Sprintf(template, "echo", ","+meta(`{"experimental":{"z":1.0,"a":{}},"elicitation":{}}`))
					if got := up.last(t, "tools/call"); string(got.Params) != want {
						t.Errorf("%s: the server got\n%s, want\n%s", view.path, got.Params, want)
					}
					continue
				}
				w.dial(t, view.path, `{}`).ask("tools/call", fmt.Sprintf(template, view.tool, ""))
				if got, want := up.last(t, "tools/call"), fmt.Sprintf(template, "echo", ""); string(got.Params) != want {
					t.Errorf("%s: the server got\n%s, want\n%s", view.path, got.Params, want)
				}
			}
		})
	}
}

func TestResultsReachTheClientUntouched(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, view := range []struct{ path, tool string }{{"/mcp/a", "echo"}, {"/mcp", "a__echo"}} {
			t.Run(era.name+" at "+view.path, func(t *testing.T) {
				up := script(t, era.upstream, map[string]string{"tools/list": plainTools, "tools/call": strangeResult})
				w := open(t, servers("a", up.URL))
				got := rawCall(t, w, era.client, view.path, view.tool, `"arguments":{},`, `"a/b":1`)
				if string(got.Result) != strangeResult {
					t.Errorf("got\n%s, want\n%s", got.raw, strangeResult)
				}
				if want := `"q-\u00e9"`; era.client && !sameJSON(t, got.ID, []byte(want)) {
					t.Errorf("answered as %s, want %s", got.ID, want)
				}
			})
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	decode(t, a, &x)
	decode(t, b, &y)
	xs, _ := json.Marshal(x)
	ys, _ := json.Marshal(y)
	return bytes.Equal(xs, ys)
}

// TestErrorsOfServersPass checks that an error a server answers with is the
// client's to see: code, message and data.
func TestErrorsOfServersPass(t *testing.T) {
	t.Parallel()
	const failure = `{"code":-12345,"message":"no \u003c luck","data":{"n":12345678901234567890,"b":1,"a":2}}`
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			up := script(t, era.upstream, map[string]string{"tools/list": plainTools})
			up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, in.ID, failure)
			})
			w := open(t, servers("a", up.URL))
			got := rawCall(t, w, era.client, "/mcp/a", "echo", `"arguments":{},`, `"a/b":1`)
			if string(got.Error) != failure {
				t.Errorf("got %s, want %s", got.raw, failure)
			}
		})
	}
}

// TestOneServersListsPassWhole checks the view of one server: its lists are its
// own bytes.
func TestOneServersListsPassWhole(t *testing.T) {
	t.Parallel()
	lists := map[string]string{
		"tools/list":               `{"z":12345678901234567890,"tools":[{"x":1.0,"description":"\u0041 <b>","name":"echo","icons":[{"src":"https://example.org/i.png","theme":"dark","k":1}],"annotations":{"readOnlyHint":true,"odd":[]},"inputSchema":{"type":"object","properties":{"b":{},"a":{"const":12345678901234567890}}},"_meta":{"k/v":1}}],"nextCursor":"c\/1","resultType":"complete","ttlMs":5,"cacheScope":"private"}`,
		"resources/list":           `{"resources":[{"uri":"x://\u0061","name":"n","size":12345678901234567890,"icons":[],"q":1.0}],"resultType":"complete","ttlMs":5,"cacheScope":"private"}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"x://{ a }","name":"n","q":1.0}],"resultType":"complete","ttlMs":5,"cacheScope":"private"}`,
		"prompts/list":             `{"prompts":[{"name":"p","arguments":[{"name":"b","required":true,"q":1.0}],"q":[]}],"resultType":"complete","ttlMs":5,"cacheScope":"private"}`,
		"x/future":                 `{"deep":{"n":12345678901234567890}, "resultType":"complete"}`,
	}
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			up := script(t, era.upstream, lists)
			w := open(t, servers("a", up.URL))
			for method, want := range lists {
				params := `{"cursor":"a\/b","n":12345678901234567890}`
				var got message
				if era.client {
					got = w.modern(t, "/mcp/a", `{}`).ask(method, "", params)
				} else {
					got = w.dial(t, "/mcp/a", `{}`).ask(method, params)
				}
				if string(got.Result) != want {
					t.Errorf("%s: got\n%s, want\n%s", method, got.raw, want)
				}
				if in := up.last(t, method); !bytes.Contains(in.Params, []byte(`"cursor":"a\/b","n":12345678901234567890`)) {
					t.Errorf("%s: the server got %s", method, in.Params)
				}
			}
		})
	}
}
