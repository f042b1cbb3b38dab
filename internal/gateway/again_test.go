package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

const helloAgain = `{"jsonrpc":"2.0","id":"again","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`

// A second handshake on a connection is refused, and leaves nothing behind that
// is never ended. The first goes on.
func TestSecondInitialize(t *testing.T) {
	up := script(t, false, map[string]string{"tools/list": plainTools, "tools/call": strangeResult})
	refused := func(t *testing.T, m message) {
		t.Helper()
		if string(m.ID) != `"again"` || m.failure(t).Code != -32600 {
			t.Errorf("a second handshake is answered with %s", m.raw)
		}
	}
	t.Run("streamable HTTP", func(t *testing.T) {
		w := open(t, servers("a", up.URL))
		c := w.dial(t, "/mcp", `{}`)
		for range 3 {
			r := c.post(helloAgain)
			if refused(t, r.answer()); r.status != http.StatusBadRequest || r.header.Get("Mcp-Session-Id") != "" {
				t.Errorf("status %d, headers %v", r.status, r.header)
			}
		}
		if clients, err := w.db.Clients(t.Context()); err != nil || len(clients) != 1 {
			t.Errorf("%d clients are recorded, %v", len(clients), err)
		}
		if all := w.rg.Sessions(); len(all) != 1 {
			t.Errorf("there are %d sessions", len(all))
		}
		c.get("tools/list", `{}`)

		// A client that the gateway does not know any more begins anew.
		if r := w.do(t, "DELETE", c.path, "", c.headers()...); r.status != http.StatusNoContent {
			t.Fatalf("DELETE: %d", r.status)
		}
		if r := c.post(helloAgain); r.answer().Result == nil || r.header.Get("Mcp-Session-Id") == "" {
			t.Errorf("an unknown client: status %d", r.status)
		}
	})
	t.Run("event stream", func(t *testing.T) {
		w := open(t, servers("a", up.URL))
		s, post := openEvents(t, w, "/sse")
		send := func(body string) message {
			w.do(t, "POST", post, body, "Content-Type", "application/json")
			return s.next()
		}
		if m := send(helloAgain); m.Result == nil {
			t.Fatalf("the first: %s", m.raw)
		}
		refused(t, send(helloAgain))
		if m := send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); m.Result == nil {
			t.Errorf("afterwards: %s", m.raw)
		}
	})
	t.Run("stdio, after one that failed", func(t *testing.T) {
		d := newDoor(t, up.URL)
		d.shut()
		w := open(t, servers("a", d.url()))
		in, out, _ := serveStdio(t, w, "a", false)
		next := lines(t, out)
		send := func(body string) message {
			if _, err := in.Write([]byte(body + "\n")); err != nil {
				t.Fatal(err)
			}
			return next()
		}
		if m := send(helloAgain); m.Error == nil {
			t.Fatalf("a handshake for a server that is not there: %s", m.raw)
		}
		d.open()
		testkit.Eventually(t, "another handshake works", func() bool {
			m := send(helloAgain)
			if m.Result == nil && strings.Contains(string(m.raw), "initialized already") {
				t.Fatalf("it is refused for the one that failed: %s", m.raw)
			}
			return m.Result != nil
		})
		refused(t, send(helloAgain))
	})
}
