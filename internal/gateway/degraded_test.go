package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// missing reads who a list says it had to do without.
func missing(t *testing.T, result []byte) map[string]string {
	t.Helper()
	var r struct {
		Meta struct {
			Missing []api.Missing `json:"tine/missing"`
		} `json:"_meta"`
	}
	decode(t, result, &r)
	out := map[string]string{}
	for _, m := range r.Meta.Missing {
		out[m.Server] = m.Reason
	}
	return out
}

// hanging is a server that takes requests and says nothing until it is let go.
func hanging(t *testing.T, isModern bool, tools ...string) (up *scripted, release func()) {
	up = echoServer(t, isModern, tools...)
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	inner := up.Config.Handler
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
			inner.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	return up, release
}

// deadURL is an address where nothing listens.
func deadURL(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestMergedListsWithoutTheBroken(t *testing.T) {
	t.Parallel()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"tools": [`+"\x00\xff")
	}))
	t.Cleanup(garbage.Close)
	refuses := script(t, true, nil) // knows no tools/list, though it says it has tools
	odd := script(t, true, map[string]string{"tools/list": `{"tools":"none"}`, "resources/list": `{}`, "prompts/list": `[]`, "resources/templates/list": `{"resourceTemplates":[7,{"uriTemplate":1}]}`})
	hang, _ := hanging(t, true, "h")
	silent := echoServer(t, true, "s")
	for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
		silent.on(method, func(_ http.ResponseWriter, r *http.Request, _ received) { <-r.Context().Done() })
	}
	first, last := echoServer(t, false, "one"), echoServer(t, true, "two")
	w := open(t, "limits: {list_wait: 1s}\n"+servers(
		"first", first.URL, "dead", deadURL(t), "garbage", garbage.URL, "refuses", refuses.URL, "odd", odd.URL,
		"hang", hang.URL, "silent", silent.URL, "off", `{url: "http://127.0.0.1:1", enabled: false}`, "last", last.URL))
	// Each list waits for the slow ones anew, so each is asked for once.
	for i, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "tools/list"} {
		var result []byte
		if i%2 == 0 {
			result = w.dial(t, "/mcp", `{}`).get(method, `{}`)
		} else {
			result = w.modern(t, "/mcp", `{}`).get(method, "", `{}`)
		}
		gone := missing(t, result)
		for _, id := range []string{"dead", "garbage", "hang", "silent"} {
			if gone[id] == "" {
				t.Errorf("%s: %s is not named with a reason: %s", method, id, result)
			}
		}
		for _, id := range []string{"first", "last", "off"} {
			if _, ok := gone[id]; ok {
				t.Errorf("%s: %s is called missing: %s", method, id, gone[id])
			}
		}
		if method == "tools/list" {
			var r struct{ Tools []listedTool }
			decode(t, result, &r)
			if got := names(r.Tools); !slices.Equal(got, []string{"first__one", "last__two"}) {
				t.Errorf("listed %q", got)
			}
		}
	}
}

// TestToolsOfOneWaitForIt asks for the tools of one server, which is waited for
// longer than a list of all would, and for as long as it may take to start.
func TestToolsOfOneWaitForIt(t *testing.T) {
	t.Parallel()
	slow, release := hanging(t, true, "one")
	stuck, _ := hanging(t, true, "never")
	w := open(t, "limits: {list_wait: 10ms}\n"+servers("slow", slow.URL, "stuck", `{url: "`+stuck.URL+`", connect_timeout: 100ms}`))
	answer := make(chan api.ToolList, 1)
	go func() {
		defer close(answer)
		var list api.ToolList
		control(t, w, "GET", "/v1/tools?server=slow", "", &list)
		answer <- list
	}()
	var all api.ToolList
	control(t, w, "GET", "/v1/tools", "", &all)
	if len(all.Tools) != 0 || len(all.Missing) != 2 {
		t.Errorf("while they start the list of all is %+v", all)
	}
	select {
	case list := <-answer:
		t.Errorf("the list of one did not wait for it: %+v", list)
	default:
	}
	release()
	if list := <-answer; len(list.Tools) != 1 || list.Tools[0].Name != "slow__one" || len(list.Missing) != 0 {
		t.Errorf("the list of one is %+v", list)
	}
	var none api.ToolList
	control(t, w, "GET", "/v1/tools?server=stuck", "", &none)
	if len(none.Missing) != 1 || none.Missing[0].Server != "stuck" || none.Missing[0].Kind != api.KindTimeout || !strings.Contains(none.Missing[0].Reason, "did not start within 100ms") {
		t.Errorf("the list of one that does not start is %+v", none)
	}
}

// TestEveryListWaitsForAStart lists again when a list has gone out without a server that
// still starts.
func TestEveryListWaitsForAStart(t *testing.T) {
	t.Parallel()
	slow, release := hanging(t, true, "one")
	w := open(t, "limits: {list_wait: 2s}\n"+servers("slow", slow.URL))
	if gone := missing(t, w.modern(t, "/mcp", `{}`).get("tools/list", "", `{}`)); !strings.Contains(gone["slow"], "has not answered yet") {
		t.Errorf("the first list lacks %q", gone)
	}
	second := make(chan []byte, 1)
	go func() { second <- w.modern(t, "/mcp", `{}`).get("tools/list", "", `{}`) }()
	release()
	if list := <-second; !strings.Contains(string(list), `"slow__one"`) {
		t.Errorf("the second list is %s", list)
	}
}

// TestOneDeadServersView checks that asking for a broken server alone says which
// one it is and why, in a way that programs can tell from a tool's own failure.
func TestOneDeadServersView(t *testing.T) {
	t.Parallel()
	w := open(t, servers("gone", deadURL(t)))
	merged := calls(t, w, "/mcp", "gone__x")
	for _, m := range append(merged[:], w.modern(t, "/mcp/gone", `{}`).ask("tools/call", "x", `{"name":"x"}`)) {
		// A model reads the text, a program the kind.
		var r struct {
			Content []struct{ Text string }
			IsError bool
			Meta    map[string]api.Error `json:"_meta"`
		}
		decode(t, m.Result, &r)
		if e := r.Meta["tine/error"]; !r.IsError || e.Kind != api.KindInfrastructure || e.Server != "gone" || !strings.Contains(r.Content[0].Text, "gone") {
			t.Errorf("a call: %s", m.raw)
		}
	}
	for _, m := range []message{
		w.do(t, "POST", "/mcp/gone", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`,
			"Content-Type", "application/json", "Accept", bothTypes).answer(),
		w.dial(t, "/mcp", `{}`).ask("prompts/get", `{"name":"gone__x"}`),
		w.modern(t, "/mcp", `{}`).ask("prompts/get", "gone__x", `{"name":"gone__x"}`),
	} {
		if got := tineError(t, m); got == nil || got.Kind != api.KindInfrastructure || got.Server != "gone" {
			t.Errorf("got %s", m.raw)
		}
	}
}

// TestLateServersAreAnnounced checks that clients hear when a list they were
// given without a slow server would have it now.
func TestLateServersAreAnnounced(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		slow, release := hanging(t, isModern, "late")
		quick := echoServer(t, true, "one")
		w := open(t, "limits: {list_wait: 50ms}\n"+servers("quick", quick.URL, "slow", slow.URL))
		old := w.dial(t, "/mcp", `{}`)
		heardOld := old.listen()
		body := `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta(`{}`) + `}}`
		heardYoung := w.do(t, "POST", "/mcp", body, modernHeaders("subscriptions/listen", "")...).stream
		heardYoung.until("notifications/subscriptions/acknowledged")
		young := w.modern(t, "/mcp", `{}`)
		for _, result := range [][]byte{old.get("tools/list", `{}`), young.get("tools/list", "", `{}`)} {
			if missing(t, result)["slow"] == "" {
				t.Fatalf("modern=%v: slow is not named: %s", isModern, result)
			}
		}
		release()
		heardOld.until("notifications/tools/list_changed")
		wantSubscription(t, heardYoung.until("notifications/tools/list_changed"), `"L"`)
		// Each list is asked for anew, and on a busy machine takes longer than lists wait.
		for era, list := range map[string]func() []byte{
			"legacy": func() []byte { return old.get("tools/list", `{}`) },
			"modern": func() []byte { return young.get("tools/list", "", `{}`) },
		} {
			testkit.Eventually(t, "the list of a "+era+" client has what came", func() bool {
				result := list()
				return strings.Contains(string(result), `"slow__late"`) && missing(t, result)["slow"] == ""
			})
		}
	}
}

// TestLateSharedServersAreAnnounced checks the same where sessions wait for one
// list of a server that they share: each is told, not only the one that asked
// first.
func TestLateSharedServersAreAnnounced(t *testing.T) {
	let := make(chan struct{})
	slow := func() *mcp.Server {
		s := sdkServer("slow", nil)
		s.AddTool(&mcp.Tool{Name: "late", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text("x"), nil
		})
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if method == "tools/list" {
					<-let
				}
				return next(ctx, method, r)
			}
		})
		return s
	}
	w := open(t, "limits: {list_wait: 50ms}\n"+servers("slow", "{builtin: everything, scope: shared}"), map[string]builtin.Kind{"everything": factory(slow)})
	var clients []*legacy
	var heard []*stream
	for range 3 {
		c := w.dial(t, "/mcp", `{}`)
		clients, heard = append(clients, c), append(heard, c.listen())
		if result := c.get("tools/list", `{}`); missing(t, result)["slow"] == "" {
			t.Fatalf("slow is not named: %s", result)
		}
	}
	close(let)
	for i, c := range clients {
		heard[i].until("notifications/tools/list_changed")
		if result := c.get("tools/list", `{}`); !strings.Contains(string(result), `"slow__late"`) {
			t.Errorf("after it came, client %d has %s", i, result)
		}
	}
}

// TestAllPagesAreMerged checks that a list is read to its end, and that a server
// whose list has none does not keep the others back.
func TestAllPagesAreMerged(t *testing.T) {
	t.Parallel()
	paged, endless := echoServer(t, true), echoServer(t, false)
	page := func(in received) (cursor string) {
		var p struct{ Cursor string }
		decode(t, in.Params, &p)
		return p.Cursor
	}
	paged.on("tools/list", func(w http.ResponseWriter, _ *http.Request, in received) {
		next := map[string]string{"": `"n\u0031"`, "n1": `"n2 &"`, "n2 &": ""}[page(in)]
		if next != "" {
			next = `,"nextCursor":` + next
		}
		writeResult(w, in, fmt.Sprintf(`{"tools":[{"name":%q,"inputSchema":{}}]%s,"resultType":"complete"}`, "t"+page(in), next))
	})
	endless.on("tools/list", func(w http.ResponseWriter, _ *http.Request, in received) {
		writeResult(w, in, `{"tools":[{"name":"again","inputSchema":{}}],"nextCursor":"same"}`)
	})
	w := open(t, "limits: {list_wait: 1s}\n"+servers("endless", endless.URL, "paged", paged.URL))
	result := w.dial(t, "/mcp", `{}`).get("tools/list", `{}`)
	var r struct{ Tools []listedTool }
	decode(t, result, &r)
	got := slices.DeleteFunc(names(r.Tools), func(n string) bool { return strings.HasPrefix(n, "endless__") })
	if !slices.Equal(got, []string{"paged__t", "paged__tn1", "paged__tn2 &"}) {
		t.Errorf("listed %q", got)
	}
	if len(r.Tools) > 20_000 {
		t.Errorf("an endless list gave %d tools", len(r.Tools))
	}
	m := w.dial(t, "/mcp", `{}`).ask("tools/list", `{"cursor":"made up"}`)
	if e := m.failure(t); e.Code != -32602 {
		t.Errorf("an unknown cursor: %s", m.raw)
	}
}
