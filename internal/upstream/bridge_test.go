package upstream_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// modernServer is one of the stateless era; it holds every request to what the
// revision demands.
func modernServer(t *testing.T, handle func(i *instance, m message)) func(*instance) {
	return func(i *instance) {
		seen := map[string]bool{}
		i.rope.serve(func(m message) {
			if m.id == "" {
				return
			}
			if m.method == "" {
				t.Errorf("a modern server got the answer %s", m.raw)
				return
			}
			if seen[m.id] {
				t.Errorf("id %s was used twice", m.id)
			}
			seen[m.id] = true
			if v := at(m.params, "_meta", wire.MetaVersion); v != `"2026-07-28"` {
				t.Errorf("%s without its version: %s", m.method, m.params)
			}
			if caps := at(m.params, "_meta", wire.MetaClientCaps); !strings.HasPrefix(caps, "{") {
				t.Errorf("%s without the client's capabilities: %s", m.method, m.params)
			}
			if !json.Valid([]byte(m.params)) {
				t.Errorf("%s with broken params: %s", m.method, m.params)
			}
			if m.method == wire.MethodDiscover {
				i.rope.answer(m, modernHello)
				return
			}
			handle(i, m)
		})
	}
}

// A client of the handshake era is asked the old way for what a modern server
// wants to know.
func TestLegacyClientOnAModernServer(t *testing.T) {
	const asks = `{"resultType":"input_required","inputRequests":{` +
		`"who":{"method":"elicitation/create","params":{"message":"name?","big":12345678901234567890}},` +
		`"why":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}},"requestState":"\u00e9 opaque/12345678901234567890"}`
	t.Run("asked, answered, sent again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var rounds []message
			r := play(t, modernServer(t, func(i *instance, m message) {
				mu.Lock()
				defer mu.Unlock()
				rounds = append(rounds, m)
				if len(rounds) == 1 {
					i.rope.answer(m, "%s", asks)
					return
				}
				i.rope.answer(m, `{"resultType":"complete","content":[],"n":12345678901234567890}`)
			}))
			c := newClient("c")
			c.Info, c.Caps = []byte(`{"name":"me","version":"9"}`), []byte(`{"elicitation":{"url":{}},"sampling":{},"roots":{}}`)
			c.ask = func(_ context.Context, method, params string) upstream.Reply {
				if method == wire.MethodElicit {
					testkit.Has(t, "the question", params, "12345678901234567890")
					return upstream.Reply{Result: []byte(`{"action":"accept","content":{"name":"x","n":12345678901234567890}}`)}
				}
				return upstream.Reply{Result: []byte(`{"role":"assistant","content":{"type":"text","text":"because"},"model":"m"}`)}
			}
			req := c.request(t, wire.MethodCallTool, `{"name":"srv__ask","arguments":{"k":12345678901234567890},"_meta":{"progressToken":"mine","vendor":1}}`)
			req.Edits = []wire.Edit{{At: req.Params.Target, With: wire.Quote("ask")}}
			if got := outcome(r.Call(t.Context(), req)); got != `{"resultType":"complete","content":[],"n":12345678901234567890}` {
				t.Errorf("result %s", got)
			}
			if len(rounds) != 2 {
				t.Fatalf("the server was called %d times", len(rounds))
			}
			for n, m := range rounds {
				for path, want := range map[string]string{
					"name": `"ask"`, "arguments": `{"k":12345678901234567890}`,
				} {
					if got := at(m.params, path); got != want {
						t.Errorf("round %d: %s is %s, want %s", n+1, path, got, want)
					}
				}
				if got := at(m.params, "_meta", "vendor"); got != "1" {
					t.Errorf("round %d: the client's _meta is lost: %s", n+1, m.params)
				}
				if got := at(m.params, "_meta", wire.MetaClientInfo); got != `{"name":"me","version":"9"}` {
					t.Errorf("round %d: client info %s", n+1, got)
				}
				if got := at(m.params, "_meta", wire.MetaClientCaps); got != `{"elicitation":{"url":{}},"sampling":{}}` {
					t.Errorf("round %d: capabilities %s", n+1, got)
				}
				if got := at(m.params, "_meta", "progressToken"); got != m.id {
					t.Errorf("round %d: token %s of call %s", n+1, got, m.id)
				}
			}
			if got := at(rounds[0].params, "inputResponses") + at(rounds[0].params, "requestState"); got != "" {
				t.Errorf("the first round has %s", got)
			}
			if got, want := at(rounds[1].params, "requestState"), `"\u00e9 opaque/12345678901234567890"`; got != want {
				t.Errorf("the state came back as %s, want %s", got, want)
			}
			if got, want := at(rounds[1].params, "inputResponses", "who"), `{"action":"accept","content":{"name":"x","n":12345678901234567890}}`; got != want {
				t.Errorf("answer %s, want %s", got, want)
			}
			testkit.Has(t, "the other answer", at(rounds[1].params, "inputResponses", "why"), "because")
		})
	})
	t.Run("progress of each round reaches the client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			round := 0
			r := play(t, modernServer(t, func(i *instance, m message) {
				round++
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, at(m.params, "_meta", "progressToken"), round)
				if round == 1 {
					i.rope.answer(m, "%s", asks)
					return
				}
				i.rope.answer(m, `{"resultType":"complete"}`)
			}))
			c := newClient("c").answers(`{"action":"accept"}`)
			c.does(t, r, wire.MethodGetPrompt, `{"name":"p","_meta":{"progressToken":5}}`)
			synctest.Wait()
			notes, _ := c.got()
			if got := strings.Join(notes, "|"); got != `notifications/progress {"progressToken":5,"progress":1}|notifications/progress {"progressToken":5,"progress":2}` {
				t.Errorf("heard %s", got)
			}
		})
	})
	t.Run("no state, no state back; no questions, no answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			round := 0
			r := play(t, modernServer(t, func(i *instance, m message) {
				round++
				switch round {
				case 1:
					i.rope.answer(m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
				case 2:
					if got := at(m.params, "requestState"); got != "" {
						t.Errorf("a state came from nowhere: %s", got)
					}
					i.rope.answer(m, `{"resultType":"input_required","requestState":"later"}`)
				case 3:
					if got := at(m.params, "requestState"); got != `"later"` {
						t.Errorf("state %s", got)
					}
					if got := at(m.params, "inputResponses", "a"); got != "" {
						t.Errorf("an answer to the question before: %s", m.params)
					}
					i.rope.answer(m, `{"resultType":"complete","ok":1}`)
				}
			}))
			if got := newClient("c").answers(`{"action":"accept"}`).calls(t, r, "x"); got != `{"resultType":"complete","ok":1}` {
				t.Errorf("got %s", got)
			}
		})
	})
	t.Run("the client refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			r := play(t, modernServer(t, func(i *instance, m message) {
				if in := at(m.params, "inputResponses"); in != "" {
					told = append(told, in)
					i.rope.answer(m, `{"resultType":"complete","told":true}`)
					return
				}
				i.rope.answer(m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
			}))
			if got := newClient("c").calls(t, r, "x"); got != `{"resultType":"complete","told":true}` {
				t.Errorf("a declined elicitation gave %s", got)
			}
			if len(told) != 1 || told[0] != `{"a":{"action":"decline"}}` {
				t.Errorf("the server was told %q", told)
			}
			c := newClient("c")
			c.ask = func(context.Context, string, string) upstream.Reply {
				return upstream.Reply{Error: []byte(`{"code":-1,"message":"rejected"}`)}
			}
			if got := c.calls(t, r, "x"); got != `error:{"code":-1,"message":"rejected"}` {
				t.Errorf("a client's error gave %s", got)
			}
			// A call without a client, such as the gateway's own.
			req := c.request(t, wire.MethodCallTool, `{"name":"x"}`)
			req.Peer = nil
			if got := outcome(r.Call(t.Context(), req)); got != `{"resultType":"complete","told":true}` {
				t.Errorf("without a client: %s", got)
			}
		})
	})
	t.Run("a server that never has enough", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rounds := 0
			r := play(t, modernServer(t, func(i *instance, m message) {
				rounds++
				i.rope.answer(m, "%s", asks)
			}))
			testkit.Has(t, "the end", newClient("c").answers(`{"action":"accept"}`).calls(t, r, "x"), "tool: ", "input")
			if rounds < 2 || rounds > 20 {
				t.Errorf("%d rounds", rounds)
			}
		})
	})
	t.Run("questions that are none", func(t *testing.T) {
		for _, in := range []string{`{"a":1}`, `{"a":{"params":{}}}`, `{"a":"elicitation/create"}`} {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, modernServer(t, func(i *instance, m message) {
					i.rope.answer(m, `{"resultType":"input_required","inputRequests":%s}`, in)
				}))
				testkit.Has(t, in, newClient("c").calls(t, r, "x"), "tool: ", `"a"`)
			})
		}
	})
	t.Run("asked in a request that may not ask", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, modernServer(t, func(i *instance, m message) {
				if at(m.params, "inputResponses") != "" {
					i.rope.answer(m, `{"resultType":"complete","tools":[]}`)
					return
				}
				i.rope.answer(m, "%s", asks)
			}))
			c := newClient("c").answers(`{"action":"accept"}`)
			for _, params := range []string{``, `{}`, `{"_meta":{}}`, ` {"cursor":"1"}`[1:]} {
				if got := c.does(t, r, wire.MethodListTools, params); !json.Valid([]byte(strings.TrimPrefix(got, "error:"))) {
					t.Errorf("params %q: got %s", params, got)
				}
			}
		})
	})
	t.Run("words that look like a question", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const result = `{"resultType":"complete","content":[{"type":"text","text":"\"input_required\""}],"structuredContent":{"resultType":"input_required","status":"input_required"}}`
			r := play(t, modernServer(t, func(i *instance, m message) { i.rope.answer(m, "%s", result) }))
			c := newClient("c")
			if got := c.calls(t, r, "x"); got != result {
				t.Errorf("got %s", got)
			}
			if _, asked := c.got(); len(asked) > 0 {
				t.Errorf("asked %q", asked)
			}
		})
	})
	t.Run("the client cancels while it is asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rounds := 0
			r := play(t, modernServer(t, func(i *instance, m message) {
				rounds++
				i.rope.answer(m, "%s", asks)
			}))
			ctx, cancel := context.WithCancelCause(t.Context())
			c := newClient("c")
			c.ask = func(ctx context.Context, method, _ string) upstream.Reply {
				cancel(upstream.Cancelled())
				<-ctx.Done()
				return upstream.Reply{Result: []byte(`{}`)}
			}
			testkit.Has(t, "the end", outcome(r.Call(ctx, c.request(t, wire.MethodCallTool, `{"name":"x"}`))), "refused: ", "cancelled")
			if rounds != 1 {
				t.Errorf("the server was called %d times", rounds)
			}
		})
	})
	t.Run("metadata goes into all forms of params", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, modernServer(t, func(i *instance, m message) { i.rope.answer(m, "%s", m.params) }))
			c := newClient("c")
			c.LogLevel = "warning"
			for _, params := range []string{
				``, `{}`, `{ }`, `{"a":1}`, `{"_meta":{}}`, "{\"_meta\":{ \t}}", `{"_meta":{"a":1}}`, `{"_meta":{"progressToken":1}}`, `{"a":1,"_meta":{"progressToken":"x","a":{}}}`, `{"_meta":null,"a":1}`,
			} {
				got := c.does(t, r, wire.MethodListTools, params)
				if !json.Valid([]byte(got)) || at(got, "_meta", wire.MetaLogLevel) != `"warning"` || at(got, "a") != at(params, "a") {
					t.Errorf("params %q were sent as %s", params, got)
				}
			}
		})
	})
}

func TestModernClientOnALegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, echoing)
		for _, tt := range []struct{ in, want string }{
			{`{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}}`,
				`{"name":"x","_meta":{}}`},
			{`{"_meta":{"a":12345678901234567890,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"traceparent":"00-1","io.modelcontextprotocol/clientCapabilities":{},` +
				`"io.modelcontextprotocol/logLevel":"debug","com.example/io.modelcontextprotocol/logLevel":1},"name":"x"}`,
				`{"_meta":{"a":12345678901234567890,"traceparent":"00-1","com.example/io.modelcontextprotocol/logLevel":1},"name":"x"}`},
			{`{"name":"x"}`, `{"name":"x"}`},
			{`{"name":"x","_meta":{}}`, `{"name":"x","_meta":{}}`},
		} {
			got := at(newClient("c").modern().does(t, r, wire.MethodCallTool, tt.in), "structuredContent")
			if got != tt.want {
				t.Errorf("%s\nwas sent as %s\nwant        %s", tt.in, got, tt.want)
			}
		}
		// The token is ours in what is left, and the name is the server's own.
		c := newClient("c").modern()
		req := c.request(t, wire.MethodCallTool, `{"_meta":{"progressToken":"mine","io.modelcontextprotocol/protocolVersion":"2026-07-28","z":1},"name":"srv__x"}`)
		req.Edits = []wire.Edit{{At: req.Params.Target, With: wire.Quote("x")}}
		got := at(outcome(r.Call(t.Context(), req)), "structuredContent")
		token := at(got, "_meta", "progressToken")
		if got != `{"_meta":{"progressToken":`+token+`,"z":1},"name":"x"}` || token == `"mine"` {
			t.Errorf("was sent as %s", got)
		}
	})
}

func TestModernClientOnAModernServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asks = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}},"requestState":"s"}`
		r := play(t, modernServer(t, func(i *instance, m message) {
			if at(m.params, "requestState") != "" {
				i.rope.answer(m, "%s", m.params)
				return
			}
			i.rope.answer(m, "%s", asks)
		}))
		c := newClient("c").modern()
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"k":12345678901234567890}`
		if got := c.does(t, r, wire.MethodCallTool, `{"name":"x",`+meta+`}`); got != asks {
			t.Errorf("the question came as %s", got)
		}
		retry := `{"name":"x","inputResponses":{"a":{"action":"accept"}},"requestState":"s",` + meta + `}`
		if got := c.does(t, r, wire.MethodCallTool, retry); got != retry {
			t.Errorf("the answer was sent as %s", got)
		}
		if _, asked := c.got(); len(asked) > 0 {
			t.Errorf("asked %q", asked)
		}
	})
}
