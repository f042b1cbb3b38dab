package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

// reached is a driver of one URL, and its instance.
type reached struct {
	url  string
	done chan struct{}
}

func (d *reached) Info() driver.Info { return driver.Info{Name: "reached"} }
func (d *reached) Start(context.Context, driver.Spec) (driver.Instance, error) {
	return &reached{d.url, make(chan struct{})}, nil
}
func (d *reached) Adopt(context.Context, driver.Handle, *slog.Logger) (driver.Instance, error) {
	return nil, driver.ErrGone
}
func (d *reached) Handle() driver.Handle { return driver.Handle{} }
func (d *reached) Dial(context.Context) (driver.Link, error) {
	return driver.Link{HTTP: &driver.Endpoint{URL: d.url, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Transport: "streamable"}}, nil
}
func (d *reached) Done() <-chan struct{}                { return d.done }
func (d *reached) Err() error                           { return nil }
func (d *reached) Logs(int64) (io.ReadCloser, error)    { return nil, errors.New("none") }
func (d *reached) Stop(context.Context) error           { return nil }
func (d *reached) Leave() error                         { return nil }
func (d *reached) Hold(context.Context) (func(), error) { return func() {}, nil }

// A caller's mistake, and an answer that is too large for the gateway, open no
// breaker: that would keep other callers from a server that is well.
func TestCallersMistakesOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		name   string
		handle func(w http.ResponseWriter, id string)
		open   bool
	}{
		{"400", func(w http.ResponseWriter, _ string) { http.Error(w, "bad arguments", http.StatusBadRequest) }, false},
		{"401", func(w http.ResponseWriter, _ string) { http.Error(w, "no", http.StatusUnauthorized) }, false},
		{"404", func(w http.ResponseWriter, _ string) { http.Error(w, "no", http.StatusNotFound) }, false},
		{"413", func(w http.ResponseWriter, _ string) { http.Error(w, "too much", http.StatusRequestEntityTooLarge) }, false},
		{"500", func(w http.ResponseWriter, _ string) { http.Error(w, "oh", http.StatusInternalServerError) }, true},
		{"too large", func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"x":"%s"}}`, id, strings.Repeat("x", 1<<17))
		}, false},
		{"too large in events", func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"x\":\"%s\"}}\n\n", id, strings.Repeat("x", 1<<17))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				m, _ := wire.Scan(body)
				if m.Method != wire.MethodDiscover {
					tt.handle(w, string(m.ID))
					return
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":[%q],"capabilities":{}}}`, m.ID, wire.Latest)
			}))
			defer web.Close()
			s, _ := world(t, breaks(3))
			log := slog.New(slog.DiscardHandler)
			up := upstream.New(upstream.Options{
				Spec: driver.Spec{Server: "x"}, Driver: &reached{url: web.URL}, Log: log, ConnectTimeout: time.Minute,
				Conn: upstream.ConnOptions{Server: "x", Limit: 1 << 16, Log: log},
				Wrap: func(next upstream.Caller) upstream.Caller { return s.Chain(next, policy.ChainOptions{}) },
			})
			defer up.Close()
			for range 6 {
				if _, err := up.Call(t.Context(), tool(t, "a", "add")); err == nil {
					t.Fatal("the call went well")
				}
			}
			if got := s.Figures().Breaker == api.BreakerOpen; got != tt.open {
				t.Errorf("open %v, want %v", got, tt.open)
			}
		})
	}
}
