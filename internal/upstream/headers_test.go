package upstream_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

// An annotation that is no header name must neither break the call nor put
// anything else into the request.
func TestAnnotationsThatAreNoHeaders(t *testing.T) {
	for _, name := range []string{`bad name`, `a:b`, `a\r\nX-Evil: 1`, `é`, ``} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			s := &web{t: t, modern: true}
			s.handle = func(w http.ResponseWriter, r *http.Request, m message) {
				if m.method == wire.MethodListTools {
					answer(w, m, `{"resultType":"complete","tools":[{"name":"sql","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"%s"},"b":{"type":"string","x-mcp-header":"Good"}}}}]}`, name)
					return
				}
				calls.Add(1)
				if r.Header.Get("X-Evil") != "" {
					t.Errorf("headers %v", r.Header)
				}
				if r.Header.Get("Mcp-Param-Good") != "2" {
					fail(w, http.StatusBadRequest, m, wire.CodeHeaderMismatch, "Mcp-Param-Good is missing")
					return
				}
				answer(w, m, `{"resultType":"complete"}`)
			}
			r, _ := reach(t, s)
			if got := newClient("c").does(t, r, wire.MethodCallTool, `{"name":"sql","arguments":{"a":"1","b":"2"}}`); got != `{"resultType":"complete"}` {
				t.Errorf("got %s after %d calls", got, calls.Load())
			}
		})
	}
}
