package upstream_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

const headed = `{"tools":[{"name":"sql","inputSchema":{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}}]}`

// A server that gets no headers can't hold them against the arguments, so it is
// done for it.
func TestHeadersAreCheckedForServersThatGetNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := 0
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.serve(func(m message) {
				switch m.method {
				case wire.MethodListTools:
					i.rope.answer(m, "%s", headed)
				case wire.MethodCallTool:
					called++
					i.rope.answer(m, `{"ok":1}`)
				}
			})
		})
		c := newClient("c").modern()
		c.does(t, r, wire.MethodListTools, `{}`)
		for _, tt := range []struct {
			name   string
			header http.Header
			args   string
			ok     bool
		}{
			{"equal", http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-N": {"42"}}, `{"region":"eu","n":42}`, true},
			{"equal in base64", http.Header{"Mcp-Param-Region": {"=?base64?5LiW55WM?="}}, `{"region":"世界"}`, true},
			{"equal as numbers", http.Header{"Mcp-Param-N": {"42.0"}}, `{"n":42}`, true},
			{"none for none", http.Header{}, `{}`, true},
			{"none for null", http.Header{}, `{"region":null}`, true},
			{"one that no schema knows", http.Header{"Mcp-Param-Other": {"x"}}, `{}`, true},
			{"another value", http.Header{"Mcp-Param-Region": {"us"}}, `{"region":"eu"}`, false},
			{"another number", http.Header{"Mcp-Param-N": {"43"}}, `{"n":42}`, false},
			{"missing", http.Header{}, `{"region":"eu"}`, false},
			{"for nothing", http.Header{"Mcp-Param-Region": {"us"}}, `{}`, false},
			{"twice", http.Header{"Mcp-Param-Region": {"eu", "us"}}, `{"region":"eu"}`, false},
			{"broken base64", http.Header{"Mcp-Param-Region": {"=?base64?%?="}}, `{"region":"%"}`, false},
		} {
			before := called
			req := c.request(t, wire.MethodCallTool, `{"name":"sql","arguments":`+tt.args+`}`)
			req.Header = tt.header
			got := outcome(r.Call(t.Context(), req))
			if tt.ok && got != `{"ok":1}` {
				t.Errorf("%s: %s", tt.name, got)
			}
			if !tt.ok && (!strings.HasPrefix(got, "error:") || !strings.Contains(got, "-32020") || called != before) {
				t.Errorf("%s: %s, and the server was called %d times", tt.name, got, called-before)
			}
		}
		// Who sends no headers at all is not held to them.
		if got := newClient("old").does(t, r, wire.MethodCallTool, `{"name":"sql","arguments":{"region":"eu"}}`); got != `{"ok":1}` {
			t.Errorf("a client without headers got %s", got)
		}
	})
}

// invalidMarks are schemas whose marks the protocol has clients refuse, and words of
// the reason.
var invalidMarks = map[string]struct{ schema, why string }{
	"empty":             {`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, "a: "},
	"space":             {`{"properties":{"a":{"type":"string","x-mcp-header":"My Region"}}}`, "My Region"},
	"colon":             {`{"properties":{"a":{"type":"string","x-mcp-header":"a:b"}}}`, "a:b"},
	"line":              {`{"properties":{"a":{"type":"string","x-mcp-header":"a\\r\\nX-Evil: 1"}}}`, "X-Evil"},
	"not ASCII":         {`{"properties":{"a":{"type":"string","x-mcp-header":"é"}}}`, "é"},
	"no text":           {`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`, "7"},
	"object":            {`{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`, "object"},
	"array":             {`{"properties":{"a":{"x-mcp-header":"A","type":"array"}}}`, "array"},
	"null":              {`{"properties":{"a":{"type":"null","x-mcp-header":"A"}}}`, "null"},
	"number":            {`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "number"},
	"no type":           {`{"properties":{"a":{"x-mcp-header":"A"}}}`, "type"},
	"several types":     {`{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`, "null"},
	"twice":             {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"A"}}}`, "b: "},
	"twice, other case": {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"o":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"a"}}}}}`, "o.b: "},
	"beside a good one": {`{"properties":{"a":{"type":"string","x-mcp-header":"Good"},"b":{"type":"string","x-mcp-header":"b d"}}}`, "b d"},
	"the whole":         {`{"type":"string","x-mcp-header":"A"}`, "the whole"},
	"items":             {`{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`, "items"},
	"a choice":          {`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"string","x-mcp-header":"A"}]}}}`, "anyOf"},
	"a condition":       {`{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, "if"},
	"a definition":      {`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}},"properties":{"a":{"$ref":"#/$defs/d"}}}`, "$defs"},
	"too deep":          {strings.Repeat(`{"type":"object","properties":{"a":`, 40) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`}}`, 40), "deep"},
}

// validMarks are schemas that a client takes.
var validMarks = map[string]string{
	"plain":             `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"integer","x-mcp-header":"B"},"c":{"type":"boolean","x-mcp-header":"C!#$"}}}`,
	"nested":            `{"properties":{"a":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}}`,
	"a parameter's own": `{"properties":{"x-mcp-header":{"type":"object"},"a":{"type":"string","default":{"x-mcp-header":""},"enum":[{"x-mcp-header":""}]}}}`,
	"only spoken of":    `{"description":"x-mcp-header","properties":true}`,
}

// Over HTTP, in the era that has them, a tool whose marks are invalid is hidden: no
// list has it, no call reaches it, and the reason is logged once.
func TestToolsWithInvalidHeaders(t *testing.T) {
	list := []string{`{"name":"good","inputSchema":{"type":"object"}}`}
	for name, m := range invalidMarks {
		list = append(list, fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, "bad "+name, m.schema))
	}
	for name, schema := range validMarks {
		list = append(list, fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, "good "+name, schema))
	}
	var mu sync.Mutex
	called := map[string]int{}
	s := &web{t: t, modern: true}
	s.handle = func(w http.ResponseWriter, r *http.Request, m message) {
		if m.method == wire.MethodListTools {
			answer(w, m, "%s", `{"resultType":"complete","tools":[`+strings.Join(list, ", ")+`],"ttlMs":7}`)
			return
		}
		mu.Lock()
		called[wire.FindString([]byte(m.params), "name")]++
		mu.Unlock()
		if r.Header.Get("X-Evil") != "" {
			t.Errorf("headers %v", r.Header)
		}
		answer(w, m, `{"resultType":"complete"}`)
	}
	told := map[string][]string{}
	r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) {
		o.Conn.Hidden = func(tool, why string) { told[tool] = append(told[tool], why) }
	})
	c := newClient("c")
	got := c.does(t, r, wire.MethodListTools, `{}`)
	if !json.Valid([]byte(got)) || !strings.HasSuffix(got, `],"ttlMs":7}`) || !strings.Contains(got, `{"name":"good","inputSchema"`) {
		t.Errorf("listed %s", got)
	}
	c.does(t, r, wire.MethodListTools, `{}`)
	for name, m := range invalidMarks {
		tool := "bad " + name
		if strings.Contains(got, tool) {
			t.Errorf("%s is listed", tool)
		}
		for _, client := range []*client{c, newClient("m").modern()} {
			if got := client.does(t, r, wire.MethodCallTool, `{"name":"`+tool+`"}`); !strings.HasPrefix(got, "error:") || !strings.Contains(got, "-32602") || !strings.Contains(got, "Unknown tool: "+tool) {
				t.Errorf("%s answers %s", tool, got)
			}
		}
		if why := told[tool]; len(why) != 1 || !strings.Contains(why[0], m.why) {
			t.Errorf("%s: told %q", tool, why)
		}
	}
	if len(told) != len(invalidMarks) {
		t.Errorf("told of %d tools", len(told))
	}
	for name := range validMarks {
		tool := "good " + name
		if !strings.Contains(got, tool) {
			t.Errorf("%s is not listed", tool)
		}
		if got := c.does(t, r, wire.MethodCallTool, `{"name":"`+tool+`"}`); got != `{"resultType":"complete"}` {
			t.Errorf("%s answers %s", tool, got)
		}
	}
	for tool := range called {
		if strings.HasPrefix(tool, "bad") {
			t.Errorf("%s was called", tool)
		}
	}
	// What is mended is there again, also where no mark is left.
	mu.Lock()
	list = []string{`{"name":"bad empty","inputSchema":{"type":"object"}}`}
	mu.Unlock()
	if got := c.does(t, r, wire.MethodListTools, `{}`); !strings.Contains(got, "bad empty") {
		t.Errorf("listed %s", got)
	}
	if got := c.does(t, r, wire.MethodCallTool, `{"name":"bad empty"}`); got != `{"resultType":"complete"}` {
		t.Errorf("mended, it answers %s", got)
	}
}

// A call before any list reaches no such tool either: what is not in the list that is
// kept is looked for first, once.
func TestInvalidHeadersBeforeAList(t *testing.T) {
	for _, kept := range []bool{false, true} {
		var lists, calls atomic.Int32
		s := &web{t: t, modern: true}
		s.handle = func(w http.ResponseWriter, _ *http.Request, m message) {
			if m.method == wire.MethodListTools {
				lists.Add(1)
				answer(w, m, `{"resultType":"complete","tools":[{"name":"good"},{"name":"bad","inputSchema":{"x-mcp-header":""}}]}`)
				return
			}
			calls.Add(1)
			answer(w, m, `{"resultType":"complete"}`)
		}
		r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) {
			o.Conn.Listed = func(_, tool string) bool { return kept && tool == "good" }
		})
		c := newClient("c")
		for range 3 {
			c.does(t, r, wire.MethodCallTool, `{"name":"good"}`)
		}
		if n := lists.Load(); kept && n != 0 || !kept && n != 1 {
			t.Errorf("kept %v: listed %d times before three calls of a good tool", kept, n)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got := c.does(t, r, wire.MethodCallTool, `{"name":"bad"}`); !strings.Contains(got, "Unknown tool: bad") {
					t.Errorf("kept %v: got %s", kept, got)
				}
			})
		}
		wg.Wait()
		if l, n := lists.Load(), calls.Load(); l != 1 || n != 3 {
			t.Errorf("kept %v: listed %d times, called %d times", kept, l, n)
		}
	}
}

// Where no headers are sent, marks mean nothing: on streams, and to servers of the
// other era. They must not put anything into a request either.
func TestInvalidHeadersWhereNoneAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.modern()
			i.rope.serve(func(m message) {
				if m.method == wire.MethodListTools {
					i.rope.answer(m, `{"resultType":"complete","tools":[{"name":"sql","inputSchema":{"x-mcp-header":"a b"}}]}`)
					return
				}
				i.rope.answer(m, `{"ok":1}`)
			})
		})
		c := newClient("c")
		if got := c.does(t, r, wire.MethodListTools, `{}`); !strings.Contains(got, "sql") {
			t.Errorf("listed %s", got)
		}
		if got := c.does(t, r, wire.MethodCallTool, `{"name":"sql"}`); got != `{"ok":1}` {
			t.Errorf("got %s", got)
		}
	})
	s := &web{t: t, session: "s"}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m message) {
		if m.method == wire.MethodListTools {
			answer(w, m, `{"tools":[{"name":"sql","inputSchema":{"x-mcp-header":"a b"}}]}`)
			return
		}
		answer(w, m, `{"ok":1}`)
	}
	r, _ := reach(t, s)
	c := newClient("c")
	if got := c.does(t, r, wire.MethodListTools, `{}`); !strings.Contains(got, "sql") {
		t.Errorf("listed %s", got)
	}
	if got := c.does(t, r, wire.MethodCallTool, `{"name":"sql"}`); got != `{"ok":1}` {
		t.Errorf("got %s", got)
	}
}

// A server that refuses a call for want of headers is not sent it again where the tool
// turns out to be one of these.
func TestInvalidHeadersFoundLate(t *testing.T) {
	var calls atomic.Int32
	s := &web{t: t, modern: true}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m message) {
		if m.method == wire.MethodListTools {
			answer(w, m, `{"resultType":"complete","tools":[{"name":"sql","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":""}}}}]}`)
			return
		}
		calls.Add(1)
		fail(w, http.StatusBadRequest, m, wire.CodeHeaderMismatch, "a header is missing")
	}
	r, _ := reach(t, s)
	for range 2 {
		if got := newClient("c").does(t, r, wire.MethodCallTool, `{"name":"sql","arguments":{"a":"1"}}`); !strings.HasPrefix(got, "error:") {
			t.Errorf("got %s", got)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("called %d times", n)
	}
}
