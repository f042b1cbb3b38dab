package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

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
				call := testkit.Within(t, "the call", called)
				cancel(upstream.Cancelled())
				testkit.Has(t, "the outcome", testkit.Within(t, "the outcome", out), "refused: ", "cancelled")
				testkit.Within(t, "the end of the request", closed)
				if !modern {
					if note := testkit.Within(t, "the note", noted); at(note.params, "requestId") != call.id {
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
		for _, limit := range []time.Duration{0, timeout} {
			t.Run(fmt.Sprintf("modern %v, timeout %v", modern, limit), func(t *testing.T) {
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
				r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) { o.CallTimeout = limit })
				out := newClient("c").later(t, r, "x")
				testkit.Within(t, "the call", called)
				r.Close()
				testkit.Has(t, "a pending call", testkit.Within(t, "the end of the call", out), "lost: ")
				s.mu.Lock()
				defer s.mu.Unlock()
				if want := map[bool]string{true: "[]", false: "[session-1]"}[modern]; fmt.Sprint(s.deleted) != want {
					t.Errorf("ended sessions %v, want %s", s.deleted, want)
				}
			})
		}
	}
}
