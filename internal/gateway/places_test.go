package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestOneUserLeavesRoom has one principal take all it can get. The other one is
// served all the same.
func TestOneUserLeavesRoom(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, "limits: {calls: 80}\n"+twoPeople+servers("a", up.URL))
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`
	post := func(who []string) *reply {
		return w.do(t, "POST", "/mcp/a", body, append([]string{"Content-Type", "application/json"}, who...)...)
	}
	var wg sync.WaitGroup
	hold := func(n int, who []string) {
		for range n {
			wg.Go(func() {
				if r := post(who); r.status != http.StatusOK {
					t.Errorf("within the share: status %d %s", r.status, r.body)
				}
			})
		}
		for range n {
			take(t, started)
		}
	}
	hold(40, asAda) // half of all, with no other principal there
	for range 3 {
		if r := post(asAda); r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
			t.Errorf("ada over her share: status %d %s", r.status, r.body)
		}
		batch := "[" + body + "]"
		if r := w.do(t, "POST", "/mcp/a", batch, append([]string{"Content-Type", "application/json"}, asAda...)...); r.status != http.StatusTooManyRequests {
			t.Errorf("ada over her share in a batch: status %d %s", r.status, r.body)
		}
	}
	hold(20, asBob)
	if r := post(asBob); r.status != http.StatusTooManyRequests {
		t.Errorf("bob over his share: status %d %s", r.status, r.body)
	}
	close(release)
	wg.Wait()
	testkit.Eventually(t, "nothing is in flight", func() bool { return w.gw.InFlight() == 0 })
	if r := post(asAda); r.status != http.StatusOK {
		t.Errorf("afterwards: status %d %s", r.status, r.body)
	}
}

// TestOpenSubscriptionsAreNoShare keeps subscriptions open, which are not
// counted as running requests and take nothing from their principal's share.
func TestOpenSubscriptionsAreNoShare(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, "limits: {calls: 60}\n"+twoPeople+servers("a", up.URL))
	c := w.modern(t, "/mcp", `{}`, asAda...)
	for range 20 {
		if r := c.request("subscriptions/listen", "", `{"notifications":{"toolsListChanged":true}}`); r.stream == nil {
			t.Fatalf("status %d %s", r.status, r.body)
		} else {
			r.stream.next() // acknowledged
		}
	}
	var wg sync.WaitGroup
	for _, who := range [][]string{asBob, asBob, asAda} {
		for range 13 {
			wg.Go(func() {
				if m := w.modern(t, "/mcp/a", `{}`, who...).ask("tools/call", "hold", `{"name":"hold"}`); m.Result == nil {
					t.Errorf("refused: %s", m.raw)
				}
			})
		}
		for range 13 {
			take(t, started)
		}
	}
	close(release)
	wg.Wait()
}

// TestClientsOfOneUser opens clients and forgets them. The oldest unused one
// makes room, and those of others stay.
func TestClientsOfOneUser(t *testing.T) {
	t.Parallel()
	w := open(t, twoPeople+"servers:\n  a: {builtin: time, scope: shared}\n", map[string]builtin.Kind{"time": builtinOf(newTalkative(t, false))})
	other := w.dial(t, "/mcp/a", `{}`, asBob...)
	listens := w.dial(t, "/mcp/a", `{}`, asAda...)
	listens.listen()
	oldest := w.dial(t, "/mcp/a", `{}`, asAda...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 125 {
				w.dial(t, "/mcp/a", `{}`, asAda...)
			}
		})
	}
	wg.Wait()
	newest := w.dial(t, "/mcp/a", `{}`, asAda...)
	if r := oldest.request("ping", `{}`); r.status != http.StatusNotFound {
		t.Errorf("the oldest client: status %d", r.status)
	}
	for name, c := range map[string]*legacy{"of another principal": other, "that listens": listens, "the newest": newest} {
		if r := c.request("ping", `{}`); r.status != http.StatusOK {
			t.Errorf("%s: status %d %s", name, r.status, r.body)
		}
	}
	all, err := w.db.Clients(t.Context())
	if err != nil || len(all) != 1001 {
		t.Errorf("%d clients are kept, %v", len(all), err)
	}
}

// TestPendingCallsOfOneUser leaves questions unanswered: another principal can
// still be asked.
func TestPendingCallsOfOneUser(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, false)
	w := open(t, twoPeople+servers("t", serveSDK(t, s.Server, false)))
	ada, bob := w.modern(t, "/mcp/t", bothCaps, asAda...), w.modern(t, "/mcp/t", bothCaps, asBob...)
	const call = `{"name":"elicit","arguments":{}}`
	var last inputRequired
	for range 64 {
		last = question(t, ada.ask("tools/call", "elicit", call))
	}
	if m := ada.ask("tools/call", "elicit", call); !strings.Contains(string(m.Result), "decline") {
		t.Errorf("ada, of whom 64 calls wait: %s", m.raw)
	}
	q := question(t, bob.ask("tools/call", "elicit", call))
	if got := resultText(t, bob.ask("tools/call", "elicit", q.retry("elicit", q.accept("bob")))); got != "accept bob" {
		t.Errorf("bob got %q", got)
	}
	// What can't be read is said, and spoils nothing.
	if m := ada.ask("tools/call", "elicit", last.retry("elicit", `[1]`)); m.Error == nil {
		t.Errorf("answers that are none: %s", m.raw)
	}
	if got := resultText(t, ada.ask("tools/call", "elicit", last.retry("elicit", last.accept("ada")))); got != "accept ada" {
		t.Errorf("ada got %q", got)
	}
}

// TestPendingCallsFollowTheRules takes the tool away from who is being asked.
func TestPendingCallsFollowTheRules(t *testing.T) {
	t.Parallel()
	for view, tool := range map[string]string{"/mcp/t": "echo", "/mcp": "t__echo"} {
		up := script(t, false, map[string]string{"tools/list": plainTools})
		ended, answered := make(chan struct{}), make(chan struct{})
		up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
			reply := up.reply(`"q"`)
			events(w)(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`)
			defer close(ended)
			select {
			case got := <-reply:
				if strings.Contains(string(got.Result), "accept") {
					close(answered)
				}
			case <-r.Context().Done():
			}
		})
		rules := func(tools string) string {
			return twoPeople + "  rules: [{principals: [ada], tools: [" + tools + "]}]\n" + servers("t", up.URL)
		}
		w := open(t, rules(`"*"`))
		c := w.modern(t, view, bothCaps, asAda...)
		q := question(t, c.ask("tools/call", tool, fmt.Sprintf(`{"name":%q}`, tool)))
		w.reload(t, rules(`t__other`))
		e := c.ask("tools/call", tool, q.retry(tool, q.accept("ada"))).failure(t)
		if !strings.HasPrefix(e.Message, "Unknown tool") {
			t.Errorf("%s: %s", view, e.Message)
		}
		take(t, ended)
		select {
		case <-answered:
			t.Errorf("%s: the server got the answer", view)
		default:
		}
	}
}

// TestEndingAClientIsQuick ends a client whose server takes its time to hear of
// it.
func TestEndingAClientIsQuick(t *testing.T) {
	t.Parallel()
	const n = 12
	up := echoServer(t, false, "one")
	up.on("resources/subscribe", result1(`{}`))
	hang := make(chan struct{})
	up.on("resources/unsubscribe", func(w http.ResponseWriter, r *http.Request, in received) {
		select {
		case <-hang:
			writeResult(w, in, `{}`)
		case <-r.Context().Done():
		}
	})
	w := open(t, sharedSession+twoPeople+servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`, asAda...)
	for i := range n {
		c.get("resources/subscribe", fmt.Sprintf(`{"uri":"r://%d"}`, i))
	}
	if r := w.do(t, "DELETE", "/mcp/a", "", append(asAda, "Mcp-Session-Id", c.id)...); r.status != http.StatusNoContent {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	testkit.Eventually(t, "several are told at once", func() bool { return len(up.of("resources/unsubscribe")) >= 8 })
	close(hang)
	testkit.Eventually(t, "all are told", func() bool { return len(up.of("resources/unsubscribe")) == n })
}

// TestForgedHeadersAtEveryDoor checks that mirror headers which say something
// else than the body are refused wherever a message comes in.
func TestForgedHeadersAtEveryDoor(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	stream, post := openEvents(t, w, "/sse/a")
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one"}}`
	for _, tt := range []struct {
		path, body string
		headers    []string
	}{
		{"/mcp/a", body, []string{"Mcp-Method", "tools/list"}},
		{"/mcp/a", "[" + body + "]", []string{"Mcp-Method", "tools/list"}},
		{"/mcp/a", "[" + body + "]", []string{"Mcp-Method", "tools/call"}},
		{"/mcp/a", "[" + body + "]", []string{"Mcp-Name", "one"}},
		{post, body, []string{"Mcp-Method", "tools/list"}},
		{post, body, []string{"Mcp-Method", "tools/call", "Mcp-Name", "other"}},
		{post, body, []string{"Mcp-Name", "one", "Mcp-Name", "other"}},
		{post, "[" + body + "]", []string{"Mcp-Method", "tools/call"}},
	} {
		w.do(t, "POST", tt.path, tt.body, append([]string{"Content-Type", "application/json"}, tt.headers...)...).wantError(http.StatusBadRequest, -32020)
	}
	if n := len(up.of("tools/call")); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
	if r := w.do(t, "POST", post, body, "Content-Type", "application/json", "Mcp-Method", "tools/call", "Mcp-Name", "one"); r.status != http.StatusAccepted {
		t.Errorf("headers that match: status %d %s", r.status, r.body)
	}
	if m := stream.next(); m.Result == nil {
		t.Errorf("answered %s", m.raw)
	}
}

// TestNotesDuringHandshakes has a session say something while clients of event
// streams shake hands. It is for the race detector.
func TestNotesDuringHandshakes(t *testing.T) {
	t.Parallel()
	w := open(t, twoPeople+"servers:\n  a: {builtin: time, scope: shared}\n", map[string]builtin.Kind{"time": builtinOf(newTalkative(t, false))})
	w.dial(t, "/mcp", `{}`, asAda...).get("tools/list", `{}`)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	sessions := w.rg.Sessions()
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, s := range sessions {
				s.Announce("a", "notifications/tools/list_changed")
			}
		}
	})
	for range 20 {
		st, post := openEvents(t, w, "/sse", asAda...)
		w.do(t, "POST", post, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`,
			append([]string{"Content-Type", "application/json"}, asAda...)...)
		st.close()
	}
	close(stop)
	wg.Wait()
}

// TestSettleWaitsForHandlers has a running request that no end of anything cuts
// off: its body is still coming.
func TestSettleWaitsForHandlers(t *testing.T) {
	t.Parallel()
	w := open(t, servers("a", echoServer(t, true, "one").URL))
	body, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.at("/mcp/a"), body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := w.http.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Eventually(t, "the request is being handled", func() bool { return !w.gw.Settle(gone) })
	_ = send.Close()
	if !w.gw.Settle(t.Context()) {
		t.Error("the request is still being handled")
	}
	take(t, answered)
}
