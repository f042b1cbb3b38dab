package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

// stepping is a legacy or modern server whose one tool reports progress each
// time the test says so, and then answers.
func stepping(t *testing.T, isModern bool) (up *scripted, step chan string, cancelled chan struct{}) {
	up = script(t, isModern, map[string]string{"tools/list": plainTools})
	step, cancelled = make(chan string, 8), make(chan struct{}, 8)
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		var p struct {
			Meta struct{ ProgressToken rawText } `json:"_meta"`
		}
		decode(t, in.Params, &p)
		send := events(w)
		for n := 1; ; n++ {
			select {
			case s := <-step:
				if s == "answer" {
					send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"finally"}],"resultType":"complete"}}`, in.ID))
					return
				}
				send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, p.Meta.ProgressToken, n, s))
			case <-r.Context().Done():
				cancelled <- struct{}{}
				return
			}
		}
	})
	return up, step, cancelled
}

const steppingCall = `{"name":"echo","arguments":{},"_meta":{"progressToken":"mine"}}`

// progressOf returns the message of a progress notification, and checks whose it
// is.
func progressOf(t *testing.T, m message) string {
	t.Helper()
	var p struct{ ProgressToken, Message string }
	decode(t, m.Params, &p)
	if m.Method != "notifications/progress" || p.ProgressToken != "mine" {
		t.Fatalf("got %s", m.raw)
	}
	return p.Message
}

func TestBrokenCallsAreResumed(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern server=%v", isModern), func(t *testing.T) {
			up, step, _ := stepping(t, isModern)
			w := open(t, servers("a", up.URL))
			c := w.dial(t, "/mcp/a", `{}`)
			step <- "one"
			first := c.request("tools/call", steppingCall)
			m := first.stream.next()
			if got := progressOf(t, m); got != "one" {
				t.Fatalf("got %q", got)
			}
			if m.eid == "" {
				t.Fatal("the event has no id to come back with")
			}
			step <- "two"
			first.stream.next()
			first.stream.close() // as when a laptop is closed

			step <- "three"
			again := c.listen("Last-Event-Id", m.eid)
			for _, want := range []string{"two", "three"} {
				if got := progressOf(t, again.next()); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			again.close()
			step <- "answer"
			// Once more from the start of what it knows: all of it again.
			last := c.listen("Last-Event-Id", m.eid)
			for _, want := range []string{"two", "three"} {
				if got := progressOf(t, last.next()); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if got := resultText(t, last.next()); got != "finally" {
				t.Errorf("got %q", got)
			}
			if n := len(up.of("tools/call")); n != 1 {
				t.Errorf("the server was called %d times", n)
			}
		})
	}
}

// TestSilentCallsAreResumed checks that a call which takes long without a word
// gives its client something to come back with.
func TestSilentCallsAreResumed(t *testing.T) {
	t.Parallel()
	up, step, _ := stepping(t, true)
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	r := c.request("tools/call", `{"name":"echo","arguments":{}}`)
	if r.stream == nil {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	line, err := r.stream.r.ReadString('\n')
	id, ok := strings.CutPrefix(strings.TrimSpace(line), "id:")
	if err != nil || !ok {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	r.stream.close()
	step <- "answer"
	if got := resultText(t, c.listen("Last-Event-Id", strings.TrimSpace(id)).next()); got != "finally" {
		t.Errorf("got %q", got)
	}
}

// TestOnlyTheOwnerResumes checks that an event id is worth nothing to others.
func TestOnlyTheOwnerResumes(t *testing.T) {
	t.Parallel()
	up, step, _ := stepping(t, false)
	w := open(t, servers("a", up.URL))
	c, eve := w.dial(t, "/mcp/a", `{}`), w.dial(t, "/mcp/a", `{}`)
	step <- "one"
	call := c.request("tools/call", steppingCall)
	m := call.stream.next()
	step <- "secret"
	call.stream.next()
	stolen := hear(eve.listen("Last-Event-Id", m.eid))
	step <- "answer"
	if got := resultText(t, call.stream.next()); got != "finally" {
		t.Errorf("got %q", got)
	}
	// What eve's stream carries next is what eve may hear.
	if r := w.do(t, "PATCH", "/v1/servers/a", `{"enabled":false}`, "Content-Type", "application/json"); r.status != http.StatusOK {
		t.Fatalf("patch: %d", r.status)
	}
	if r := w.do(t, "PATCH", "/v1/servers/a", `{"reset":true}`, "Content-Type", "application/json"); r.status != http.StatusOK {
		t.Fatalf("patch: %d", r.status)
	}
	for m := range stolen {
		if strings.Contains(string(m.raw), "secret") || strings.Contains(string(m.raw), "finally") {
			t.Fatalf("eve got %s", m.raw)
		}
		if strings.HasSuffix(m.Method, "/list_changed") {
			break
		}
	}
}

// TestOddEventIDs checks that nonsense in Last-Event-Id gets the general stream
// or a refusal, and never harm.
func TestOddEventIDs(t *testing.T) {
	t.Parallel()
	up, _, _ := stepping(t, false)
	w := open(t, servers("a", up.URL))
	for _, id := range []string{"x", "_", "_1", "a_b", "1_-5", "1_99999999999999999999", strings.Repeat("z", 5000), "\t", "0_0", "é_1"} {
		c := w.dial(t, "/mcp/a", `{}`)
		r := w.do(t, "GET", "/mcp/a", "", append(c.headers(), "Last-Event-Id", id)...)
		if r.status >= 500 {
			t.Errorf("%.20q: status %d", id, r.status)
		}
		c.get("tools/list", `{}`)
	}
}

// TestLeavingIsCancellingInTheModernEra closes the connection of a call, which
// is how such clients cancel.
func TestLeavingIsCancellingInTheModernEra(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for _, caps := range []string{`{}`, bothCaps} {
			up, step, cancelled := stepping(t, isModern)
			w := open(t, servers("a", up.URL))
			step <- "one"
			m := strings.Replace(meta(caps), `"_meta":{`, `"_meta":{"progressToken":"mine",`, 1)
			r := w.do(t, "POST", "/mcp/a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",`+m+`}}`, modernHeaders("tools/call", "echo")...)
			if got := progressOf(t, r.stream.next()); got != "one" {
				t.Errorf("got %q", got)
			}
			r.stream.close()
			take(t, cancelled)
			if !isModern {
				testkit.Eventually(t, "a legacy server is told", func() bool { return len(up.of("notifications/cancelled")) == 1 })
			}
			testkit.Eventually(t, "nothing is in flight", func() bool { return w.gw.InFlight() == 0 })
		}
	}
}

// TestOnlyItsOwnWordCancelsALegacyCall checks a cancellation by notification:
// of this call, of another client's, of none.
func TestOnlyItsOwnWordCancelsALegacyCall(t *testing.T) {
	t.Parallel()
	up, step, cancelled := stepping(t, true)
	w := open(t, servers("a", up.URL))
	c, eve := w.dial(t, "/mcp/a", `{}`), w.dial(t, "/mcp/a", `{}`)
	step <- "one"
	call := c.post(`{"jsonrpc":"2.0","id":"same","method":"tools/call","params":` + steppingCall + `}`)
	call.stream.next()
	const word = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"same","reason":"r"}}`
	eve.post(word)
	c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"other"}}`)
	c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`)
	step <- "two" // it still runs
	if got := progressOf(t, call.stream.next()); got != "two" {
		t.Errorf("got %q", got)
	}
	if r := c.post(`{"jsonrpc":"2.0","id":"same","method":"ping"}`); r.status != http.StatusBadRequest {
		t.Errorf("a second request of the same id: status %d", r.status)
	}
	c.post(word)
	take(t, cancelled)
	for {
		m, err := call.stream.tryNext()
		if err != nil {
			break // no answer to a cancelled request
		}
		if m.Method == "" {
			t.Errorf("a cancelled request is answered %s", m.raw)
		}
	}
}
