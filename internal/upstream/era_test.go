package upstream_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A server's era must be found whatever it makes of a question it may not know.
func TestEraOnAStream(t *testing.T) {
	tests := []struct {
		name   string
		script func(i *instance)
		change func(*upstream.Options)
		want   string // the revision that is spoken
		starts int
	}{
		{name: "legacy, does not know the method", want: wire.V20251125, starts: 1, script: func(i *instance) {
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "legacy, wants initialize first", want: wire.V20251125, starts: 1, script: func(i *instance) {
			i.rope.refuse(i.rope.want(wire.MethodDiscover), -32602, "Invalid request parameters")
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "legacy, with the modern error", want: wire.V20251125, starts: 1, script: func(i *instance) {
			m := i.rope.want(wire.MethodDiscover)
			i.rope.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}}`, m.id)
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "modern, refuses the version and then names it", want: wire.V20260728, starts: 1, script: func(i *instance) {
			m := i.rope.want(wire.MethodDiscover)
			i.rope.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01","2026-07-28"],"requested":"2026-07-28"}}}`, m.id)
			i.rope.modern()
			i.rope.echo()
		}},
		{name: "legacy, refuses the version that it names again and again", want: wire.V20251125, starts: 1, script: func(i *instance) {
			for range 2 {
				m := i.rope.want(wire.MethodDiscover)
				i.rope.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`, m.id)
			}
			m := i.rope.want(wire.MethodInitialize)
			i.rope.answer(m, legacyHello)
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}},
		{name: "legacy, refuses the version and names nothing", want: wire.V20251125, starts: 1, script: func(i *instance) {
			m := i.rope.want(wire.MethodDiscover)
			i.rope.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":"2026-07-28"}}`, m.id)
			m = i.rope.want(wire.MethodInitialize)
			i.rope.answer(m, legacyHello)
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}},
		{name: "legacy, says nothing to the question", want: wire.V20251125, starts: 1, script: func(i *instance) {
			i.rope.want(wire.MethodDiscover)
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "legacy, answers with an error that names no request", want: wire.V20251125, starts: 1, script: func(i *instance) {
			i.rope.want(wire.MethodDiscover)
			i.rope.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`)
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "legacy, dies of the question", want: wire.V20251125, starts: 2, script: func(i *instance) {
			if m, _ := i.rope.next(); m.method != wire.MethodInitialize {
				i.end(nil)
				return
			} else {
				i.rope.answer(m, legacyHello)
			}
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}},
		{name: "legacy, closes its output at the question", want: wire.V20251125, starts: 2, script: func(i *instance) {
			if m, _ := i.rope.next(); m.method != wire.MethodInitialize {
				i.rope.hang()
				return
			} else {
				i.rope.answer(m, legacyHello)
			}
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}},
		{name: "legacy, says hello to the terminal first", want: wire.V20251125, starts: 1, script: func(i *instance) {
			i.rope.say("Server listening on stdio")
			i.rope.say("")
			i.rope.say("{\"level\":\"info\"}")
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "legacy of another revision", want: wire.V20241105, starts: 1, script: func(i *instance) {
			i.rope.refuse(i.rope.want(wire.MethodDiscover), -32601, "no")
			m := i.rope.want(wire.MethodInitialize)
			if got := wire.FindString([]byte(m.params), "protocolVersion"); got != wire.LatestLegacy {
				i.r.t.Errorf("initialize asks for %s", got)
			}
			i.rope.answer(m, "%s", strings.Replace(legacyHello, "2025-11-25", "2024-11-05", 1))
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}},
		{name: "modern", want: wire.V20260728, starts: 1, script: func(i *instance) {
			i.rope.modern()
			i.rope.echo()
		}},
		{name: "modern, starts slowly", want: wire.V20260728, starts: 1, script: func(i *instance) {
			time.Sleep(20 * time.Second) // in a bubble
			i.rope.serve(func(m message) {
				switch {
				case m.id == "":
				case m.method == wire.MethodDiscover:
					i.rope.answer(m, modernHello)
				case m.method == wire.MethodInitialize:
					i.rope.refuse(m, -32601, "this server speaks 2026-07-28")
				default:
					i.rope.answer(m, `{"structuredContent":%s}`, m.params)
				}
			})
		}},
		{name: "both, starts slowly", want: wire.V20251125, starts: 1, script: func(i *instance) {
			time.Sleep(20 * time.Second) // in a bubble
			i.rope.serve(func(m message) {
				switch {
				case m.id == "":
				case m.method == wire.MethodDiscover:
					i.rope.answer(m, modernHello)
				case m.method == wire.MethodInitialize:
					i.rope.answer(m, legacyHello)
				default:
					i.rope.answer(m, `{"structuredContent":%s}`, m.params)
				}
			})
		}},
		{name: "modern of a revision to come", want: wire.V20251125, starts: 1, script: func(i *instance) {
			i.rope.answer(i.rope.want(wire.MethodDiscover), `{"resultType":"complete","supportedVersions":["2099-01-01"],"capabilities":{}}`)
			i.rope.legacy()
			i.rope.echo()
		}},
		{name: "legacy by config", want: wire.V20250618, starts: 1, change: func(o *upstream.Options) { o.Conn.Protocol = wire.V20250618 }, script: func(i *instance) {
			m := i.rope.want(wire.MethodInitialize)
			if got := wire.FindString([]byte(m.params), "protocolVersion"); got != wire.V20250618 {
				i.r.t.Errorf("initialize asks for %s", got)
			}
			i.rope.answer(m, "%s", strings.Replace(legacyHello, "2025-11-25", "2025-06-18", 1))
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}},
		{name: "modern by config", want: wire.V20260728, starts: 1, change: func(o *upstream.Options) { o.Conn.Protocol = wire.V20260728 }, script: func(i *instance) {
			i.rope.modern()
			i.rope.echo()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				change := tt.change
				if change == nil {
					change = func(o *upstream.Options) { o.ConnectTimeout, o.CallTimeout = time.Minute, time.Minute }
				}
				r := play(t, tt.script, change)
				got := newClient("c").calls(t, r, "x")
				testkit.Has(t, "the result", got, `"name":"x"`)
				st := r.Status()
				if st.State != api.StateReady || st.Hello.Version != tt.want || r.starts != tt.starts {
					t.Errorf("%s, speaks %q after %d starts, want %q after %d", st.State, st.Hello.Version, r.starts, tt.want, tt.starts)
				}
				modern := wire.Modern(tt.want)
				if strings.Contains(got, wire.MetaVersion) != modern {
					t.Errorf("a server of %s got params %s", tt.want, got)
				}
			})
		})
	}
}

// A server over HTTP that refuses the first version is asked again with one that it
// names, in the headers too, and not greeted in the old way.
func TestVersionRefusedOverHTTP(t *testing.T) {
	for _, protocol := range []string{"auto", wire.V20260728} {
		s := &web{t: t, modern: true}
		s.handle = func(w http.ResponseWriter, _ *http.Request, m message) { answer(w, m, `{"ok":1}`) }
		refused := 0
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v := r.Header.Get(wire.HeaderVersion); v != wire.V20260728 {
				t.Errorf("asked with version %q", v)
			}
			if refused++; refused > 1 {
				s.ServeHTTP(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			at, _ := wire.Find(body, "id")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}`, at.Of(body))
		}), func(o *upstream.Options, _ *driver.Endpoint) { o.Conn.Protocol = protocol })
		if got := newClient("c").calls(t, r, "x"); got != `{"ok":1}` {
			t.Errorf("got %s", got)
		}
		if st := r.Status(); st.Hello.Version != wire.V20260728 {
			t.Errorf("speaks %q", st.Hello.Version)
		}
	}
}

// A server that is too slow for the question for its era, and too new for a greeting in
// the old way, is asked once more.
func TestSlowModernServerOverHTTP(t *testing.T) {
	t.Parallel()
	s := &web{t: t, modern: true}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m message) { answer(w, m, `{"ok":1}`) }
	greeted := make(chan struct{})
	r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case bytes.Contains(body, []byte(`"initialize"`)):
			close(greeted)
			http.Error(w, "Missing MCP-Protocol-Version header", http.StatusBadRequest)
			return
		case bytes.Contains(body, []byte(`"server/discover"`)):
			<-greeted
		}
		s.ServeHTTP(w, r)
	}))
	if got := newClient("c").calls(t, r, "x"); got != `{"ok":1}` {
		t.Errorf("got %s", got)
	}
}

// A server that refuses who asks says so, and not what it makes of a greeting in the
// old way.
func TestProbeRefusedOverHTTP(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(wire.HeaderVersion) != "" {
				http.Error(w, "who are you?", status)
				return
			}
			http.Error(w, "Missing MCP-Protocol-Version header", http.StatusBadRequest)
		}))
		got := newClient("c").calls(t, r, "x")
		testkit.Has(t, "the result", got, "refused: ", fmt.Sprintf("HTTP %d", status), "who are you?")
	}
}

func TestHandshakeThatFails(t *testing.T) {
	tests := []struct {
		name   string
		script func(i *instance)
		change func(*upstream.Options)
		want   []string
	}{
		{name: "refused", want: []string{"infrastructure: ", `server "srv"`, "license expired"}, script: func(i *instance) {
			i.rope.refuse(i.rope.want(wire.MethodDiscover), -32601, "no")
			i.rope.refuse(i.rope.want(wire.MethodInitialize), -32000, "license expired")
			i.rope.serve(func(message) {})
		}},
		{name: "a revision nobody knows", want: []string{"infrastructure: ", "1999-01-01"}, script: func(i *instance) {
			i.rope.refuse(i.rope.want(wire.MethodDiscover), -32601, "no")
			i.rope.answer(i.rope.want(wire.MethodInitialize), `{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{}}`)
			i.rope.serve(func(message) {})
		}},
		{name: "an answer that is none", want: []string{"infrastructure: "}, script: func(i *instance) {
			i.rope.refuse(i.rope.want(wire.MethodDiscover), -32601, "no")
			i.rope.answer(i.rope.want(wire.MethodInitialize), `"hello"`)
			i.rope.serve(func(message) {})
		}},
		{name: "never answered", want: []string{"timeout: ", "did not start within"}, script: func(i *instance) {
			i.rope.serve(func(message) {})
		}},
		{name: "only garbage", want: []string{"timeout: ", "did not start within"}, script: func(i *instance) {
			i.rope.serve(func(message) { i.rope.say("<html>502 Bad Gateway</html>") })
		}},
		{name: "dies always", want: []string{"infrastructure: ", "no such module"}, script: func(i *instance) {
			i.rope.next()
			i.end(errText("exit status 1: no such module"))
		}},
		{name: "modern by config, is not", want: []string{"infrastructure: ", "2026-07-28", "servers.srv.protocol"},
			change: func(o *upstream.Options) { o.Conn.Protocol = wire.V20260728 }, script: func(i *instance) {
				i.rope.legacy()
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				change := tt.change
				if change == nil {
					change = func(*upstream.Options) {}
				}
				r := play(t, tt.script, change)
				got := newClient("c").calls(t, r, "x")
				testkit.Has(t, "the error", got, tt.want...)
				if strings.Count(got, `server "srv"`) != 1 {
					t.Errorf("the error names its server %d times: %s", strings.Count(got, `server "srv"`), got)
				}
				st := r.Status()
				if st.State != api.StateFailed || st.Reason == "" || st.Instance {
					t.Errorf("status %+v", st)
				}
				if h := r.history(); strings.Count(h, "start") != strings.Count(h, "stop") || strings.Count(h, "stop") != strings.Count(h, "drop") {
					t.Errorf("instances or handles are left: %s", h)
				}
			})
		})
	}
}

// What Tine may claim for its clients is what the server is told.
func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 1)
		r := play(t, func(i *instance) {
			i.rope.refuse(i.rope.want(wire.MethodDiscover), -32601, "no")
			m := i.rope.want(wire.MethodInitialize)
			got <- m.params
			i.rope.answer(m, legacyHello)
			i.rope.want(wire.NoteInitialized)
			i.rope.echo()
		}, func(o *upstream.Options) { o.Conn.Claims = []byte(`{"elicitation":{"url":{}}}`) })
		newClient("c").calls(t, r, "x")
		params := <-got
		testkit.Has(t, "initialize", params, `"capabilities":{"elicitation":{"url":{}}}`, `"clientInfo":{`, `"name":"tine"`)
	})
	for _, tt := range []struct {
		client  string
		allowed []string
		want    string
	}{
		{"", []string{"sampling", "elicitation"}, `{"sampling":{},"elicitation":{}}`},
		{"", nil, `{}`},
		{`{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}},"x":1}`, []string{"sampling", "elicitation"}, `{"elicitation":{"form":{},"url":{}}}`},
		{`{}`, []string{"sampling"}, `{}`},
		{`{"sampling":{"tools":{}},"roots":{}}`, []string{"roots", "sampling"}, `{"sampling":{"tools":{}},"roots":{}}`},
	} {
		var client []byte
		if tt.client != "" {
			client = []byte(tt.client)
		}
		if got := string(upstream.Claims(client, tt.allowed)); got != tt.want {
			t.Errorf("Claims(%q, %q) = %s, want %s", tt.client, tt.allowed, got, tt.want)
		}
	}
}

type errText string

func (e errText) Error() string { return string(e) }
