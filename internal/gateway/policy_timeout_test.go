package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// The server's timeout in these tests, and how it works through it: it sends a
// sign of life several times within the timeout and answers after more than two
// of them.
const (
	shortTimeout = 2 * time.Second
	workStep     = 150 * time.Millisecond
	workFor      = 5 * time.Second
)

// working is a scripted server with tools that take long: busy reports its
// progress and answers, endless reports and never answers, mute only waits.
func working(t *testing.T, isModern bool) (up *scripted, left chan string) {
	up = script(t, isModern, map[string]string{"tools/list": toolList("busy", "endless", "mute")})
	left = make(chan string, 16)
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		var p struct {
			Meta struct{ ProgressToken rawText } `json:"_meta"`
		}
		decode(t, in.Params, &p)
		tool, send, began := nameOf(in), events(w), time.Now()
		for n := 1; tool != "busy" || time.Since(began) < workFor; n++ {
			select {
			case <-r.Context().Done():
				left <- tool
				return
			case <-time.After(workStep):
			}
			if tool != "mute" {
				send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, p.Meta.ProgressToken, n))
			}
		}
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, done))
	})
	return up, left
}

// workingStream is the same on a stream.
func workingStream(left chan string) *mcp.Server {
	s := sdkServer("working", nil)
	for _, tool := range []string{"busy", "endless", "mute"} {
		s.AddTool(&mcp.Tool{Name: tool, InputSchema: anyObject}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			began := time.Now()
			for n := 1; tool != "busy" || time.Since(began) < workFor; n++ {
				select {
				case <-ctx.Done():
					left <- tool
					return nil, ctx.Err()
				case <-time.After(workStep):
				}
				if tool != "mute" {
					_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(n)})
				}
			}
			return text("done"), nil
		})
	}
	return s
}

// TestTimeouts has slow tools of both eras, over HTTP and on a stream, called by
// clients of both eras.
func TestTimeouts(t *testing.T) {
	for _, server := range []struct {
		name   string
		modern bool
		stream bool
	}{
		{"legacy over HTTP", false, false}, {"modern over HTTP", true, false},
		{"legacy on a stream", false, true}, {"modern on a stream", true, true},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			left := make(chan string, 16)
			entry := "builtin: everything"
			if server.stream {
				entry += ", protocol: " + map[bool]string{false: legacyVersion, true: modernVersion}[server.modern]
			} else {
				up, l := working(t, server.modern)
				left, entry = l, `url: "`+up.URL+`"`
			}
			native := map[string]builtin.Kind{"everything": factory(func() *mcp.Server { return workingStream(left) })}
			w := open(t, servers(
				"a", fmt.Sprintf(`{%s, timeout: %s, policy: {breaker: off}}`, entry, shortTimeout),
				"b", fmt.Sprintf(`{%s, timeout: %s, policy: {breaker: off, max_timeout: 3s}}`, entry, shortTimeout)), native)
			old, young := w.dial(t, "/mcp", `{}`), w.modern(t, "/mcp", `{}`)
			ask := func(modernClient bool, tool, extra string) <-chan message {
				answered := make(chan message, 1)
				params := fmt.Sprintf(`{"name":%q,"arguments":{}%s}`, tool, extra)
				go func() {
					if modernClient {
						body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{},%s}}`, tool,
							strings.Replace(meta(`{}`), `"_meta":{`, `"_meta":{"progressToken":"mine",`, 1))
						answered <- w.do(t, "POST", young.path, body, modernHeaders("tools/call", tool)...).answer()
						return
					}
					answered <- old.ask("tools/call", params)
				}()
				return answered
			}
			const token = `,"_meta":{"progressToken":"mine"}`
			busy, busyModern := ask(false, "a__busy", token), ask(true, "a__busy", "")
			mute, muteModern := ask(false, "a__mute", token), ask(true, "a__mute", "")
			endless, endlessModern := ask(false, "b__endless", token), ask(true, "b__endless", "")
			for what, ch := range map[string]<-chan message{"mute, legacy": mute, "mute, modern": muteModern, "endless, legacy": endless, "endless, modern": endlessModern} {
				e := wantKind(t, take(t, ch), api.KindTimeout)
				if e.Retryable {
					t.Errorf("%s: a call that may have been made is called repeatable: %+v", what, e)
				}
			}
			for what, ch := range map[string]<-chan message{"legacy": busy, "modern": busyModern} {
				if got := resultText(t, take(t, ch)); got != "done" {
					t.Errorf("%s client, with progress beyond the timeout: got %q", what, got)
				}
			}
			// The server is told that no client waits: the four that never answered.
			for range 4 {
				take(t, left)
			}
		})
	}
}

// TestTimeoutsAreNotRepeated counts calls that ran out of time: whether they were
// carried out is not known.
func TestTimeoutsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up := newFailing(t, isModern)
		w := open(t, servers("a", `{url: "`+up.URL+`", timeout: 1s, `+quickly+`}`))
		up.next(-1, func(_ http.ResponseWriter, r *http.Request, _ received) { <-r.Context().Done() })
		for _, c := range callersOf(t, w, "a") {
			before := up.callsOf("plain")
			wantKind(t, c.call("plain", `{}`).answer(), api.KindTimeout)
			if n := up.callsOf("plain") - before; n != 1 {
				t.Errorf("modern=%v, %s: reached the server %d times", isModern, c.name, n)
			}
		}
		up.next(0, nil)
		r := w.do(t, "POST", "/v1/call", `{"tool":"a__plain"}`, "Content-Type", "application/json")
		if r.status != http.StatusOK {
			t.Errorf("afterwards: status %d %s", r.status, r.body)
		}
		up.next(-1, func(_ http.ResponseWriter, r *http.Request, _ received) { <-r.Context().Done() })
		if r := w.do(t, "POST", "/v1/call", `{"tool":"a__plain"}`, "Content-Type", "application/json"); r.status != http.StatusGatewayTimeout {
			t.Errorf("by the control API: status %d %s, want 504", r.status, r.body)
		}
	}
}

// TestProgressOfAnotherCallSavesNobody has one call report progress while another
// says nothing.
func TestProgressOfAnotherCallSavesNobody(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		up, left := working(t, true)
		entry := `url: "` + up.URL + `"`
		if stream {
			entry = "builtin: everything"
		}
		w := open(t, servers("a", fmt.Sprintf(`{%s, timeout: 1s, policy: {max_timeout: 20s}}`, entry)),
			map[string]builtin.Kind{"everything": factory(func() *mcp.Server { return workingStream(left) })})
		c := w.dial(t, "/mcp/a", `{}`)
		c.get("tools/list", `{}`)
		busy := c.request("tools/call", `{"name":"endless","_meta":{"progressToken":"mine"}}`)
		progress := busy.stream.until("notifications/progress")
		if got := string(progress.Params); !strings.Contains(got, `"mine"`) {
			t.Errorf("progress %s", got)
		}
		wantKind(t, c.ask("tools/call", `{"name":"mute","_meta":{"progressToken":"other"}}`), api.KindTimeout)
		if got := take(t, left); got != "mute" {
			t.Errorf("stream=%v: %s was given up, want mute", stream, got)
		}
		c.post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, c.last.Load()-1))
		if got := take(t, left); got != "endless" {
			t.Errorf("stream=%v: %s ended, want endless", stream, got)
		}
	}
}
