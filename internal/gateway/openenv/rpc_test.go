package openenv

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/testkit"
)

var someone = identity.Principal{Name: "ada"}

func rpcText(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
}

// TestRPC makes requests without a session, each in a world of its own.
func TestRPC(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	for _, tt := range []struct{ body, want string }{
		{rpcText("tools/list", "{}"), `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"description":"Adds","inputSchema":{"type":"object"},"name":"add","outputSchema":{"x-fastmcp-wrap-result":true}},{"description":"","name":"odd"}]}}`},
		{rpcText("tools/call", `{"name":"add","arguments":{}}`), `"data":1,"is_error":false}}`},
		{rpcText("tools/call", `{"name":"add"}`), `"data":1,"is_error":false}}`},
		{rpcText("tools/call", `{}`), `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Missing 'name' in params","data":null}}`},
		{rpcText("tools/call", `{"name":"add","arguments":3}`), `"code":-32602`},
		{rpcText("tools/call", `[]`), `"code":-32602`},
		{rpcText("tools/call", `{"name":"add","session_id":"none"}`), `"code":-32602,"message":"Unknown session_id: none"`},
		{rpcText("initialize", "{}"), `"code":-32601,"message":"Method not found: initialize"`},
		{rpcText("openenv/session/close", "{}"), `"code":-32602`},
		{rpcText("openenv/session/close", `{"session_id":"none"}`), `"code":-32602,"message":"Unknown session_id: none"`},
		{"{}", `"id":null,"error":{"code":-32600`},
		{"{", `"id":null,"error":{"code":-32700,"message":"Parse error"`},
		{"[]", `"code":-32700`},
		{`{"jsonrpc":"2.0","id":{},"method":"x"}`, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"x","more":1}`, `"code":-32600`},
	} {
		if status, body := post(t, url+"/mcp", tt.body); status != 200 || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want %s", tt.body, status, body, tt.want)
		}
	}
	f.answer = func(*fakeSession, Call) string { return `{"content":[{"type":"text","text":"boom"}],"isError":true}` }
	_, body := post(t, url+"/mcp", rpcText("tools/call", `{"name":"add"}`))
	testkit.Has(t, "a tool's error", body, `"code":-32603,"message":"boom","data":{"error_type":"execution_error"}`)
	if open := f.open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
}

// created makes a session over HTTP.
func created(t *testing.T, url string) string {
	t.Helper()
	_, body := post(t, url+"/mcp", rpcText("openenv/session/create", "{}"))
	var out struct{ Result struct{ Session_ID string } }
	if err := json.Unmarshal([]byte(body), &out); err != nil || out.Result.Session_ID == "" {
		t.Fatalf("%v: %s", err, body)
	}
	return out.Result.Session_ID
}

// TestAttached uses a session over HTTP and by a WebSocket, as MCPToolClient does.
func TestAttached(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	id := created(t, url)
	in := fmt.Sprintf(`{"name":"add","session_id":%q}`, id)
	call := func() string {
		t.Helper()
		_, body := post(t, url+"/mcp", rpcText("tools/call", in))
		return body
	}
	testkit.Has(t, "a call", call(), `"data":1`)
	p := dial(t, url+"/ws?session_id="+id)
	testkit.Has(t, "a step before a reset", p.say(add), codeValidation)
	testkit.Has(t, "a call in the same world", call(), `"data":2`)
	p.say(`{"type":"reset"}`)
	testkit.Has(t, "a step", p.say(add), `"data":1`)
	testkit.Has(t, "a call beside it", call(), `"data":2`)
	second := dial(t, url+"/ws?session_id="+id)
	testkit.Has(t, "a second WebSocket", second.hear(), "SESSION_ERROR", "already has an attached WebSocket")
	second.over(websocket.StatusNormalClosure)
	p.send(`{"type":"close"}`)
	p.over(websocket.StatusNormalClosure)
	testkit.Has(t, "a call after it", call(), `"data":3`)
	p = dial(t, url+"/ws?session_id="+id)
	testkit.Has(t, "a step again", p.say(add), `"data":4`)
	_, body := post(t, url+"/mcp", rpcText("openenv/session/close", fmt.Sprintf(`{"session_id":%q}`, id)))
	testkit.Has(t, "a close while a WebSocket is attached", body, `"closed":false,"closing":true`)
	testkit.Has(t, "a step then", p.say(add), `"data":5`)
	p.send(`{"type":"close"}`)
	p.over(websocket.StatusNormalClosure)
	if open := f.open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
	testkit.Has(t, "a call at last", call(), "Unknown session_id")
	lone := dial(t, url+"/ws?session_id="+id)
	testkit.Has(t, "a WebSocket at last", lone.hear(), "SESSION_ERROR", "Unknown session_id")

	other := created(t, url)
	_, body = post(t, url+"/mcp", rpcText("openenv/session/close", fmt.Sprintf(`{"session_id":%q}`, other)))
	testkit.Has(t, "a close", body, `"closed":true`)
	if open := f.open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
}

// A session that has failed is gone, and no longer counts.
func TestAttachedFails(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	ids := []string{created(t, url), created(t, url)}
	_, body := post(t, url+"/mcp", rpcText("openenv/session/create", "{}"))
	testkit.Has(t, "a third", body, `"code":-32000`, `"active_sessions":2,"max_sessions":2`)
	f.mu.Lock()
	f.callErr = &api.Error{Kind: api.KindInfrastructure, Message: "died"}
	f.mu.Unlock()
	in := rpcText("tools/call", fmt.Sprintf(`{"name":"add","session_id":%q}`, ids[0]))
	_, body = post(t, url+"/mcp", in)
	testkit.Has(t, "a failed world", body, `"code":-32000,"message":"died"`)
	_, body = post(t, url+"/mcp", in)
	testkit.Has(t, "the world after that", body, "Unknown session_id")
	if open := f.open(); !slices.Equal(open, []string{"ses_2"}) {
		t.Errorf("open: %v", open)
	}
	created(t, url)
}

// A WebSocket of JSON-RPC has a world.
func TestRPCSocket(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := dial(t, url+"/mcp")
	for i, want := range []string{`"data":1`, `"data":2`} {
		testkit.Has(t, fmt.Sprint("call ", i), p.say(rpcText("tools/call", `{"name":"add"}`)), want)
	}
	testkit.Has(t, "what is no JSON", p.say("{"), `"code":-32700`)
	f.mu.Lock()
	f.callErr = &api.Error{Kind: api.KindLost, Message: "memory"}
	f.mu.Unlock()
	testkit.Has(t, "a failed world", p.say(rpcText("tools/call", `{"name":"add"}`)), `"code":-32000,"message":"memory"`)
	p.over(websocket.StatusNormalClosure)
	if open := f.open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
}

// Sessions of other principals and environments are not found.
func TestFind(t *testing.T) {
	f := newFake()
	s := New(f, new(testkit.Log).Logger())
	defer s.Close()
	m, err := s.make(t.Context(), someone, "game")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who  identity.Principal
		name string
		want bool
	}{
		{someone, "game", true},
		{someone, "other", false},
		{identity.Principal{Name: "eve"}, "game", false},
		{identity.Principal{Name: "ada", Session: "ses_1"}, "game", false},
	} {
		if got := s.find(tt.who, tt.name, m.id) != nil; got != tt.want {
			t.Errorf("%+v at %s finds it: %v", tt.who, tt.name, got)
		}
	}
}

// TestIdle lets time pass over sessions that were made over HTTP.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := New(f, new(testkit.Log).Logger())
		defer s.Close()
		left := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if open := f.open(); !slices.Equal(open, want) {
				t.Errorf("%s: open are %v, want %v", what, open, want)
			}
		}
		one, err := s.make(t.Context(), someone, "game")
		if err != nil {
			t.Fatal(err)
		}
		two, err := s.make(t.Context(), someone, "game")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.attach(someone, "game", two.id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		s.find(someone, "game", one.id) // its time begins again
		time.Sleep(50 * time.Second)
		left("one was used, two is attached", "ses_1", "ses_2")
		time.Sleep(11 * time.Second)
		left("one was not used for a minute", "ses_2")
		s.detach(two)
		time.Sleep(vanished - time.Second)
		left("the WebSocket of two has just ended", "ses_2")
		time.Sleep(2 * time.Second)
		left("no other came")
	})
}
