package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// sharedSession puts all connections of a principal into one session.
const sharedSession = "sessions: {implicit: shared}\n"

const twoPeople = "auth:\n  tokens: [{name: ada, token: ada-ada-ada-ada-ada}, {name: bob, token: bob-bob-bob-bob-bob}]\n"

var (
	asAda = []string{"Authorization", "Bearer ada-ada-ada-ada-ada"}
	asBob = []string{"Authorization", "Bearer bob-bob-bob-bob-bob"}
)

func TestSessionIDsOfOthers(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, twoPeople+servers("a", up.URL))
	ada := w.dial(t, "/mcp", `{}`, asAda...)
	bob := &legacy{w: w, t: t, path: ada.path, id: ada.id, more: asBob}
	for what, r := range map[string]*reply{
		"POST":   bob.request("tools/list", `{}`),
		"GET":    w.do(t, "GET", "/mcp", "", bob.headers()...),
		"DELETE": w.do(t, "DELETE", "/mcp", "", bob.headers()...),
	} {
		if r.status != http.StatusNotFound {
			t.Errorf("%s with another's id: status %d, want 404", what, r.status)
		}
	}
	unknown := &legacy{w: w, t: t, path: "/mcp", id: "no-such-id", more: asBob}
	if got, want := string(bob.request("tools/list", `{}`).body), string(unknown.request("tools/list", `{}`).body); got != want {
		t.Errorf("another's id is answered %s, an unknown one %s", got, want)
	}
	ada.get("tools/list", `{}`) // its owner goes on
}

func TestUnknownAndEndedSessions(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL, "b", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	// A client belongs to the view it shook hands at.
	for _, path := range []string{"/mcp", "/mcp/b"} {
		moved := &legacy{w: w, t: t, path: path, id: c.id}
		if r := moved.request("tools/list", `{}`); r.status != http.StatusNotFound {
			t.Errorf("its id at %s: status %d %s", path, r.status, r.body)
		}
	}
	ghost := &legacy{w: w, t: t, path: "/mcp/a", id: "no-such-id"}
	ghost.request("tools/list", `{}`).wantError(http.StatusNotFound, -32001)
	if r := w.do(t, "GET", "/mcp/a", "", ghost.headers()...); r.status != http.StatusNotFound {
		t.Errorf("GET: status %d", r.status)
	}
	if r := w.do(t, "DELETE", "/mcp/a", "", "Accept", bothTypes); r.status != http.StatusBadRequest {
		t.Errorf("DELETE without an id: status %d", r.status)
	}
	if r := w.do(t, "GET", "/mcp/a", "", "Accept", "application/json", "Mcp-Session-Id", c.id); r.status != http.StatusNotAcceptable {
		t.Errorf("GET for JSON: status %d", r.status)
	}
	if r := w.do(t, "GET", "/mcp/a", "", "Mcp-Session-Id", c.id); r.status != http.StatusNotAcceptable {
		t.Errorf("GET without Accept: status %d", r.status)
	}
	if r := w.do(t, "GET", "/mcp/a", "", "Accept", "text/event-stream", "Mcp-Protocol-Version", modernVersion); r.status != http.StatusMethodNotAllowed {
		t.Errorf("GET of the modern era: status %d", r.status)
	}
	stream := c.listen()
	if r := w.do(t, "DELETE", "/mcp/a", "", c.headers()...); r.status >= 300 {
		t.Errorf("DELETE: status %d", r.status)
	}
	if m, err := stream.tryNext(); err == nil {
		t.Errorf("after DELETE the stream carries %s", m.raw)
	}
	c.request("tools/list", `{}`).wantError(http.StatusNotFound, -32001)
	if r := w.do(t, "DELETE", "/mcp/a", "", c.headers()...); r.status != http.StatusNotFound {
		t.Errorf("a second DELETE: status %d", r.status)
	}
	w.restart()
	c.request("tools/list", `{}`).wantError(http.StatusNotFound, -32001)
}

// TestClientsComeBack checks that a client goes on after the gateway was closed
// and another opened on the same state, without a new handshake.
func TestClientsComeBack(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		s := newTalkative(t, isModern)
		w := open(t, servers("t", serveSDK(t, s.Server, isModern)))
		one, merged := w.dial(t, "/mcp/t", bothCaps), w.dial(t, "/mcp", `{}`)
		one.get("tools/list", `{}`)
		w.restart()
		if got := resultText(t, merged.ask("tools/call", `{"name":"t__echo","arguments":{"k":1}}`)); got != `{"k":1}` {
			t.Errorf("got %q", got)
		}
		// It can still be asked: its capabilities are known as well.
		call := one.request("tools/call", `{"name":"elicit","arguments":{}}`)
		asked := call.stream.until("elicitation/create")
		one.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"who":"back"}}}`, asked.ID))
		if got := resultText(t, call.answer()); got != "accept back" {
			t.Errorf("got %q", got)
		}
		heard := hear(one.listen())
		prodFor(t, heard, "notifications/tools/list_changed", changers(t, s)["notifications/tools/list_changed"])
	}
}

// counting is a server with a state of its own.
func counting() *mcp.Server {
	s := sdkServer("counting", nil)
	var n atomic.Int64
	s.AddTool(&mcp.Tool{Name: "count", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(fmt.Sprint(n.Add(1))), nil
	})
	return s
}

// TestWhoseInstance checks who shares an instance of a session-scoped server:
// no two connections, or all connections of one principal.
func TestWhoseInstance(t *testing.T) {
	t.Parallel()
	native := map[string]builtin.Kind{"everything": factory(counting)}
	count := func(c *legacy) string { return resultText(t, c.ask("tools/call", `{"name":"count"}`)) }

	anonymous := open(t, servers("n", "{builtin: everything, scope: session}"), native)
	a, b := anonymous.dial(t, "/mcp/n", `{}`), anonymous.dial(t, "/mcp/n", `{}`)
	if got := count(a) + count(a) + count(b); got != "121" {
		t.Errorf("two anonymous connections counted %s", got)
	}
	apart := open(t, twoPeople+servers("n", "{builtin: everything, scope: session}"), native)
	a, b = apart.dial(t, "/mcp/n", `{}`, asAda...), apart.dial(t, "/mcp/n", `{}`, asAda...)
	if got := count(a) + count(a) + count(b); got != "121" {
		t.Errorf("two connections of ada counted %s", got)
	}
	named := open(t, sharedSession+twoPeople+servers("n", "{builtin: everything, scope: session}"), native)
	a, a2, b := named.dial(t, "/mcp/n", `{}`, asAda...), named.dial(t, "/mcp/n", `{}`, asAda...), named.dial(t, "/mcp/n", `{}`, asBob...)
	if got := count(a) + count(a2) + count(b); got != "121" {
		t.Errorf("two connections of ada in one session and one of bob counted %s", got)
	}
	m := named.modern(t, "/mcp/n", `{}`, asAda...)
	if got := resultText(t, m.ask("tools/call", "count", `{"name":"count"}`)); got != "3" {
		t.Errorf("ada without a connection counted %s", got)
	}
	shared := open(t, servers("n", "{builtin: everything, scope: shared}"), native)
	a, b = shared.dial(t, "/mcp/n", `{}`), shared.dial(t, "/mcp/n", `{}`)
	if got := count(a) + count(b); got != "12" {
		t.Errorf("a shared server counted %s", got)
	}
}

// TestSessionHint checks Mcp-Session-Id with a session's own id: a hint that
// only its owner may use.
func TestSessionHint(t *testing.T) {
	t.Parallel()
	native := map[string]builtin.Kind{"everything": factory(counting)}
	w := open(t, twoPeople+servers("n", "{builtin: everything, scope: session}"), native)
	count := func(who []string, hint string) message {
		headers := append(append(modernHeaders("tools/call", "count"), who...), "Mcp-Session-Id", hint)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count",%s}}`, meta(`{}`))
		return w.do(t, "POST", "/mcp/n", body, headers...).answer()
	}
	if got := resultText(t, count(asAda, "")); got != "1" {
		t.Fatalf("counted %s", got)
	}
	var id string
	for _, s := range w.rg.Sessions() {
		if s.Owner == "ada" {
			id = s.ID
		}
	}
	if !strings.HasPrefix(id, "ses_") {
		t.Fatalf("ada's session is %q", id)
	}
	if got := resultText(t, count(asAda, id)); got != "2" {
		t.Errorf("with her session's id ada counted %s", got)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count",%s}}`, meta(`{}`))
	for _, hint := range []string{id, "ses_000000000000"} {
		headers := append(append(modernHeaders("tools/call", "count"), asBob...), "Mcp-Session-Id", hint)
		if r := w.do(t, "POST", "/mcp/n", body, headers...); r.status != http.StatusNotFound {
			t.Errorf("bob with %s: status %d %s", hint, r.status, r.body)
		}
		if r := w.do(t, "POST", "/s/"+hint+"/mcp/n", body, append(modernHeaders("tools/call", "count"), asBob...)...); r.status != http.StatusNotFound {
			t.Errorf("bob at /s/%s: status %d %s", hint, r.status, r.body)
		}
	}
	if got := resultText(t, count(asAda, id)); got != "3" {
		t.Errorf("after bob's tries ada counted %s", got)
	}
}

// TestLateAnswersAreNobodys has a client answer a question of a gateway that is
// gone, just when the next one has asked it something else.
func TestLateAnswersAreNobodys(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, false)
	w := open(t, servers("t", serveSDK(t, s.Server, false)))
	c := w.dial(t, "/mcp/t", bothCaps)
	answer := func(asked message, who string) {
		c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"who":%q}}}`, asked.ID, who))
	}
	first := c.request("tools/call", `{"name":"elicit","arguments":{"k":1}}`).stream.until("elicitation/create")
	w.restart()
	call := c.request("tools/call", `{"name":"elicit","arguments":{"k":2}}`)
	second := call.stream.until("elicitation/create")
	answer(first, "late")
	answer(second, "right")
	if got := resultText(t, call.answer()); got != "accept right" {
		t.Errorf("got %q; the ids were %s and %s", got, first.ID, second.ID)
	}
}

// The record of a client goes with the client, which may be after its session: a start
// forgets those that are left.
func TestClientOfASessionThatEnded(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{}`)
	c, other := w.dial(t, "/s/"+s.ID+"/mcp", `{}`), w.dial(t, "/mcp", `{}`)
	clients := func(want int) {
		t.Helper()
		if all, err := w.db.Clients(t.Context()); err != nil || len(all) != want {
			t.Errorf("%d clients are recorded, want %d (%v)", len(all), want, err)
		}
	}
	if err := w.rg.CloseSession(t.Context(), w.rg.Get(s.ID)); err != nil { // as the reaper does
		t.Fatal(err)
	}
	clients(2)
	w.restart()
	clients(1)
	if r := c.request("ping", `{}`); r.status != http.StatusNotFound {
		t.Errorf("the client of the session: status %d", r.status)
	}
	if r := other.request("ping", `{}`); r.status != http.StatusOK {
		t.Errorf("the other client: status %d", r.status)
	}
}
