package upstream_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

type endpoint = driver.Endpoint

func echoWeb(w http.ResponseWriter, _ *http.Request, m message) {
	if m.id == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer(w, m, `{"got":%s}`, m.params)
}

func TestHTTPRelaysRaw(t *testing.T) {
	const result = `{"z":12345678901234567890,"content":[{"type":"hologram"}],"a":1.50,"isError":true}`
	for _, modern := range []bool{false, true} {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprintf("modern %v, events %v", modern, events), func(t *testing.T) {
				var got string
				s := &web{t: t, modern: modern, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
					got = m.params
					if !events {
						answer(w, m, "%s", result)
						return
					}
					send := stream(w)
					send(": comment\r\n\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":%s,\r\ndata: \"result\":%s}\r\n\r\n", m.id, result)
				}}
				if modern {
					s.session = ""
				}
				r, _ := reach(t, s)
				c := newClient("c")
				req := c.request(t, wire.MethodCallTool, `{"name":"srv__日本","arguments":{"n":12345678901234567890,"f":1.0},"x":[]}`)
				req.Edits = []wire.Edit{{At: req.Params.Target, With: wire.Quote("日本")}}
				req.Name = "日本"
				res, err := r.Call(t.Context(), req)
				if outcome(res, err) != result || res.Events != events {
					t.Errorf("result %s, events %v", outcome(res, err), res.Events)
				}
				testkit.Has(t, "what the server got", got, `"name":"日本","arguments":{"n":12345678901234567890,"f":1.0},"x":[]}`)
				if hello := r.Status().Hello; hello.Modern() != modern {
					t.Errorf("it speaks %s", hello.Version)
				}
			})
		}
	}
}

// Over HTTP each call has a stream of its own, so even with many clients on one
// connection everything goes to the one it belongs to.
func TestHTTPServersRequestsGoToTheirCalls(t *testing.T) {
	const clients = 20
	var ready sync.WaitGroup
	ready.Add(clients)
	var told sync.Map
	var asking atomic.Int64
	waits := sync.Map{}
	r, _ := reach(t, &web{t: t, session: "x", handle: func(w http.ResponseWriter, r *http.Request, m message) {
		if m.method == "" {
			told.Store(m.id, m.result)
			ch, _ := waits.Load(m.id)
			w.WriteHeader(http.StatusAccepted)
			close(ch.(chan struct{}))
			return
		}
		ready.Done()
		ready.Wait() // all are running
		name := wire.FindString([]byte(m.params), "name")
		id := fmt.Sprint(asking.Add(1))
		answered := make(chan struct{})
		waits.Store(id, answered)
		send := stream(w)
		send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1,\"for\":\"%s\"}}\n\n", at(m.params, "_meta", "progressToken"), name)
		send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"%s\"}}\n\n", name)
		send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"elicitation/create\",\"params\":{\"for\":\"%s\"}}\n\n", id, name)
		select {
		case <-answered:
		case <-r.Context().Done():
			return
		}
		got, _ := told.Load(id)
		send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"told\":%s}}\n\n", m.id, got)
	}}, func(o *upstream.Options, _ *driver.Endpoint) { shared(o) })
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			me := fmt.Sprint("client-", n)
			c := newClient(me).answers(`{"action":"accept","by":"` + me + `"}`)
			got := c.does(t, r, wire.MethodCallTool, `{"name":"`+me+`","_meta":{"progressToken":1}}`)
			if want := `{"told":{"action":"accept","by":"` + me + `"}}`; got != want {
				t.Errorf("%s got %s", me, got)
			}
			notes, asked := c.got()
			if want := fmt.Sprintf(`[notifications/progress {"progressToken":1,"progress":1,"for":"%s"} notifications/message {"level":"info","data":"%s"}]`, me, me); fmt.Sprint(notes) != want {
				t.Errorf("%s heard %s", me, notes)
			}
			if want := fmt.Sprintf(`[elicitation/create {"for":"%s"}]`, me); fmt.Sprint(asked) != want {
				t.Errorf("%s was asked %s", me, asked)
			}
		})
	}
	wg.Wait()
}

// A message on a stream of no call does not show whose it is.
func TestHTTPStandaloneStream(t *testing.T) {
	for _, isShared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared %v", isShared), func(t *testing.T) {
			told := make(chan message, 1)
			var opened atomic.Int32
			s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
				if m.method == "" {
					told <- m
					w.WriteHeader(http.StatusAccepted)
					return
				}
				answer(w, m, `{}`)
			}}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Session-Id") != "session-1" || r.Header.Get("Accept") != "text/event-stream" {
					t.Errorf("GET came with %v", r.Header)
				}
				n := opened.Add(1)
				send := stream(w)
				if n == 1 {
					send("id: e1\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
					return // cut; it comes back for more
				}
				if got := r.Header.Get("Last-Event-ID"); got != "e1" {
					t.Errorf("it came back with Last-Event-ID %q", got)
				}
				send("data: {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"sampling/createMessage\",\"params\":{}}\n\n")
				<-r.Context().Done()
			}
			r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) { o.Conn.Shared = isShared })
			w := &watcher{reply: &upstream.Reply{Result: []byte(`{"model":"m"}`)}}
			defer r.Watch(w)()
			newClient("c").answers(`{"model":"m"}`).calls(t, r, "x") // which may still be running
			m := testkit.Within(t, "the answer", told)
			if isShared {
				testkit.Has(t, "a shared server", m.raw, `"id":9`, `"error"`, "shared")
			} else {
				testkit.Has(t, "one client's server", m.raw, `"id":9`, `"result":{"model":"m"}`)
			}
			if got := w.heard(); len(got) != 1 || got[0] != wire.NoteToolsChanged {
				t.Errorf("heard %q", got)
			}
		})
	}
}

// A legacy server may ask on that stream during a call, and what it asks is lost where
// the stream is not open: the first call waits for it. One whose stream is never
// answered is called all the same.
func TestHTTPFirstCallWaitsForTheStream(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprintf("answered %v", answered), func(t *testing.T) {
			called := make(chan struct{})
			var open atomic.Bool
			s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
				if m.method == wire.MethodCallTool {
					if close(called); open.Load() != answered {
						t.Errorf("when the call came the stream was open: %v", open.Load())
					}
				}
				answer(w, m, `{}`)
			}}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if answered {
					select {
					case <-called: // without waiting
					case <-time.After(100 * time.Millisecond):
					}
					open.Store(true)
					stream(w)
				}
				<-r.Context().Done()
			}
			r, _ := reach(t, s)
			defer r.Watch(&watcher{})()
			newClient("c").calls(t, r, "x")
		})
	}
}

// A server may leave its stream open behind the answer, and a proxy may send
// elsewhere; neither holds a call up.
func TestHTTPServersWithHabits(t *testing.T) {
	t.Run("the stream stays open", func(t *testing.T) {
		r, _ := reach(t, &web{t: t, session: "x", handle: func(w http.ResponseWriter, r *http.Request, m message) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"ok\":1}}\n\n", m.id)
			<-r.Context().Done()
		}})
		c := newClient("c")
		for range 5 {
			if got := c.calls(t, r, "x"); got != `{"ok":1}` {
				t.Errorf("got %s", got)
			}
		}
	})
	t.Run("a redirect", func(t *testing.T) {
		s := &web{t: t, session: "x", handle: echoWeb}
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/mcp" {
				http.Redirect(w, r, "/mcp/", http.StatusTemporaryRedirect)
				return
			}
			s.ServeHTTP(w, r)
		}))
		testkit.Has(t, "the outcome", newClient("c").calls(t, r, "x"), `{"got":{"name":"x"}}`)
	})
	t.Run("notifications are passed on", func(t *testing.T) {
		noted := make(chan message, 4)
		s := &web{t: t, session: "x", handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			noted <- m
			w.WriteHeader(http.StatusAccepted)
		}}
		r, _ := reach(t, s)
		conn, err := r.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Forward(t.Context(), wire.NoteRootsChanged, []byte(`{"x":12345678901234567890}`)); err != nil {
			t.Fatal(err)
		}
		if m := testkit.Within(t, "the note", noted); m.method != wire.NoteRootsChanged || m.id != "" || m.params != `{"x":12345678901234567890}` {
			t.Errorf("the server got %s", m.raw)
		}
	})
}
