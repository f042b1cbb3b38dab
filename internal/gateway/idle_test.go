package gateway_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A client is not idle while a request of its own runs or a stream of its own is
// open, however long ago it sent something. Its session keeps what it remembers.
func TestClientInUseIsNotReaped(t *testing.T) {
	up, started, release := blocking(t, true)
	w := open(t, servers("a", up.URL, "n", "{builtin: memory, scope: session}"), map[string]builtin.Kind{"memory": remembering()})
	later := func() { w.gw.ReapIdle(time.Now().Add(48 * time.Hour)) }
	const hold = `{"name":"a__hold","arguments":{}}`

	total := 0
	for _, use := range []struct {
		name  string
		begin func(c *legacy) (end func())
	}{
		{"a call", func(c *legacy) func() {
			answered := make(chan message, 1)
			go func() { answered <- c.ask("tools/call", hold) }()
			take(t, started)
			return func() {
				release <- struct{}{}
				if m := take(t, answered); m.Result == nil {
					t.Errorf("the call was not answered: %s", m.raw)
				}
			}
		}},
		{"a batch", func(c *legacy) func() {
			answered := make(chan *reply, 1)
			batch := `[{"jsonrpc":"2.0","id":"b","method":"tools/call","params":` + hold + `}]`
			go func() {
				answered <- w.do(t, "POST", c.path, batch, "Content-Type", "application/json", "Mcp-Session-Id", c.id)
			}()
			take(t, started)
			return func() {
				release <- struct{}{}
				if r := take(t, answered); r.status != http.StatusOK {
					t.Errorf("the batch was not answered: %d %s", r.status, r.body)
				}
			}
		}},
		{"a stream", func(c *legacy) func() {
			s := c.listen()
			return s.close
		}},
	} {
		t.Run(use.name, func(t *testing.T) {
			c := w.dial(t, "/mcp", `{}`)
			add := func() {
				t.Helper()
				total++ // of all connections: what it counts is in the default session
				if got := resultText(t, c.ask("tools/call", `{"name":"n__add","arguments":{}}`)); got != fmt.Sprint(total) {
					t.Errorf("the session counts %s, want %d", got, total)
				}
			}
			add()
			end := use.begin(c)
			later()
			add()
			end()
			add()
			testkit.Eventually(t, "an idle client is closed", func() bool {
				later()
				return c.post(`{"jsonrpc":"2.0","id":"gone","method":"ping"}`).status == http.StatusNotFound
			})
		})
	}
}

// TestProgramsEndWhenTheClientHasLeft looks ten minutes later at a client that has a
// stream open and at one that has none: the servers of the latter end, and start again
// when it comes back.
func TestProgramsEndWhenTheClientHasLeft(t *testing.T) {
	t.Parallel()
	w := open(t, servers("n", "{builtin: everything, scope: session}"), map[string]builtin.Kind{"everything": factory(counting)})
	stays, leaves := w.dial(t, "/mcp/n", `{}`), w.dial(t, "/mcp/n", `{}`)
	stream := stays.listen()
	defer stream.close()
	count := func(c *legacy) string { return resultText(t, c.ask("tools/call", `{"name":"count"}`)) }
	running := func() int {
		var s api.Server
		control(t, w, "GET", "/v1/servers/n", "", &s)
		return s.Instances
	}
	if got := count(stays) + count(leaves); got != "11" || running() != 2 {
		t.Fatalf("they count %s, and %d run", got, running())
	}
	w.gw.ReapIdle(time.Now().Add(9 * time.Minute))
	if n := running(); n != 2 {
		t.Errorf("%d run after nine minutes", n)
	}
	w.gw.ReapIdle(time.Now().Add(11 * time.Minute))
	testkit.Eventually(t, "the server of a client that has left ends", func() bool { return running() == 1 })
	if got := count(stays); got != "2" {
		t.Errorf("the one with a stream counts %s", got)
	}
	if m := leaves.ask("tools/call", `{"name":"count"}`); m.Result == nil {
		t.Errorf("the one that comes back: %s", m.raw)
	}
}

// TestAwayOverARestart has a client that was not heard of for ten minutes count as gone,
// though the gateway was restarted meanwhile.
func TestAwayOverARestart(t *testing.T) {
	t.Parallel()
	w := open(t, "sessions: {implicit: shared}\n"+servers("n", "{builtin: memory, scope: session}"), map[string]builtin.Kind{"memory": remembering()})
	c := w.dial(t, "/mcp", `{}`)
	resultText(t, c.ask("tools/call", `{"name":"n__add","arguments":{}}`))
	restart := func(ago time.Duration) {
		t.Helper()
		w.stop(true)
		db := sqlitetest.Open(t, w.dir)
		recs, err := db.Clients(t.Context())
		if err != nil || len(recs) != 1 {
			t.Fatalf("recorded are %+v, %v", recs, err)
		}
		recs[0].Used = time.Now().Add(-ago)
		if err := db.PutClient(t.Context(), recs[0]); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		w.start()
	}
	restart(9 * time.Minute)
	e := refusal(t, w, "DELETE", "/v1/sessions/default", "", http.StatusConflict, api.KindRefused)
	if e.RetryAfter < 1 || e.RetryAfter > 60 {
		t.Errorf("nine minutes after the client was heard of: %+v", e)
	}
	w.restart() // which is no word of the client either
	if again := refusal(t, w, "DELETE", "/v1/sessions/default", "", http.StatusConflict, api.KindRefused); again.RetryAfter > 60 {
		t.Errorf("after another restart: %+v", again)
	}
	restart(11 * time.Minute)
	if r := w.do(t, "DELETE", "/v1/sessions/default", ""); r.status >= 300 {
		t.Errorf("eleven minutes after: %d %s", r.status, r.body)
	}
}
