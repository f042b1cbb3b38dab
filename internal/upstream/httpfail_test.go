package upstream_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

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
		{name: "too large", want: []string{"infrastructure: ", "larger than the limit", "; limits.message can raise that"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			answer(w, m, `{"x":"%s"}`, huge)
		}},
		{name: "too large, and says so", want: []string{"infrastructure: ", "larger than the limit", "; limits.message can raise that"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
			w.Header().Set("Content-Length", "104857600")
			answer(w, m, `{"x":"%s"}`, huge)
		}},
		{name: "too large, without an end", want: []string{"infrastructure: ", "larger than the limit", "; limits.message can raise that"}, handle: func(w http.ResponseWriter, r *http.Request, m message) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, huge[:1<<16]); err != nil {
					return
				}
			}
		}},
		{name: "too large in events", want: []string{"infrastructure: ", "larger than the limit", "; limits.message can raise that"}, handle: func(w http.ResponseWriter, _ *http.Request, m message) {
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
				testkit.Has(t, "the outcome", got, tt.want...)
				testkit.Lacks(t, "the outcome", got, tt.not...)
				if _, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`)); err != nil && retryable(err) != tt.retry {
					t.Errorf("retryable is %v: %v", retryable(err), err)
				}
				if _, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`)); upstream.TooLarge(err) != strings.HasPrefix(tt.name, "too large") {
					t.Errorf("too large is %v: %v", upstream.TooLarge(err), err)
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
	closed := l.Addr().String()
	l.Close()
	for _, transport := range []string{"auto", "sse", "streamable"} {
		r, _ := reach(t, http.NotFoundHandler(), func(_ *upstream.Options, ep *driver.Endpoint) {
			ep.URL = "http://" + closed + "/mcp?key=s3cret"
			ep.Transport = transport
		})
		got := newClient("c").calls(t, r, "x")
		testkit.Has(t, transport, got, "infrastructure: ", "can't be reached")
		testkit.Lacks(t, transport, got, "s3cret", "k3y")
		testkit.Lacks(t, transport+" status", r.Status().Reason, "s3cret", "k3y")
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError} {
		r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		got := newClient("c").calls(t, r, "x")
		testkit.Has(t, "a server that always says "+fmt.Sprint(status), got, fmt.Sprint("HTTP ", status))
	}
}

// What to do about it is said by the keys of the server, of which several instances
// have the same.
func TestHTTPMends(t *testing.T) {
	as := func(o *upstream.Options, _ *driver.Endpoint) {
		o.Spec.Server, o.Member, o.Conn.Server = "s", "s~1", "s~1"
	}
	r, _ := reach(t, http.NotFoundHandler(), as, func(_ *upstream.Options, ep *driver.Endpoint) { ep.URL = "http://127.0.0.1:1/mcp" })
	testkit.Has(t, "one that is not there", newClient("c").calls(t, r, "x"), "can't be reached", "; check servers.s.url")
	r, _ = reach(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), as)
	testkit.Has(t, "one that is locked", newClient("c").calls(t, r, "x"), "HTTP 401", "; servers.s.headers must hold it")
	r, _ = reach(t, http.RedirectHandler("/other", http.StatusFound), as)
	testkit.Has(t, "one that is elsewhere", newClient("c").calls(t, r, "x"), "HTTP 302", "; set servers.s.url to that")
}

// A call that finds that what the server remembered is gone says so, and is not
// made again on a server that begins anew.
func TestHTTPLostState(t *testing.T) {
	var gone atomic.Bool
	r, _ := reach(t, &web{t: t, handle: func(w http.ResponseWriter, _ *http.Request, m message) { answer(w, m, `{}`) }}, func(_ *upstream.Options, ep *driver.Endpoint) {
		next := ep.Client.Transport
		ep.Client.Transport = tripper(func(r *http.Request) (*http.Response, error) {
			if gone.Load() {
				return nil, fmt.Errorf("the instance is unknown: %w", driver.ErrLost)
			}
			return next.RoundTrip(r)
		})
	})
	c := newClient("c")
	c.calls(t, r, "x")
	gone.Store(true)
	_, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`))
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != api.KindLost || !strings.Contains(e.Message, "the instance is unknown") || !upstream.StateLost(err) {
		t.Errorf("got %v", err)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
