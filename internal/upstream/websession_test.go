package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A server that was restarted knows the session no more. Each of these is how
// one in the wild says so.
func TestHTTPServerForgetsTheSession(t *testing.T) {
	for name, lost := range map[string]func(w http.ResponseWriter){
		"404 and no more": nil,
		"404 with text":   func(w http.ResponseWriter) { http.Error(w, "session not found", http.StatusNotFound) },
		"404 with an error that names no request": func(w http.ResponseWriter) {
			fail(w, http.StatusNotFound, message{id: "null"}, -32001, "Session not found")
		},
		"404 with an error without an id": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}}`)
		},
		"404 with an error under a made-up id": func(w http.ResponseWriter) {
			fail(w, http.StatusNotFound, message{id: `"server-error"`}, -32600, "Not Found: Invalid or expired session ID")
		},
		"400 with an error about the session": func(w http.ResponseWriter) {
			fail(w, http.StatusBadRequest, message{id: "null"}, -32000, "Bad Request: No valid session ID provided")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var done sync.Map // what was done, by the argument that came with it
			s := &web{t: t, session: "x", lost: lost, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
				n, _ := done.LoadOrStore(at(m.params, "name"), new(atomic.Int32))
				n.(*atomic.Int32).Add(1)
				answer(w, m, `{"in":"%s"}`, "done")
			}}
			r, _ := reach(t, s)
			w := &watcher{}
			defer r.Watch(w)()
			c := newClient("c")
			c.calls(t, r, "before")
			if n := s.times(wire.MethodInitialize); n != 1 {
				t.Fatalf("%d handshakes at first", n)
			}
			s.forget()
			var wg sync.WaitGroup
			for n := range 20 {
				wg.Go(func() {
					if got := newClient(fmt.Sprint(n)).calls(t, r, fmt.Sprint("after-", n)); got != `{"in":"done"}` {
						t.Errorf("call %d got %s", n, got)
					}
				})
			}
			wg.Wait()
			if n := s.times(wire.MethodInitialize); n != 2 {
				t.Errorf("%d handshakes in all, want 2", n)
			}
			if n := s.times(wire.NoteInitialized); n != 2 {
				t.Errorf("%d times initialized, want 2", n)
			}
			for n := range 20 {
				if v, ok := done.Load(fmt.Sprintf(`"after-%d"`, n)); !ok || v.(*atomic.Int32).Load() != 1 {
					t.Errorf("call %d was not done once", n)
				}
			}
			if hello := r.Status().Hello; hello.Version != wire.V20251125 || !hello.Can("tools") {
				t.Errorf("hello is %+v", hello)
			}
			if got := strings.Join(w.heard(), " "); !strings.Contains(got, wire.NoteToolsChanged) {
				t.Errorf("watchers heard %q", got)
			}
		})
	}
	t.Run("and never takes us back", func(t *testing.T) {
		var gone atomic.Bool
		s := &web{t: t, session: "x", handle: echoWeb}
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if gone.Load() && r.Method == http.MethodPost {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			s.ServeHTTP(w, r)
		}))
		c := newClient("c")
		c.calls(t, r, "x")
		gone.Store(true)
		got := c.calls(t, r, "x")
		testkit.Has(t, "the error", got, "infrastructure: ", "404")
		gone.Store(false)
		s.forget()
		testkit.Has(t, "the call when it is back", c.calls(t, r, "x"), `{"got":`)
	})
	t.Run("a 400 about the arguments is the server's answer", func(t *testing.T) {
		s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			fail(w, http.StatusBadRequest, m, -32602, "no such tool")
		}}
		r, _ := reach(t, s)
		if got := newClient("c").calls(t, r, "x"); got != `error:{"code":-32602,"message":"no such tool"}` {
			t.Errorf("got %s", got)
		}
		if n := s.times(wire.MethodInitialize); n != 1 {
			t.Errorf("%d handshakes", n)
		}
	})
	t.Run("subscriptions and the stream come with the new one", func(t *testing.T) {
		subscribed := make(chan string, 10)
		streams := make(chan string, 10)
		s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, r *http.Request, m message) {
			if m.method == wire.MethodSubscribe {
				subscribed <- r.Header.Get("Mcp-Session-Id") + at(m.params, "uri")
			}
			answer(w, m, `{}`)
		}}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			stream(w)
			streams <- r.Header.Get("Mcp-Session-Id")
			<-r.Context().Done()
		}
		r, _ := reach(t, s)
		defer r.Watch(&watcher{})()
		if res, err := r.Subscribe(t.Context(), "a:1"); outcome(res, err) != `{}` {
			t.Fatalf("Subscribe got %s", outcome(res, err))
		}
		if got := testkit.Within(t, "a subscription", subscribed); got != `session-1"a:1"` {
			t.Errorf("subscribed %s", got)
		}
		if got := testkit.Within(t, "a stream", streams); got != "session-1" {
			t.Errorf("a stream of %s", got)
		}
		s.forget()
		newClient("c").calls(t, r, "x")
		if got := testkit.Within(t, "a subscription", subscribed); got != `session-2"a:1"` {
			t.Errorf("subscribed %s", got)
		}
		if got := testkit.Within(t, "a stream", streams); got != "session-2" {
			t.Errorf("a stream of %s", got)
		}
	})
}

func TestHTTPStreamIsResumed(t *testing.T) {
	t.Run("where the server numbers its events", func(t *testing.T) {
		var call message
		var gets []string
		s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			call = m
			send := stream(w)
			send("id: 1-0\nretry: 1\ndata:\n\n")
			send("id: 1-1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", at(m.params, "_meta", "progressToken"))
		}}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Session-Id") != "session-1" || r.Header.Get("Mcp-Protocol-Version") != wire.V20251125 {
				t.Errorf("GET came with %v", r.Header)
			}
			gets = append(gets, r.Header.Get("Last-Event-ID"))
			send := stream(w)
			if len(gets) == 1 {
				send("id: 1-2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":2}}\n\n", at(call.params, "_meta", "progressToken"))
				return
			}
			send("id: 1-3\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"ok\":1}}\n\n", call.id)
		}
		r, _ := reach(t, s)
		c := newClient("c")
		if got := c.does(t, r, wire.MethodCallTool, `{"name":"x","_meta":{"progressToken":5}}`); got != `{"ok":1}` {
			t.Errorf("got %s", got)
		}
		if got := fmt.Sprint(gets); got != "[1-1 1-2]" {
			t.Errorf("came back for %s", got)
		}
		if notes, _ := c.got(); len(notes) != 2 {
			t.Errorf("heard %q", notes)
		}
		if n := s.times(wire.MethodCallTool); n != 1 {
			t.Errorf("called %d times", n)
		}
	})
	t.Run("not where it refuses", func(t *testing.T) {
		s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			stream(w)("id: 1\nretry: 1\ndata:\n\n")
		}}
		r, _ := reach(t, s)
		testkit.Has(t, "the outcome", newClient("c").calls(t, r, "x"), "lost: ", "405")
	})
	t.Run("not by calling again where the server was restarted", func(t *testing.T) {
		s := &web{t: t, session: "x"}
		s.handle = func(w http.ResponseWriter, _ *http.Request, m message) {
			s.forget()
			stream(w)("id: 1\nretry: 1\ndata:\n\n")
		}
		s.get = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
		r, _ := reach(t, s)
		testkit.Has(t, "the outcome", newClient("c").calls(t, r, "x"), "lost: ", "404")
		if n := s.times(wire.MethodCallTool); n != 1 {
			t.Errorf("called %d times", n)
		}
	})
	t.Run("not in the modern era", func(t *testing.T) {
		s := &web{t: t, modern: true, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			stream(w)("id: 1\nretry: 1\ndata:\n\n")
		}}
		s.get = func(http.ResponseWriter, *http.Request) { t.Error("a modern server got a GET") }
		r, _ := reach(t, s)
		testkit.Has(t, "the outcome", newClient("c").calls(t, r, "x"), "lost: ", "before the answer")
	})
}

// Arguments that a schema marks are repeated in headers, which a legacy client
// knows nothing of.
func TestHTTPParamHeaders(t *testing.T) {
	const tools = `{"resultType":"complete","tools":[{"name":"plain","inputSchema":{"type":"object"}},` +
		`{"name":"sql","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
		`"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"on":{"type":"boolean","x-mcp-header":"On"},"query":{"type":"string"}}}}]%s}`
	var calls []http.Header
	s := &web{t: t, modern: true}
	s.handle = func(w http.ResponseWriter, r *http.Request, m message) {
		switch m.method {
		case wire.MethodListTools:
			if at(m.params, "cursor") == "" {
				answer(w, m, `{"resultType":"complete","tools":[],"nextCursor":"p2"}`)
				return
			}
			answer(w, m, tools, "")
		case wire.MethodCallTool:
			calls = append(calls, r.Header.Clone())
			args := at(m.params, "arguments")
			for header, path := range map[string][]string{"Mcp-Param-Region": {"region"}, "Mcp-Param-N": {"deep", "n"}, "Mcp-Param-On": {"on"}} {
				got, _ := wire.DecodeHeader(r.Header.Get(header))
				want := at(args, path...)
				if s, ok := wire.Unquote([]byte(want)); ok {
					want = s
				}
				if want == "null" {
					want = ""
				}
				if at(m.params, "name") == `"sql"` && got != want {
					fail(w, http.StatusBadRequest, m, wire.CodeHeaderMismatch, fmt.Sprintf("%s is %q, the argument is %q", header, got, want))
					return
				}
			}
			answer(w, m, `{"resultType":"complete","content":[]}`)
		}
	}
	r, _ := reach(t, s)
	c := newClient("c")
	if got := c.does(t, r, wire.MethodCallTool, `{"name":"sql","arguments":{"region":"Hello, 世界","deep":{"n":-7},"on":true,"query":"x"}}`); got != `{"resultType":"complete","content":[]}` {
		t.Errorf("got %s", got)
	}
	if len(calls) != 2 || s.times(wire.MethodListTools) != 2 {
		t.Errorf("%d calls and %d lists to learn the headers", len(calls), s.times(wire.MethodListTools))
	}
	if got := calls[1].Get("Mcp-Param-Region"); got != "=?base64?SGVsbG8sIOS4lueVjA==?=" {
		t.Errorf("Mcp-Param-Region is %q", got)
	}
	// Once learnt, they are sent at once; what is null or not there is left out.
	for _, args := range []string{`{"region":"us-west1"}`, `{"region":null,"on":false}`, `{}`, `{"deep":{"n":42}}`} {
		calls = nil
		if got := c.does(t, r, wire.MethodCallTool, `{"name":"sql","arguments":`+args+`}`); got != `{"resultType":"complete","content":[]}` {
			t.Errorf("%s got %s", args, got)
		}
		if len(calls) != 1 {
			t.Errorf("%s took %d calls", args, len(calls))
		}
	}
	// A modern client has sent its own, and a wrong one is its own mistake.
	m := newClient("m").modern()
	req := m.request(t, wire.MethodCallTool, `{"name":"sql","arguments":{"region":"a"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`)
	req.Header = http.Header{"Mcp-Param-Region": {"a"}}
	if got := outcome(r.Call(t.Context(), req)); got != `{"resultType":"complete","content":[]}` {
		t.Errorf("with its own header: %s", got)
	}
	calls = nil
	req.Header = http.Header{"Mcp-Param-Region": {"b"}}
	testkit.Has(t, "a wrong header", outcome(r.Call(t.Context(), req)), "error:", "-32020")
	if len(calls) != 1 {
		t.Errorf("a modern client's mistake was tried %d times", len(calls))
	}
}

func TestHTTPProtocolByConfig(t *testing.T) {
	for _, modern := range []bool{true, false} {
		s := &web{t: t, modern: modern, handle: echoWeb}
		r, _ := reach(t, s, func(o *upstream.Options, _ *endpoint) {
			o.Conn.Protocol = map[bool]string{true: wire.V20260728, false: wire.V20251125}[modern]
		})
		testkit.Has(t, fmt.Sprint("modern ", modern), newClient("c").calls(t, r, "x"), `{"got":`)
		if n, m := s.times(wire.MethodDiscover), s.times(wire.MethodInitialize); modern && m > 0 || !modern && n > 0 {
			t.Errorf("modern %v: %d discover, %d initialize", modern, n, m)
		}
	}
}
