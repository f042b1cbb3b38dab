package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// quickly repeats without a breaker in the way and without long pauses.
const quickly = `policy: {retry: {attempts: 3, pause: 1ms, max_pause: 5ms}, breaker: off}`

// TestMutationsAreNeverRepeated counts at the server: a call that may change
// something arrives once, however it fails after that.
func TestMutationsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern server=%v", isModern), func(t *testing.T) {
			up := newFailing(t, isModern)
			w := open(t, servers("a", `{url: "`+up.URL+`", `+quickly+`}`))
			for _, c := range callersOf(t, w, "a") {
				for _, f := range failures {
					for _, tool := range mutations {
						before := up.callsOf(tool)
						up.next(-1, f.fail)
						m := c.call(tool, `{}`).answer()
						if n := up.callsOf(tool) - before; n != 1 {
							t.Errorf("%s, %s: %s reached the server %d times", c.name, f.name, tool, n)
						}
						e := wantKind(t, m, f.kind)
						if e.Server != "a" || !strings.Contains(e.Message, `server "a"`) {
							t.Errorf("%s, %s: the failure does not name the server: %+v", c.name, f.name, e)
						}
					}
					up.next(0, nil)
					if got := resultText(t, c.call("plain", `{}`).answer()); got != "done" {
						t.Errorf("%s: after %s the next call got %q", c.name, f.name, got)
					}
				}
			}
			if n := w.metric(t, "tine_retries_total", `server="a"`); n != 0 {
				t.Errorf("%v retries are counted, want none", n)
			}
		})
	}
}

// TestHarmlessToolsAreRepeated has the same failures at tools that may be called
// again: as often as attempts says, and with an answer as soon as there is one.
func TestHarmlessToolsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern server=%v", isModern), func(t *testing.T) {
			up := newFailing(t, isModern)
			w := open(t, servers("a", `{url: "`+up.URL+`", `+quickly+`}`))
			for _, c := range callersOf(t, w, "a") {
				for _, f := range failures {
					for _, tool := range repeatable {
						for broken, want := range map[int]int{1: 2, 2: 3, -1: 3} {
							before := up.callsOf(tool)
							up.next(broken, f.fail)
							m := c.call(tool, `{}`).answer()
							if n := up.callsOf(tool) - before; n != want {
								t.Errorf("%s, %s %d times: %s reached the server %d times, want %d", c.name, f.name, broken, tool, n, want)
							}
							if broken < 0 {
								wantKind(t, m, f.kind)
							} else if got := resultText(t, m); got != "done" {
								t.Errorf("%s, %s %d times: got %q", c.name, f.name, broken, got)
							}
							up.next(0, nil)
						}
					}
				}
			}
			if n := w.metric(t, "tine_retries_total", `server="a"`); n == 0 {
				t.Error("no retries are counted")
			}
		})
	}
}

// TestListsAndReadsAreRepeated does the same with what only reads by its method.
func TestListsAndReadsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up := newFailing(t, isModern)
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			up.on(method, up.either(up.answers[method]))
		}
		w := open(t, servers("a", `{url: "`+up.URL+`", policy: {retry: {pause: 1ms}, breaker: off, cache: off}}`))
		c := w.dial(t, "/mcp/a", `{}`)
		for method, params := range map[string]string{
			"tools/list": `{}`, "prompts/list": `{}`, "resources/list": `{}`, "resources/templates/list": `{}`,
			"resources/read": `{"uri":"r://x"}`, "prompts/get": `{"name":"p"}`,
		} {
			for _, f := range failures {
				for broken, want := range map[int]int{2: 3, -1: 3} {
					before := len(up.of(method))
					up.next(broken, f.fail)
					m := c.ask(method, params)
					if n := len(up.of(method)) - before; n != want {
						t.Errorf("modern=%v: %s, %s %d times: %d requests, want %d", isModern, method, f.name, broken, n, want)
					}
					if broken < 0 {
						wantKind(t, m, f.kind)
					} else if m.Result == nil {
						t.Errorf("modern=%v: %s, %s %d times: %s", isModern, method, f.name, broken, m.raw)
					}
					up.next(0, nil)
				}
			}
		}
	}
}

// TestHintsByTheirOwnNames calls tools under names that only Tine has for them,
// and before any client listed them.
func TestHintsByTheirOwnNames(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	// Each name means the other at the server.
	w := open(t, servers("a", `{url: "`+up.URL+`", `+quickly+`, tools: {rename: {reads: plain, plain: reads}}}`))
	fail := failures[0].fail
	up.next(-1, fail)
	wantKind(t, w.modern(t, "/mcp/a", `{}`).ask("tools/call", "reads", `{"name":"reads"}`), api.KindLost)
	if n := up.callsOf("plain"); n != 1 {
		t.Errorf("a mutation under the name of a read-only tool reached the server %d times", n)
	}
	wantKind(t, w.modern(t, "/mcp", `{}`).ask("tools/call", "a__plain", `{"name":"a__plain"}`), api.KindLost)
	if n := up.callsOf("reads"); n != 3 {
		t.Errorf("a read-only tool under another name reached the server %d times, want 3", n)
	}
}

// TestChangedHintsCount turns a read-only tool into one that changes things.
func TestChangedHintsCount(t *testing.T) {
	t.Parallel()
	up := newFailing(t, false)
	taps := make(chan func(string), 4)
	up.tap = func(w http.ResponseWriter, r *http.Request) {
		taps <- events(w)
		<-r.Context().Done()
	}
	w := open(t, servers("a", `{url: "`+up.URL+`", `+quickly+`}`))
	c := w.dial(t, "/mcp/a", `{}`)
	c.get("tools/list", `{}`)
	send := take(t, taps)
	up.next(-1, failures[0].fail)
	c.ask("tools/call", `{"name":"reads"}`)
	if n := up.callsOf("reads"); n != 3 {
		t.Fatalf("a read-only tool reached the server %d times, want 3", n)
	}
	up.on("tools/list", result1(`{"tools":[{"name":"reads","inputSchema":{},"annotations":{"readOnlyHint":false}}]}`))
	send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	testkit.Eventually(t, "the list is asked for anew", func() bool {
		return !strings.Contains(string(c.get("tools/list", `{}`)), "plain")
	})
	before := up.callsOf("reads")
	c.ask("tools/call", `{"name":"reads"}`)
	if n := up.callsOf("reads") - before; n != 1 {
		t.Errorf("a tool that is read-only no more reached the server %d times, want 1", n)
	}
}

// TestUnknownHintsRepeatNothing has a server whose list can't be had.
func TestUnknownHintsRepeatNothing(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	up.on("tools/list", func(w http.ResponseWriter, _ *http.Request, _ received) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	w := open(t, servers("a", `{url: "`+up.URL+`", `+quickly+`}`))
	up.next(-1, failures[0].fail)
	for _, tool := range append([]string{"nosuch"}, repeatable...) {
		wantKind(t, w.modern(t, "/mcp/a", `{}`).ask("tools/call", tool, fmt.Sprintf(`{"name":%q}`, tool)), api.KindLost)
		if n := up.callsOf(tool); n != 1 {
			t.Errorf("%s reached the server %d times, want 1", tool, n)
		}
	}
}

// TestUnsentMutationsAreRepeated shuts the server's address: nothing of a call
// was sent, so that it can be made again and arrives once.
func TestUnsentMutationsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for _, met := range []bool{false, true} {
			t.Run(fmt.Sprintf("modern=%v, known before=%v", isModern, met), func(t *testing.T) {
				up := newFailing(t, isModern)
				up.Config.SetKeepAlivesEnabled(false) // or a request may be on its way into a closing connection
				d := newDoor(t, up.URL)
				w := open(t, servers("a", `{url: "`+d.url()+`", policy: {retry: {attempts: 10, pause: 200ms, max_pause: 1s}, breaker: off}}`))
				c := w.modern(t, "/mcp/a", `{}`)
				if met {
					c.get("tools/list", "", `{}`)
				}
				d.shut()
				answered := make(chan message, 1)
				go func() { answered <- c.ask("tools/call", "plain", `{"name":"plain"}`) }()
				testkit.Eventually(t, "it is tried again", func() bool { return w.metric(t, "tine_retries_total", `server="a"`) > 0 })
				d.open()
				if got := resultText(t, take(t, answered)); got != "done" {
					t.Errorf("got %q", got)
				}
				if n := up.callsOf("plain"); n != 1 {
					t.Errorf("reached the server %d times", n)
				}
			})
		}
	}
}

// TestMutationsWaitForAStartingServer has the handshake fail first: the call
// itself was never sent.
func TestMutationsWaitForAStartingServer(t *testing.T) {
	t.Parallel()
	for _, f := range failures {
		up := newFailing(t, false)
		hello := 0
		up.on("initialize", func(w http.ResponseWriter, r *http.Request, in received) {
			if hello++; hello == 1 {
				f.fail(w, r, in)
				return
			}
			w.Header().Set("Mcp-Session-Id", "late")
			writeResult(w, in, `{"protocolVersion":"2025-11-25","capabilities":`+everyCapability+`,"serverInfo":{"name":"late","version":"1"}}`)
		})
		w := open(t, servers("a", `{url: "`+up.URL+`", protocol: 2025-11-25, `+quickly+`}`))
		m := w.modern(t, "/mcp/a", `{}`).ask("tools/call", "plain", `{"name":"plain"}`)
		if e := tineError(t, m); e != nil {
			t.Errorf("%s at the handshake: %+v", f.name, e)
		}
		if n := up.callsOf("plain"); n != 1 {
			t.Errorf("%s at the handshake: the call reached the server %d times, want 1", f.name, n)
		}
	}
}

// TestOffIsOff counts with retry off.
func TestOffIsOff(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {retry: off, breaker: off}}`))
	up.next(-1, failures[0].fail)
	wantKind(t, w.modern(t, "/mcp/a", `{}`).ask("tools/call", "reads", `{"name":"reads"}`), api.KindLost)
	if n := up.callsOf("reads"); n != 1 {
		t.Errorf("reached the server %d times, want 1", n)
	}
}

// TestCancelledCallsAreNotRepeated has clients of both eras go away while their
// call waits for its second attempt.
func TestCancelledCallsAreNotRepeated(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {retry: {attempts: 10, pause: 1m, max_pause: 1m}, breaker: off}}`))
	up.next(-1, failures[0].fail)
	t.Run("by a word", func(t *testing.T) {
		c := w.dial(t, "/mcp/a", `{}`)
		c.get("tools/list", `{}`)
		var wg sync.WaitGroup
		wg.Go(func() {
			c.post(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"reads"}}`)
		})
		testkit.Eventually(t, "the first attempt fails", func() bool { return up.callsOf("reads") == 1 })
		c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
		wg.Wait()
		if n := up.callsOf("reads"); n != 1 {
			t.Errorf("reached the server %d times, want 1", n)
		}
	})
	t.Run("by leaving", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sets",` + meta(`{}`) + `}}`
		req, err := http.NewRequestWithContext(ctx, "POST", w.at("/mcp/a"), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for h := modernHeaders("tools/call", "sets"); len(h) > 0; h = h[2:] {
			req.Header.Set(h[0], h[1])
		}
		left := make(chan error, 1)
		go func() {
			resp, err := w.http.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			left <- err
		}()
		testkit.Eventually(t, "the first attempt fails", func() bool { return up.callsOf("sets") == 1 })
		cancel()
		if err := take(t, left); err == nil {
			t.Error("the call that was left got an answer")
		}
	})
	testkit.Eventually(t, "nothing is running", func() bool { return w.gw.InFlight() == 0 })
	if n := up.callsOf("sets"); n != 1 {
		t.Errorf("reached the server %d times, want 1", n)
	}
}
