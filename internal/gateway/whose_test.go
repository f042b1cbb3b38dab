package gateway_test

//lint:file-ignore SA1019 what newer revisions deprecate is relayed all the same

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestQuestionsGoToWhoCausedThem runs several clients at once, each asked many
// times. Each must get its own questions and no other's, and its answers must
// end in its own results.
func TestQuestionsGoToWhoCausedThem(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			s := newTalkative(t, era.upstream)
			w := open(t, servers("t", serveSDK(t, s.Server, era.upstream)))
			var wg sync.WaitGroup
			for i := range 4 {
				me := fmt.Sprint("client-", i)
				path, tool := "/mcp", "t__elicit"
				if i%2 == 0 {
					path, tool = "/mcp/t", "elicit"
				}
				cs := w.connect(t, path, era.client, &mcp.ClientOptions{
					ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						if !strings.Contains(r.Params.Message, me+`"`) {
							t.Errorf("%s was asked %q", me, r.Params.Message)
						}
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"who": me}}, nil
					},
				})
				for range 2 { // two calls of each client at once
					wg.Go(func() {
						for range 15 {
							r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"me": me}})
							if err != nil {
								t.Errorf("%s: %v", me, err)
								return
							}
							if got := textOf(t, r); got != "accept "+me {
								t.Errorf("%s got %q", me, got)
							}
						}
					})
				}
			}
			wg.Wait()
		})
	}
}

// TestNobodyAnswersForAnother has one client answer what another was asked.
func TestNobodyAnswersForAnother(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, false)
	w := open(t, servers("t", serveSDK(t, s.Server, false)))
	ada, eve := w.dial(t, "/mcp/t", bothCaps), w.dial(t, "/mcp/t", bothCaps)
	call := ada.request("tools/call", `{"name":"elicit","arguments":{"k":1}}`)
	asked := call.stream.until("elicitation/create")

	forged := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"who":"eve"}}}`, asked.ID)
	if r := eve.post(forged); r.status >= 500 {
		t.Errorf("eve's answer: %d", r.status)
	}
	ada.post(strings.Replace(forged, `"eve"`, `"ada"`, 1))
	if got := resultText(t, call.answer()); got != "accept ada" {
		t.Errorf("got %q", got)
	}
	// An answer to nothing, or the same one again, does no harm.
	ada.post(forged)
	if got := resultText(t, ada.ask("tools/call", `{"name":"echo","arguments":{"k":1}}`)); got != `{"k":1}` {
		t.Errorf("got %q", got)
	}
}

// strays is a legacy server whose GET streams the test writes to, by the
// session each belongs to.
func strays(t *testing.T) (*scripted, func(session string) (send func(string))) {
	up := script(t, false, map[string]string{"tools/list": plainTools})
	var mu sync.Mutex
	open := map[string]func(string){}
	up.tap = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		send := events(w)
		open[r.Header.Get("Mcp-Session-Id")] = func(msg string) {
			mu.Lock()
			defer mu.Unlock()
			if r.Context().Err() == nil { // else w is no longer ours
				send(msg)
			}
		}
		mu.Unlock()
		<-r.Context().Done()
		mu.Lock() // a send that was running is over
		defer mu.Unlock()
	}
	return up, func(session string) (send func(string)) {
		t.Helper()
		testkit.Eventually(t, "the stream of "+session+" is open", func() bool {
			mu.Lock()
			defer mu.Unlock()
			send = open[session]
			return send != nil
		})
		return send
	}
}

const (
	straySample = `{"jsonrpc":"2.0","id":"stray","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`
	strayElicit = `{"jsonrpc":"2.0","id":"stray","method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}`
	changed     = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
)

// TestStrayQuestionsOfOneClientsServer checks a request that a server makes
// outside of any call where each client has a session of its own: only the
// client of that session is asked.
func TestStrayQuestionsOfOneClientsServer(t *testing.T) {
	t.Parallel()
	up, on := strays(t)
	w := open(t, servers("t", up.URL))
	one := w.dial(t, "/mcp/t", bothCaps)
	first := one.listen()
	one.get("tools/list", `{}`)
	two := w.dial(t, "/mcp/t", bothCaps)
	second := two.listen()
	two.get("tools/list", `{}`)

	reply := up.reply(`"stray"`)
	on("session-2")(straySample)
	asked := second.until("sampling/createMessage")
	two.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","model":"two","content":{"type":"text","text":"\u0041"}}}`, asked.ID))
	if got := take(t, reply); string(got.Result) != `{"role":"assistant","model":"two","content":{"type":"text","text":"\u0041"}}` {
		t.Errorf("the server was answered %s", got.raw)
	}
	// What comes next on the other's stream shows that the question did not.
	on("session-1")(changed)
	if m := first.next(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("the other client got %s", m.raw)
	}
}

// TestStrayQuestionsOfASharedSession checks the same where two clients of one
// principal share a session: there is no telling who is meant, so neither is
// asked and the server is told so.
func TestStrayQuestionsOfASharedSession(t *testing.T) {
	t.Parallel()
	up, on := strays(t)
	w := open(t, sharedSession+"auth: {tokens: [{name: ada, token: ada-ada-ada-ada-ada}]}\n"+servers("t", up.URL))
	var streams []*stream
	for range 2 {
		c := w.dial(t, "/mcp/t", bothCaps, "Authorization", "Bearer ada-ada-ada-ada-ada")
		streams = append(streams, c.listen())
		c.get("tools/list", `{}`)
	}
	send := on("session-1")
	reply := up.reply(`"stray"`)
	send(straySample)
	if got := take(t, reply); got.Error == nil {
		t.Errorf("the server was answered %s, want an error", got.raw)
	}
	reply = up.reply(`"stray"`)
	send(strayElicit)
	if got := take(t, reply); got.Error == nil && !strings.Contains(string(got.Result), `"decline"`) {
		t.Errorf("the server was answered %s, want no", got.raw)
	}
	send(changed)
	for i, s := range streams {
		if m := s.next(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("client %d got %s", i, m.raw)
		}
	}
}

// TestLogsOfASharedSession checks that what a server logs for one client of a
// session is not shown to another: in a call, in a list that is read for it, and
// outside of any call on the stream that both listen to.
func TestLogsOfASharedSession(t *testing.T) {
	up, on := strays(t)
	const says = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of one"}}`
	for _, method := range []string{"tools/list", "tools/call"} {
		up.on(method, func(w http.ResponseWriter, _ *http.Request, in received) {
			send := events(w)
			send(says)
			result := plainTools
			if method == "tools/call" {
				result = done
			}
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, result))
		})
	}
	w := open(t, sharedSession+twoPeople+servers("t", up.URL))
	one, two := w.dial(t, "/mcp", bothCaps, asAda...), w.dial(t, "/mcp", bothCaps, asAda...)
	first, second := one.listen(), two.listen()
	one.get("tools/list", `{}`)
	if m := first.next(); m.Method != "notifications/message" {
		t.Errorf("the client whose list it is got %s", m.raw)
	}
	send := on("session-1")
	send(changed)
	call := one.request("tools/call", `{"name":"t__one"}`)
	call.stream.until("notifications/message")
	call.answer()
	two.request("tools/call", `{"name":"t__one"}`).answer()
	send(says) // late, and it can't be known whose
	send(strings.Replace(changed, "tools", "prompts", 1))
	for i, s := range []*stream{first, second} {
		for _, want := range []string{"notifications/tools/list_changed", "notifications/prompts/list_changed"} {
			if m := s.next(); m.Method != want {
				t.Errorf("client %d got %s, want %s", i, m.raw, want)
			}
		}
	}
}

// TestLateQuestionsGoToNobody has a server ask after its call has ended, when
// another client of the session is the only one that is there to answer.
func TestLateQuestionsGoToNobody(t *testing.T) {
	up, on := strays(t)
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) { writeResult(w, in, done) })
	w := open(t, sharedSession+twoPeople+servers("t", up.URL))
	one, two := w.dial(t, "/mcp/t", bothCaps, asAda...), w.dial(t, "/mcp/t", bothCaps, asAda...)
	heard := two.listen()
	one.get("tools/call", `{"name":"one"}`)
	w.do(t, "DELETE", "/mcp/t", "", append([]string{"Mcp-Session-Id", one.id}, asAda...)...)
	reply := up.reply(`"stray"`)
	send := on("session-1")
	send(straySample)
	if got := take(t, reply); got.Error == nil {
		t.Errorf("the server was answered %s, want an error", got.raw)
	}
	send(changed)
	if m := heard.next(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("the client that is left got %s", m.raw)
	}
}

// TestSharedStreamServerIsNotGuessed checks a server on one stream of messages
// that all sessions share: with one running call it may ask, with two the
// question could be either's and is refused.
func TestSharedStreamServerIsNotGuessed(t *testing.T) {
	t.Parallel()
	type asked struct{ key string }
	calls := make(chan asked, 4)
	goOn := make(chan struct{})
	make1 := func() *mcp.Server {
		s := sdkServer("shared", nil)
		s.AddTool(&mcp.Tool{Name: "ask", InputSchema: anyObject}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var a struct{ Key string }
			_ = json.Unmarshal(r.Params.Arguments, &a)
			calls <- asked{key: a.Key}
			<-goOn
			res, err := r.Session.CreateMessage(ctx, sampling(a.Key))
			if err != nil {
				return text("refused"), nil
			}
			return text("said " + res.Content.(*mcp.TextContent).Text), nil
		})
		return s
	}
	w := open(t, servers("n", "{builtin: everything, scope: shared}"), map[string]builtin.Kind{"everything": factory(make1)})
	var wg sync.WaitGroup
	for i := range 2 {
		me := fmt.Sprint("c", i)
		cs := w.connect(t, "/mcp/n", false, &mcp.ClientOptions{
			CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
				if got := r.Params.Messages[0].Content.(*mcp.TextContent).Text; got != me {
					t.Errorf("%s was asked what %s caused", me, got)
				}
				return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: me}}, nil
			},
		})
		wg.Go(func() {
			r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{"key": me}})
			if err != nil {
				t.Errorf("%s: %v", me, err)
				return
			}
			if got := textOf(t, r); got != "refused" && got != "said "+me {
				t.Errorf("%s got %q", me, got)
			}
		})
	}
	take(t, calls)
	take(t, calls)
	close(goOn)
	wg.Wait()
}
