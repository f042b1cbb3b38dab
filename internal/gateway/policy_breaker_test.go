package gateway_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestBreakerOpensProbesAndCloses leads a breaker through its states, with calls
// of several sessions, and watches it from outside.
func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up, other := newFailing(t, isModern), newFailing(t, isModern)
		const broken = `, policy: {retry: off, breaker: {failures: 3, open: 1s}}}`
		w := open(t, servers("a", `{url: "`+up.URL+`"`+broken, "b", `{url: "`+other.URL+`"`+broken))
		call := func(server string) *reply {
			return w.modern(t, "/mcp/"+server, `{}`).request("tools/call", "plain", `{"name":"plain"}`)
		}
		looks := func(when, want string, gauge float64) {
			t.Helper()
			if got := w.server(t, "a").Breaker; got != want {
				t.Errorf("%s: GET /v1/servers/a says %q, want %q", when, got, want)
			}
			if got := w.metric(t, "tine_breaker_state", `server="a"`); got != gauge {
				t.Errorf("%s: tine_breaker_state is %v, want %v", when, got, gauge)
			}
			if got := w.server(t, "b").Breaker; got != api.BreakerClosed {
				t.Errorf("%s: the other server's breaker is %q", when, got)
			}
		}
		halfOpen := func() {
			t.Helper()
			testkit.Eventually(t, "the breaker is half-open", func() bool { return w.server(t, "a").Breaker == api.BreakerHalfOpen })
			if got := w.metric(t, "tine_breaker_state", `server="a"`); got != 1 {
				t.Errorf("half-open: tine_breaker_state is %v, want 1", got)
			}
		}
		old := w.dial(t, "/mcp/a", `{}`) // a session of its own
		if got := resultText(t, call("a").answer()); got != "done" {
			t.Fatalf("got %q", got)
		}
		looks("at first", api.BreakerClosed, 0)

		up.next(-1, failures[5].fail)
		wantKind(t, call("a").answer(), api.KindInfrastructure)
		wantKind(t, old.ask("tools/call", `{"name":"plain"}`), api.KindInfrastructure)
		looks("after two failures", api.BreakerClosed, 0)
		wantKind(t, w.dial(t, "/mcp", `{}`).ask("tools/call", `{"name":"a__plain"}`), api.KindInfrastructure)
		arrived := up.callsOf("plain")
		if arrived != 4 {
			t.Errorf("%d calls arrived, want 4", arrived)
		}
		looks("after three", api.BreakerOpen, 2)

		// No call gets through now, whatever session it is of. The breaker may
		// have become half-open meanwhile on a slow machine, so it is looked at
		// before.
		refused := 0
		for range 4 {
			r := call("a")
			e := wantKind(t, r.answer(), api.KindInfrastructure)
			if up.callsOf("plain") > arrived {
				break // it was a probe
			}
			refused++
			if e.RetryAfter < 1 || !e.Retryable || r.header.Get("Retry-After") != strconv.Itoa(e.RetryAfter) {
				t.Errorf("refused with %+v and Retry-After %q", e, r.header.Get("Retry-After"))
			}
		}
		if refused == 0 {
			t.Error("an open breaker let the next call through")
		} else if n := w.metric(t, "tine_refused_total", `reason="breaker",server="a"`); n < float64(refused) {
			t.Errorf("%v refusals are counted, want at least %d", n, refused)
		}
		if got := resultText(t, call("b").answer()); got != "done" {
			t.Errorf("the other server: %q", got)
		}

		// A probe that fails opens it again.
		halfOpen()
		arrived = up.callsOf("plain")
		wantKind(t, call("a").answer(), api.KindInfrastructure)
		if n := up.callsOf("plain") - arrived; n != 1 {
			t.Errorf("%d probes arrived, want 1", n)
		}
		looks("after a probe that failed", api.BreakerOpen, 2)

		// One that works closes it, for all.
		up.next(0, nil)
		halfOpen()
		if got := resultText(t, old.ask("tools/call", `{"name":"plain"}`)); got != "done" {
			t.Errorf("the probe got %q", got)
		}
		looks("after a probe that worked", api.BreakerClosed, 0)
		for range 5 {
			if got := resultText(t, call("a").answer()); got != "done" {
				t.Errorf("closed again: %q", got)
			}
		}
	}
}

// TestOneProbeAtATime holds a probe up and comes with another call.
func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {retry: off, breaker: {failures: 1, open: 50ms}}}`))
	c := w.modern(t, "/mcp/a", `{}`)
	up.next(-1, failures[5].fail)
	c.ask("tools/call", "plain", `{"name":"plain"}`)
	testkit.Eventually(t, "the breaker is half-open", func() bool { return w.server(t, "a").Breaker == api.BreakerHalfOpen })
	release := make(chan struct{})
	up.next(-1, func(w http.ResponseWriter, _ *http.Request, in received) { <-release; writeResult(w, in, done) })
	before := up.callsOf("plain")
	probe := make(chan message, 1)
	go func() { probe <- c.ask("tools/call", "plain", `{"name":"plain"}`) }()
	testkit.Eventually(t, "the probe arrives", func() bool { return up.callsOf("plain") == before+1 })
	for range 3 {
		e := wantKind(t, c.ask("tools/call", "plain", `{"name":"plain"}`), api.KindInfrastructure)
		if e.RetryAfter < 1 {
			t.Errorf("refused with %+v", e)
		}
	}
	if n := up.callsOf("plain") - before; n != 1 {
		t.Errorf("%d calls arrived beside the probe", n-1)
	}
	close(release)
	if got := resultText(t, take(t, probe)); got != "done" {
		t.Errorf("the probe got %q", got)
	}
	if got := w.server(t, "a").Breaker; got != api.BreakerClosed {
		t.Errorf("breaker %q after the probe", got)
	}
}

// TestToolsOwnErrorsOpenNothing has every error that is the tool's or the
// client's.
func TestToolsOwnErrorsOpenNothing(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up := newFailing(t, isModern)
		w := open(t, servers("a", `{url: "`+up.URL+`", policy: {breaker: {failures: 2, open: 1h}}}`))
		c := w.modern(t, "/mcp/a", `{}`)
		for what, fail := range map[string]answer{
			"isError": result1(`{"content":[{"type":"text","text":"no such row"}],"isError":true,"resultType":"complete"}`),
			"a JSON-RPC error": func(w http.ResponseWriter, _ *http.Request, in received) {
				writeFailure(w, http.StatusOK, in, -32000, "it says no")
			},
			"an internal error": func(w http.ResponseWriter, _ *http.Request, in received) {
				writeFailure(w, http.StatusOK, in, -32603, "it broke inside")
			},
			"invalid params": func(w http.ResponseWriter, _ *http.Request, in received) {
				writeFailure(w, http.StatusOK, in, -32602, "wrong arguments")
			},
			"HTTP 401": func(w http.ResponseWriter, _ *http.Request, _ received) {
				http.Error(w, "who are you", http.StatusUnauthorized)
			},
		} {
			up.next(-1, fail)
			before := up.callsOf("plain")
			for range 6 {
				if m := c.ask("tools/call", "plain", `{"name":"plain"}`); what == "isError" && tineError(t, m) != nil {
					t.Errorf("a tool's own error became one of Tine's: %s", m.raw)
				}
			}
			if n := up.callsOf("plain") - before; n != 6 {
				t.Errorf("modern=%v, %s: %d of 6 calls arrived", isModern, what, n)
			}
			if got := w.server(t, "a").Breaker; got != api.BreakerClosed {
				t.Errorf("modern=%v, %s: the breaker is %q", isModern, what, got)
			}
		}
	}
}

// TestCancelledCallsOpenNothing has clients give up on a slow server.
func TestCancelledCallsOpenNothing(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, false)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {breaker: {failures: 1, open: 1h}}}`))
	c := w.dial(t, "/mcp/a", `{}`)
	for range 3 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.post(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hold"}}`)
		}()
		take(t, started)
		c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
		<-ended
	}
	close(release)
	if got := resultText(t, c.ask("tools/call", `{"name":"hold"}`)); got != "done" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestBreakerOverReloads keeps an open breaker open while the config is read
// again and the server's headers change, and has it gone when it is switched off.
func TestBreakerOverReloads(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	entry := func(more string) string {
		return servers("a", `{url: "`+up.URL+`", policy: {retry: off, breaker: {failures: 2, open: 1h}}`+more+`}`)
	}
	w := open(t, entry(""))
	c := w.modern(t, "/mcp/a", `{}`)
	up.next(2, failures[5].fail)
	for range 2 {
		c.ask("tools/call", "plain", `{"name":"plain"}`)
	}
	for _, yaml := range []string{entry(", title: Other"), entry(", headers: {X-Key: other}"), entry(", timeout: 3s")} {
		w.reload(t, yaml)
		wantKind(t, c.ask("tools/call", "plain", `{"name":"plain"}`), api.KindInfrastructure)
	}
	if n := up.callsOf("plain"); n != 2 {
		t.Errorf("%d calls arrived, want 2", n)
	}
	w.reload(t, servers("a", `{url: "`+up.URL+`", policy: {retry: off, breaker: off}}`))
	if got := resultText(t, c.ask("tools/call", "plain", `{"name":"plain"}`)); got != "done" {
		t.Errorf("without a breaker: %q", got)
	}
	if got := w.server(t, "a").Breaker; got != "" {
		t.Errorf("without a breaker its state is %q", got)
	}
}
