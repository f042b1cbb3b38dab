package gateway_test

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
)

// TestQuestionsGoToWhoCausedThem runs several clients at once, each asked many
// times. Each must get its own questions and nobody else's, and its answers must
// end in its own results.
func TestQuestionsGoToWhoCausedThem(t *testing.T) {
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
	// An answer to nothing, or the same one again, harms nobody.
	ada.post(forged)
	if got := resultText(t, ada.ask("tools/call", `{"name":"echo","arguments":{"k":1}}`)); got != `{"k":1}` {
		t.Errorf("got %q", got)
	}
}

// TestQuestionsOfNobodysCall checks a request that a shared server makes outside
// of any call: with two clients there is no telling who is meant, so neither is
// asked and the server is told why.
func TestQuestionsOfNobodysCall(t *testing.T) {
	up := script(t, false, map[string]string{"tools/list": plainTools})
	opened := make(chan func(string), 4)
	up.tap = func(w http.ResponseWriter, r *http.Request) {
		opened <- events(w)
		<-r.Context().Done()
	}
	w := open(t, servers("t", up.URL))
	var streams []*stream
	for range 2 {
		c := w.dial(t, "/mcp/t", bothCaps)
		streams = append(streams, c.listen())
		c.get("tools/list", `{}`)
	}
	send := take(t, opened)
	reply := up.reply(`"stray"`)
	send(`{"jsonrpc":"2.0","id":"stray","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`)
	if got := take(t, reply); got.Error == nil {
		t.Errorf("the server was answered %s, want an error", got.raw)
	}
	elicited := up.reply(`"stray2"`)
	send(`{"jsonrpc":"2.0","id":"stray2","method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}`)
	if got := take(t, elicited); got.Error == nil && !strings.Contains(string(got.Result), `"decline"`) {
		t.Errorf("the server was answered %s, want no", got.raw)
	}
	// What comes after on the clients' streams shows that the question did not.
	send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for i, s := range streams {
		if m := s.next(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("client %d got %s", i, m.raw)
		}
	}
}

// TestSharedStreamServerIsNotGuessed checks a server on one stream of messages
// that all sessions share: with one call under way it may ask, with two the
// question could be either's and is refused.
func TestSharedStreamServerIsNotGuessed(t *testing.T) {
	type asked struct {
		key  string
		done chan string
	}
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
	w := open(t, servers("n", "{builtin: everything, scope: shared}"), map[string]builtin.Factory{"everything": factory(make1)})
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
