package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/internal/testkit"
)

// prod brings a change about until it is heard of. When the gateway began to
// listen to the server can't be seen from outside, so one change might be too
// early.
func prod[T any](t *testing.T, heard <-chan T, change func()) T {
	t.Helper()
	deadline := time.After(testkit.Patience)
	for {
		change()
		select {
		case v := <-heard:
			return v
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatal("the change was never heard of")
		}
	}
}

// hear reads a stream into a channel until it ends.
func hear(s *stream) <-chan message {
	ch := make(chan message, 256)
	go func() {
		defer close(ch)
		for {
			m, err := s.tryNext()
			if err != nil {
				return
			}
			ch <- m
		}
	}()
	return ch
}

// changers are what makes a talkative server announce something.
func changers(t *testing.T, s *talkative) map[string]func() {
	n := 0
	return map[string]func(){
		"notifications/tools/list_changed": func() {
			n++
			s.AddTool(&mcp.Tool{Name: fmt.Sprint("new", n), InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return text("new"), nil
			})
		},
		"notifications/prompts/list_changed": func() {
			n++
			s.AddPrompt(&mcp.Prompt{Name: fmt.Sprint("new", n)}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { return nil, nil })
		},
		"notifications/resources/list_changed": func() {
			n++
			s.AddResource(&mcp.Resource{URI: fmt.Sprint("new://", n), Name: "n"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) { return nil, nil })
		},
		"notifications/resources/updated": func() {
			if err := s.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "res://1"}); err != nil {
				t.Error(err)
			}
		},
	}
}

// seenAs is the URI of a server's resource in a view.
func seenAs(t *testing.T, w *world, path string) string {
	t.Helper()
	var list struct{ Resources []struct{ URI string } }
	decode(t, w.dial(t, path, `{}`).get("resources/list", `{}`), &list)
	if len(list.Resources) == 0 {
		t.Fatal("no resource is listed")
	}
	return list.Resources[0].URI
}

func TestChangesReachLegacyClients(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for _, path := range []string{"/mcp/t", "/mcp"} {
			t.Run(fmt.Sprintf("modern server=%v at %s", isModern, path), func(t *testing.T) {
				s := newTalkative(t, isModern)
				w := open(t, servers("t", serveSDK(t, s.Server, isModern)))
				uri := seenAs(t, w, path)
				c := w.dial(t, path, `{}`)
				heard := hear(c.listen())
				c.get("resources/subscribe", fmt.Sprintf(`{"uri":%q}`, uri))
				for method, change := range changers(t, s) {
					m := prodFor(t, heard, method, change)
					if method != "notifications/resources/updated" {
						continue
					}
					var p struct{ URI string }
					decode(t, m.Params, &p)
					if p.URI != uri {
						t.Errorf("told of %q, want %q", p.URI, uri)
					}
				}
			})
		}
	}
}

// prodFor is prod for one method on a stream that carries several.
func prodFor(t *testing.T, heard <-chan message, method string, change func()) message {
	t.Helper()
	deadline := time.After(testkit.Patience)
	for {
		change()
		retry := time.After(200 * time.Millisecond)
	wait:
		for {
			select {
			case m, ok := <-heard:
				if !ok {
					t.Fatal("the stream ended")
				}
				if m.Method == method {
					return m
				}
			case <-retry:
				break wait
			case <-deadline:
				t.Fatalf("%s never came", method)
			}
		}
	}
}

func TestChangesReachModernClients(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for _, path := range []string{"/mcp/t", "/mcp"} {
			t.Run(fmt.Sprintf("modern server=%v at %s", isModern, path), func(t *testing.T) {
				s := newTalkative(t, isModern)
				w := open(t, servers("t", serveSDK(t, s.Server, isModern)))
				uri := seenAs(t, w, path)
				listen := func(id, filter string) <-chan message {
					body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":%s,%s}}`, id, filter, meta(`{}`))
					r := w.do(t, "POST", path, body, modernHeaders("subscriptions/listen", "")...)
					if r.stream == nil {
						t.Fatalf("status %d: %s", r.status, r.body)
					}
					first := r.stream.next()
					if first.Method != "notifications/subscriptions/acknowledged" {
						t.Fatalf("the first message is %s", first.raw)
					}
					wantSubscription(t, first, id)
					var p struct {
						Notifications json.RawMessage `json:"notifications"`
					}
					decode(t, first.Params, &p)
					if !sameJSON(t, p.Notifications, []byte(filter)) {
						t.Errorf("acknowledged %s, want %s", p.Notifications, filter)
					}
					return hear(r.stream)
				}
				all := listen(`"all-\u00e9"`, fmt.Sprintf(`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":[%q]}`, uri))
				some := listen(`12345678901234567890`, `{"promptsListChanged":true}`)
				for method, change := range changers(t, s) {
					m := prodFor(t, all, method, change)
					wantSubscription(t, m, `"all-é"`)
					if method == "notifications/resources/updated" && !strings.Contains(string(m.Params), fmt.Sprintf(`"uri":%q`, uri)) {
						t.Errorf("told of %s, want %q", m.Params, uri)
					}
				}
				m := prod(t, some, changers(t, s)["notifications/prompts/list_changed"])
				if m.Method != "notifications/prompts/list_changed" {
					t.Errorf("a client that listens to prompts was told %s", m.raw)
				}
				wantSubscription(t, m, `12345678901234567890`)
			})
		}
	}
}

func wantSubscription(t *testing.T, m message, id string) {
	t.Helper()
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	decode(t, m.Params, &p)
	got := p.Meta["io.modelcontextprotocol/subscriptionId"]
	var a, b string
	if id[0] == '"' && json.Unmarshal(got, &a) == nil && json.Unmarshal([]byte(id), &b) == nil && a == b {
		return
	}
	if string(got) != id {
		t.Errorf("subscriptionId is %s, want %s: %s", got, id, m.raw)
	}
}

// TestUnsubscribedMeansSilence checks that a client that unsubscribed is told no
// more while another still is.
func TestUnsubscribedMeansSilence(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, false)
	w := open(t, "auth: {tokens: [{name: ada, token: ada-ada-ada-ada-ada}]}\n"+servers("t", serveSDK(t, s.Server, false)))
	dial := func() (*legacy, <-chan message) {
		c := w.dial(t, "/mcp/t", `{}`, "Authorization", "Bearer ada-ada-ada-ada-ada")
		heard := hear(c.listen())
		c.get("resources/subscribe", `{"uri":"res://1"}`)
		return c, heard
	}
	one, heardOne := dial()
	_, heardTwo := dial()
	updated := changers(t, s)["notifications/resources/updated"]
	const method = "notifications/resources/updated"
	prodFor(t, heardOne, method, updated)
	prodFor(t, heardTwo, method, updated)
	one.get("resources/unsubscribe", `{"uri":"res://1"}`)
	// A list change comes after all that was on its way before it.
	const list = "notifications/tools/list_changed"
	prodFor(t, heardOne, list, changers(t, s)[list])
	prodFor(t, heardTwo, method, updated)
	for {
		m := prod(t, heardOne, changers(t, s)["notifications/prompts/list_changed"])
		if m.Method == method {
			t.Errorf("told after unsubscribing: %s", m.raw)
		}
		if m.Method == "notifications/prompts/list_changed" {
			return
		}
	}
}

// TestTurningAServerOffTellsEveryone checks that clients of both eras hear that
// the merged list changed when a server is switched off.
func TestTurningAServerOffTellsEveryone(t *testing.T) {
	t.Parallel()
	a, b := echoServer(t, false, "one"), echoServer(t, true, "two")
	w := open(t, servers("a", a.URL, "b", b.URL))
	c := w.dial(t, "/mcp", `{}`)
	c.get("tools/list", `{}`)
	old := c.listen()
	body := `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta(`{}`) + `}}`
	young := w.do(t, "POST", "/mcp", body, modernHeaders("subscriptions/listen", "")...).stream
	young.until("notifications/subscriptions/acknowledged")
	if r := w.do(t, "PATCH", "/v1/servers/a", `{"enabled":false}`, "Content-Type", "application/json"); r.status != 200 {
		t.Fatalf("patch: %d %s", r.status, r.body)
	}
	old.until("notifications/tools/list_changed")
	young.until("notifications/tools/list_changed")
	if got := names(tools(t, w, "/mcp")); len(got) != 1 || got[0] != "b__two" {
		t.Errorf("listed %q", got)
	}
}
