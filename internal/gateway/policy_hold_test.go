package gateway_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// tooMany answers 429, with a Retry-After where there is one.
func tooMany(retryAfter func() string) answer {
	return func(w http.ResponseWriter, _ *http.Request, _ received) {
		if v := retryAfter(); v != "" {
			w.Header().Set("Retry-After", v)
		}
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}
}

// TestUpstreamLimitIsPassedOn has a server send every caller away for a while.
func TestUpstreamLimitIsPassedOn(t *testing.T) {
	for _, tt := range []struct {
		name       string
		retryAfter func() string
		least      int // seconds the caller is told; zero for nothing
		most       int
	}{
		{"seconds", func() string { return "2" }, 2, 2},
		{"a date", func() string { return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat) }, 2, 3},
		{"nothing", func() string { return "" }, 1, 1},
		{"nonsense", func() string { return "soon" }, 1, 1},
	} {
		for _, isModern := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, modern server=%v", tt.name, isModern), func(t *testing.T) {
				t.Parallel()
				up, other := newFailing(t, isModern), newFailing(t, isModern)
				w := open(t, twoPeople+servers("a", `{url: "`+up.URL+`", `+quickly+`}`, "b", other.URL))
				ada, bob := w.dial(t, "/mcp/a", `{}`, asAda...), w.modern(t, "/mcp/a", `{}`, asBob...)
				ada.get("tools/list", `{}`)
				up.next(1, tooMany(tt.retryAfter))
				r := ada.request("tools/call", `{"name":"reads"}`)
				e := wantKind(t, r.answer(), api.KindRefused)
				if e.RetryAfter < tt.least || e.RetryAfter > tt.most || !e.Retryable {
					t.Errorf("told to wait for %d s, want %d to %d: %+v", e.RetryAfter, tt.least, tt.most, e)
				}
				if got := r.header.Get("Retry-After"); tt.least > 0 && got != strconv.Itoa(e.RetryAfter) {
					t.Errorf("Retry-After %q beside %+v", got, e)
				}
				if n := up.callsOf("reads"); n != 1 {
					t.Errorf("a call that was sent away arrived %d times", n)
				}
				// A caller that comes now is told so without being sent. The time may
				// be over on a slow machine: then it is sent.
				r = bob.request("tools/call", "plain", `{"name":"plain"}`)
				if up.callsOf("plain") == 0 {
					if e := wantKind(t, r.answer(), api.KindRefused); e.RetryAfter < 1 || r.header.Get("Retry-After") == "" {
						t.Errorf("kept back with %+v, Retry-After %q", e, r.header.Get("Retry-After"))
					}
					r := w.do(t, "POST", "/v1/call", `{"tool":"a__plain"}`, append([]string{"Content-Type", "application/json"}, asAda...)...)
					if up.callsOf("plain") == 0 && (r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "") {
						t.Errorf("by the control API: status %d, Retry-After %q, %s", r.status, r.header.Get("Retry-After"), r.body)
					}
				}
				if got := resultText(t, w.modern(t, "/mcp/b", `{}`, asBob...).ask("tools/call", "plain", `{"name":"plain"}`)); got != "done" {
					t.Errorf("another server: %q", got)
				}
				testkit.Eventually(t, "calls are sent again", func() bool {
					return tineError(t, bob.ask("tools/call", "plain", `{"name":"plain"}`)) == nil
				})
				if got := resultText(t, ada.ask("tools/call", `{"name":"plain"}`)); got != "done" {
					t.Errorf("after it: %q", got)
				}
				if got := w.server(t, "a").Breaker; got == api.BreakerOpen {
					t.Error("a 429 opened the breaker")
				}
			})
		}
	}
}

// TestUpstreamLimitSendsWaitersAway has calls wait for a turn at a server that
// then asks for fewer of them.
func TestUpstreamLimitSendsWaitersAway(t *testing.T) {
	t.Parallel()
	up, came, let := oneByOne(t)
	inner := up.answers["tools/call"]
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		came <- argument(in)
		if argument(in) == "first" {
			<-let
			tooMany(func() string { return "60" })(w, r, in)
			return
		}
		inner(w, r, in)
	})
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {concurrency: {calls: 1, wait: 1m}}}`))
	first := w.callAs(t, "first")
	take(t, came)
	var waiting []<-chan *reply
	for i := range 3 {
		waiting = append(waiting, w.callAs(t, strconv.Itoa(i)))
	}
	w.queued(t, 3)
	let <- struct{}{}
	if e := wantRefused(t, take(t, first)); e.RetryAfter != 60 {
		t.Errorf("told to wait for %d s, want 60", e.RetryAfter)
	}
	for _, ch := range waiting {
		wantRefused(t, take(t, ch))
	}
	if n := up.callsOf("plain"); n != 1 {
		t.Errorf("%d calls came, want 1", n)
	}
	if n := w.metric(t, "tine_refused_total", `reason="upstream_limit",server="a"`); n != 3 {
		t.Errorf("%v refusals counted, want 3", n)
	}
}

// TestUpstreamLimitAtTheHandshake has a server that is not even spoken to yet.
func TestUpstreamLimitAtTheHandshake(t *testing.T) {
	t.Parallel()
	up, other := newFailing(t, false), echoServer(t, true, "one")
	for _, method := range []string{"server/discover", "initialize"} {
		up.on(method, tooMany(func() string { return "30" }))
	}
	w := open(t, "limits: {list_wait: 10s}\n"+servers("a", `{url: "`+up.URL+`", `+quickly+`}`, "b", other.URL))
	c := w.modern(t, "/mcp/a", `{}`)
	e := wantKind(t, c.ask("tools/call", "plain", `{"name":"plain"}`), api.KindRefused)
	if e.RetryAfter < 25 || e.RetryAfter > 30 {
		t.Errorf("told to wait for %d s, want 30", e.RetryAfter)
	}
	asked := len(up.of("initialize"))
	for range 3 {
		if e := wantKind(t, c.ask("tools/call", "plain", `{"name":"plain"}`), api.KindRefused); e.RetryAfter < 1 {
			t.Errorf("later: %+v", e)
		}
	}
	result := w.dial(t, "/mcp", `{}`).get("tools/list", `{}`)
	if missing(t, result)["a"] == "" {
		t.Errorf("not named as missing: %s", result)
	}
	if n := len(up.of("initialize")) - asked; n > 1 {
		t.Errorf("asked %d times more though it wants to be left alone", n)
	}
}
