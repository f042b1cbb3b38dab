package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// insisting is a legacy server that asks whatever its client said it could do.
func insisting(t *testing.T, method string) (*scripted, chan received) {
	up := script(t, false, map[string]string{"tools/list": plainTools})
	got := make(chan received, 8)
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		id := fmt.Sprintf("%q", "q"+strings.Trim(string(in.ID), `"`))
		reply := up.reply(id)
		send := events(w)
		send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + oddQuestion + `}`)
		select {
		case a := <-reply:
			got <- a
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, done))
		case <-r.Context().Done():
		}
	})
	return up, got
}

// TestClientsAreNotAskedWhatTheyCant checks that a server's request which its
// client did not say it could answer is answered for it: an elicitation is
// declined, anything else refused.
func TestClientsAreNotAskedWhatTheyCant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ method, caps string }{
		{"elicitation/create", `{"sampling":{}}`},
		{"elicitation/create", `{}`},
		{"sampling/createMessage", `{"elicitation":{}}`},
		{"sampling/createMessage", `{"sampling":null}`},
		{"roots/list", bothCaps},
	} {
		up, got := insisting(t, tt.method)
		w := open(t, servers("a", up.URL))
		check := func(who string, m message, before []message) {
			t.Helper()
			if len(before) != 0 || resultText(t, m) != "done" {
				t.Errorf("%s with %s, %s: %v then %s", who, tt.caps, tt.method, before, m.raw)
			}
			a := take(t, got)
			if tt.method == "elicitation/create" && !strings.Contains(string(a.Result), `"decline"`) || tt.method != "elicitation/create" && a.Error == nil {
				t.Errorf("%s with %s: the server's %s was answered %s", who, tt.caps, tt.method, a.raw)
			}
		}
		m, before := w.dial(t, "/mcp/a", tt.caps).request("tools/call", `{"name":"echo"}`).all()
		check("a legacy client", m, before)
		m, before = w.modern(t, "/mcp/a", tt.caps).request("tools/call", "echo", `{"name":"echo"}`).all()
		check("a modern client", m, before)
		m, before = w.do(t, "POST", "/mcp/a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, "Content-Type", "application/json", "Accept", bothTypes).all()
		check("a client without a handshake", m, before)
	}
}

// TestEachHearsItsOwnLogLevel has clients of one session ask for different
// levels. The server is asked for the most, and each client told what it asked
// for.
func TestEachHearsItsOwnLogLevel(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, false)
	w := open(t, twoPeople+servers("t", serveSDK(t, s.Server, false)))
	dial := func(level string) *legacy {
		c := w.dial(t, "/mcp/t", `{}`, asAda...)
		c.get("tools/list", `{}`)
		if level != "" {
			c.get("logging/setLevel", fmt.Sprintf(`{"level":%q}`, level))
		}
		return c
	}
	heard := func(notes []message) string {
		var levels []string
		for _, n := range notes {
			var p struct{ Level string }
			decode(t, n.Params, &p)
			levels = append(levels, p.Level)
		}
		return strings.Join(levels, " ")
	}
	chatty, quiet := dial("debug"), dial("error")
	for c, want := range map[*legacy]string{chatty: "debug warning error", quiet: "error"} {
		_, notes := c.request("tools/call", `{"name":"log","arguments":{}}`).all()
		if got := heard(notes); got != want {
			t.Errorf("a legacy client heard %q, want %q", got, want)
		}
	}
	for level, want := range map[string]string{`"warning"`: "warning error", `"error"`: "error", "": ""} {
		m := meta(`{}`)
		if level != "" {
			m = strings.Replace(m, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":`+level+`,`, 1)
		}
		_, notes := w.do(t, "POST", "/mcp/t", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log","arguments":{},`+m+`}}`,
			append(modernHeaders("tools/call", "log"), asAda...)...).all()
		if got := heard(notes); got != want {
			t.Errorf("a modern client that asked for %q heard %q, want %q", level, got, want)
		}
	}
	if e := quiet.ask("logging/setLevel", `{"level":"loud"}`).failure(t); e.Code != -32602 {
		t.Errorf("an unknown level: %+v", e)
	}
}
