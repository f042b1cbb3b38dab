package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
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
				wantHas(t, "what the server got", got, `"name":"日本","arguments":{"n":12345678901234567890,"f":1.0},"x":[]}`)
				if hello := r.Status().Hello; hello.Modern() != modern {
					t.Errorf("it speaks %s", hello.Version)
				}
			})
		}
	}
}

func TestHTTPFailures(t *testing.T) {
	huge := strings.Repeat("x", 2<<20)
	tests := []struct {
		name   string
		handle func(w http.ResponseWriter, r *http.Request, m message)
		want   []string
		not    []string
		retry  bool
	}{
		{name: "401", want: []string{"refused: ", "401", "servers.srv.headers"}, not: []string{"k3y"}, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			http.Error(w, "token expired", http.StatusUnauthorized)
		}},
		{name: "403", want: []string{"refused: ", "403"}, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			http.Error(w, "no", http.StatusForbidden)
		}},
		{name: "429", want: []string{"refused: ", "429", "retry after 7"}, retry: true, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}},
		{name: "500", want: []string{"infrastructure: ", "500", "stack trace"}, retry: true, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			http.Error(w, "stack trace", http.StatusInternalServerError)
		}},
		{name: "502 of a proxy", want: []string{"infrastructure: ", "502"}, retry: true, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>"+huge)
		}},
		{name: "an error of the server's own, with a status", want: []string{`error:{"code":-32602,"message":"no such tool"}`}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			fail(w, http.StatusBadRequest, m, -32602, "no such tool")
		}},
		{name: "202 and nothing", want: []string{"infrastructure: ", "202"}, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			w.WriteHeader(http.StatusAccepted)
		}},
		{name: "a page", want: []string{"infrastructure: ", "not an MCP answer", "Welcome"}, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>Welcome</h1>")
		}},
		{name: "nothing at all", want: []string{"infrastructure: "}, handle: func(http.ResponseWriter, *http.Request, message) {}},
		{name: "an answer to something else", want: []string{"infrastructure: ", "another request"}, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			answer(w, message{id: `"other"`}, `{}`)
		}},
		{name: "a request for an answer", want: []string{"infrastructure: "}, handle: func(w http.ResponseWriter, _ *http.Request, _ message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		}},
		{name: "too large", want: []string{"infrastructure: ", "larger than the limit"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			answer(w, m, `{"x":"%s"}`, huge)
		}},
		{name: "too large, and says so", want: []string{"infrastructure: ", "larger than the limit"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			w.Header().Set("Content-Length", "104857600")
			answer(w, m, `{"x":"%s"}`, huge)
		}},
		{name: "too large, without an end", want: []string{"infrastructure: ", "larger than the limit"}, handle: func(w http.ResponseWriter, r *http.Request, m message) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, huge[:1<<16]); err != nil {
					return
				}
			}
		}},
		{name: "too large in events", want: []string{"infrastructure: ", "larger than the limit"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"x\":\"%s\"}}\n\n", m.id, huge)
		}},
		{name: "garbage in events, then the answer", want: []string{`{"ok":1}`}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			send := stream(w)
			send("garbage\n\ndata: garbage\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{}}\n\nid: 1\nretry: 1\ndata:\n\n")
			send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"ok\":1}}\n\n", m.id)
		}},
		{name: "events that end too soon", want: []string{"lost: ", "before the answer"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n")
		}},
		{name: "events that are cut in a line", want: []string{"lost: ", "before the answer"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"resu", m.id)
			panic(http.ErrAbortHandler)
		}},
		{name: "a body that is cut", want: []string{"lost: "}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			w.Header().Set("Content-Length", "1000")
			answer(w, m, `{}`)
			panic(http.ErrAbortHandler)
		}},
		{name: "the connection breaks", want: []string{"lost: ", "connection broke"}, not: []string{"/mcp"}, handle: func(http.ResponseWriter, *http.Request, message) {
			panic(http.ErrAbortHandler)
		}},
	}
	for _, tt := range tests {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, modern %v", tt.name, modern), func(t *testing.T) {
				r, _ := reach(t, &web{t: t, modern: modern, handle: func(w http.ResponseWriter, r *http.Request, m message) {
					if m.method == wire.MethodPing {
						answer(w, m, `{"pong":1}`)
						return
					}
					tt.handle(w, r, m)
				}})
				c := newClient("c")
				got := c.calls(t, r, "x")
				wantHas(t, "the outcome", got, tt.want...)
				wantNot(t, "the outcome", got, tt.not...)
				if _, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`)); err != nil && retryable(err) != tt.retry {
					t.Errorf("retryable is %v: %v", retryable(err), err)
				}
				if got := c.does(t, r, wire.MethodPing, ""); got != `{"pong":1}` {
					t.Errorf("the next request got %s", got)
				}
			})
		}
	}
}

func TestHTTPCannotBeReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	for _, transport := range []string{"auto", "sse", "streamable"} {
		r, _ := reach(t, http.NotFoundHandler(), func(_ *upstream.Options, ep *driver.Endpoint) {
			ep.URL = "http://" + nobody + "/mcp?key=s3cret"
			ep.Transport = transport
		})
		got := newClient("c").calls(t, r, "x")
		wantHas(t, transport, got, "infrastructure: ", "can't be reached")
		wantNot(t, transport, got, "s3cret", "k3y")
		wantNot(t, transport+" status", r.Status().Reason, "s3cret", "k3y")
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError} {
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		got := newClient("c").calls(t, r, "x")
		wantHas(t, "a server that always says "+fmt.Sprint(status), got, fmt.Sprint("HTTP ", status))
	}
}

func TestHTTPCancel(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprintf("modern %v, events %v", modern, events), func(t *testing.T) {
				called, closed, noted := make(chan message, 1), make(chan struct{}, 1), make(chan message, 1)
				r, _ := reach(t, &web{t: t, modern: modern, handle: func(w http.ResponseWriter, r *http.Request, m message) {
					if m.method == wire.NoteCancelled {
						noted <- m
						w.WriteHeader(http.StatusAccepted)
						return
					}
					if events {
						stream(w)
					}
					called <- m
					<-r.Context().Done()
					closed <- struct{}{}
				}})
				ctx, cancel := context.WithCancelCause(t.Context())
				out := make(chan string, 1)
				go func() {
					out <- outcome(r.Call(ctx, newClient("c").request(t, wire.MethodCallTool, `{"name":"x"}`)))
				}()
				call := within(t, "the call", called)
				cancel(upstream.Cancelled())
				wantHas(t, "the outcome", within(t, "the outcome", out), "refused: ", "cancelled")
				within(t, "the end of the request", closed)
				if !modern {
					if note := within(t, "the note", noted); at(note.params, "requestId") != call.id {
						t.Errorf("cancelled %s, the call was %s", note.params, call.id)
					}
				}
				r.Close()
				select {
				case m := <-noted:
					t.Errorf("the server got %s", m.raw)
				default:
				}
			})
		}
	}
}

func TestHTTPClose(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, timeout := range []time.Duration{0, patience} {
			t.Run(fmt.Sprintf("modern %v, timeout %v", modern, timeout), func(t *testing.T) {
				s := &web{t: t, modern: modern, session: "x"}
				if modern {
					s.session = ""
				}
				called := make(chan struct{}, 1)
				s.handle = func(w http.ResponseWriter, r *http.Request, m message) {
					if m.method != wire.MethodCallTool {
						w.WriteHeader(http.StatusAccepted)
						return
					}
					called <- struct{}{}
					<-r.Context().Done()
				}
				r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) { o.CallTimeout = timeout })
				out := newClient("c").later(t, r, "x")
				within(t, "the call", called)
				r.Close()
				wantHas(t, "a call under way", within(t, "the end of the call", out), "lost: ")
				s.mu.Lock()
				defer s.mu.Unlock()
				if want := map[bool]string{true: "[]", false: "[session-1]"}[modern]; fmt.Sprint(s.deleted) != want {
					t.Errorf("ended sessions %v, want %s", s.deleted, want)
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
		ready.Wait() // all are under way
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

// What comes on the stream of no call can't be told whose it is.
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
			newClient("c").calls(t, r, "x")
			m := within(t, "the answer", told)
			if isShared {
				wantHas(t, "a shared server", m.raw, `"id":9`, `"error"`, "shared")
			} else {
				wantHas(t, "one client's server", m.raw, `"id":9`, `"result":{"model":"m"}`)
			}
			if got := w.heard(); len(got) != 1 || got[0] != wire.NoteToolsChanged {
				t.Errorf("heard %q", got)
			}
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
		wantHas(t, "the outcome", newClient("c").calls(t, r, "x"), `{"got":{"name":"x"}}`)
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
		if m := within(t, "the note", noted); m.method != wire.NoteRootsChanged || m.id != "" || m.params != `{"x":12345678901234567890}` {
			t.Errorf("the server got %s", m.raw)
		}
	})
}
