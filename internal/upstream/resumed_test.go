package upstream_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// again is a second gateway's Upstream on the server of a first one, with what
// that had kept of it.
func again(t *testing.T, s *web, kept json.RawMessage, change ...func(*upstream.Options, *driver.Endpoint)) *rig {
	t.Helper()
	change = append(change, func(o *upstream.Options, _ *driver.Endpoint) {
		o.Adopt = &upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: kept}
	})
	r, _ := reach(t, s, change...)
	return r
}

// first is a gateway that called a server once and is gone; it returns what it
// kept.
func first(t *testing.T, s *web) json.RawMessage {
	t.Helper()
	var kept json.RawMessage
	r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) {
		o.Keep = func(_ driver.Handle, hello json.RawMessage) error {
			kept = hello
			return nil
		}
	})
	newClient("a").calls(t, r, "x")
	r.Leave("")
	return kept
}

func TestHTTPSessionGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		modern  bool
		session string
		forget  bool
		greets  int // all together, of either era
	}{
		"legacy":                     {session: "x", greets: 2},
		"legacy, forgotten":          {session: "x", forget: true, greets: 3},
		"legacy without sessions":    {greets: 2},
		"legacy, now with a session": {forget: true, greets: 3},
		"modern":                     {modern: true, greets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			streams := make(chan string, 10)
			s := &web{t: t, modern: tt.modern, session: tt.session, handle: echoWeb}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				streams <- r.Header.Get("Mcp-Session-Id")
				stream(w)("\n")
				<-r.Context().Done()
			}
			kept := first(t, s)
			if len(s.deleted) > 0 {
				t.Errorf("sessions %q were ended by who is to be followed", s.deleted)
			}
			if tt.forget {
				s.forget()
			}
			var last json.RawMessage
			r := again(t, s, kept, func(o *upstream.Options, _ *driver.Endpoint) {
				o.Keep = func(_ driver.Handle, hello json.RawMessage) error {
					last = hello
					return nil
				}
			})
			defer r.Watch(&watcher{})()
			testkit.Has(t, "the call", newClient("b").calls(t, r, "y"), `{"got":`)
			if n := s.times(wire.MethodInitialize) + s.times(wire.MethodDiscover); n != tt.greets {
				t.Errorf("%d handshakes in all, want %d", n, tt.greets)
			}
			if !tt.modern {
				want := s.session
				for got := range streams {
					if got == want {
						break
					}
				}
			}
			if forgot := tt.forget; forgot != strings.Contains(string(last), s.session) && s.session != "" {
				t.Errorf("what is kept now: %s", last)
			}
			r.Close()
			if tt.session != "" && strings.Join(s.deleted, " ") != s.session {
				t.Errorf("sessions %q were ended, want %s", s.deleted, s.session)
			}
		})
	}
	t.Run("one that an older gateway kept is greeted", func(t *testing.T) {
		s := &web{t: t, session: "x", handle: echoWeb}
		r := again(t, s, json.RawMessage(oldGreeting))
		testkit.Has(t, "the call", newClient("b").calls(t, r, "y"), `{"got":`)
		if n := s.times(wire.MethodInitialize); n != 1 {
			t.Errorf("%d handshakes", n)
		}
	})
}

// A server that keeps no handle of its instances can't be followed, so its
// sessions end.
func TestHTTPSessionEndsWhereNobodyComesBack(t *testing.T) {
	s := &web{t: t, session: "x", handle: echoWeb}
	r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) { o.Keep = nil })
	newClient("a").calls(t, r, "x")
	r.Leave("")
	if strings.Join(s.deleted, " ") != "session-1" {
		t.Errorf("sessions %q were ended", s.deleted)
	}
}

// A copy of an HTTP server knows its ancestor's session.
func TestRestoredHTTPServer(t *testing.T) {
	s := &web{t: t, session: "x", handle: echoWeb}
	kept := first(t, s)
	r, _ := reachBy(t, s, func(i *instance) driver.Instance { return &awake{instance: i, hello: string(kept), forked: true} })
	testkit.Has(t, "the call", newClient("b").calls(t, r, "y"), `{"got":`)
	if n := s.times(wire.MethodInitialize); n != 1 {
		t.Errorf("%d handshakes", n)
	}
}

// A new event stream is a new session: a new connection to such a server makes a
// new handshake, also if the transport was detected.
func TestSSEIsGreetedAgain(t *testing.T) {
	for name, transport := range map[string]string{"by config": "sse", "found": "auto"} {
		t.Run(name, func(t *testing.T) {
			s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			t.Cleanup(func() { closeSessions(s) })
			type none struct{}
			mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, none, error) {
				return &mcp.CallToolResult{}, none{}, nil
			})
			h := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
			var kept json.RawMessage
			change := func(o *upstream.Options, ep *driver.Endpoint) {
				ep.Transport = transport
				o.Keep = func(_ driver.Handle, hello json.RawMessage) error {
					kept = hello
					return nil
				}
			}
			before, _ := reach(t, h, change)
			testkit.Has(t, "the first call", newClient("a").calls(t, before, "x"), `"content":[`)
			before.Leave("")
			after, _ := reach(t, h, change, func(o *upstream.Options, _ *driver.Endpoint) {
				o.Adopt = &upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: kept}
			})
			testkit.Has(t, "the call of who comes back", newClient("b").calls(t, after, "x"), `"content":[`)
		})
	}
}
