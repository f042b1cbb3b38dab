package upstream_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// No address gets a request twice, whatever a server answers to it.
func TestRedirects(t *testing.T) {
	var thief int
	evil := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { thief++ }))
	defer evil.Close()
	for _, tt := range []struct {
		code int
		to   string
		want []string // of the outcome
		sent string   // where the call arrived, in order
	}{
		{307, "/other?x=1", []string{`{"at":"/other"}`}, "/mcp /other"},
		{308, "other/", []string{`{"at":"/other/"}`}, "/mcp /other/"},
		{307, "/again", []string{`{"at":"/other"}`}, "/mcp /again /other"},
		{301, "/other?key=s3cret", []string{"infrastructure: ", "HTTP 301", "/other;", "set servers.srv.url"}, "/mcp"},
		{302, "/other", []string{"infrastructure: ", "HTTP 302", "set servers.srv.url"}, "/mcp"},
		{303, "/other", []string{"infrastructure: ", "HTTP 303", "set servers.srv.url"}, "/mcp"},
		{307, evil.URL + "/x", []string{"infrastructure: ", "HTTP 307", evil.URL + "/x", "set servers.srv.url"}, "/mcp"},
		{308, "http://[::1", []string{"infrastructure: ", "HTTP 308", "set servers.srv.url"}, "/mcp"},
		{308, "", []string{"infrastructure: ", "HTTP 308"}, "/mcp"},
		{307, "/mcp", []string{"infrastructure: ", "HTTP 307", "without an end"}, "/mcp"},
		{307, "/back", []string{"infrastructure: ", "HTTP 307", "without an end"}, "/mcp /back"},
		{307, "/on/", []string{"infrastructure: ", "HTTP 307", "without an end"},
			"/mcp /on/ /on/x /on/xx /on/xxx /on/xxxx /on/xxxxx /on/xxxxxx /on/xxxxxxx /on/xxxxxxxx /on/xxxxxxxxx"},
		{307, "/refused", []string{"infrastructure: ", "HTTP 307", "set servers.srv.url"}, "/mcp"},
	} {
		t.Run(fmt.Sprint(tt.code, " ", tt.to), func(t *testing.T) {
			var mu sync.Mutex
			var sent []string
			s := &web{t: t, handle: func(w http.ResponseWriter, r *http.Request, m message) {
				if m.method != wire.MethodCallTool {
					answer(w, m, `{}`)
					return
				}
				mu.Lock()
				sent = append(sent, r.URL.Path)
				mu.Unlock()
				switch {
				case strings.HasPrefix(r.URL.Path, "/on/"):
					w.Header().Set("Location", r.URL.Path+"x")
					w.WriteHeader(tt.code)
				case r.URL.Path == "/back":
					w.Header().Set("Location", "/mcp#there")
					w.WriteHeader(tt.code)
				case r.URL.Path == "/mcp":
					if tt.to != "" {
						w.Header().Set("Location", tt.to)
					}
					w.WriteHeader(tt.code)
				case r.URL.Path == "/again":
					w.Header().Set("Location", "/other")
					w.WriteHeader(http.StatusPermanentRedirect)
				default:
					answer(w, m, `{"at":%q}`, r.URL.Path)
				}
			}}
			r, _ := reach(t, s, func(_ *upstream.Options, ep *driver.Endpoint) {
				ep.Client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
					if r.URL.Path == "/refused" || len(via) == 0 {
						return errors.New("not there")
					}
					return nil
				}
			})
			c := newClient("c")
			res, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`))
			got := outcome(res, err)
			testkit.Has(t, "the outcome", got, tt.want...)
			testkit.Lacks(t, "the outcome", got, "s3cret", "k3y")
			if now := strings.Join(sent, " "); now != tt.sent {
				t.Errorf("the call arrived at %s, want %s", now, tt.sent)
			}
			var e *api.Error
			if errors.As(err, &e) && (e.Status != tt.code || e.Retryable || upstream.Unsent(err)) {
				t.Errorf("status %d, retryable %v, unsent %v", e.Status, e.Retryable, upstream.Unsent(err))
			}
		})
	}
	if thief > 0 {
		t.Errorf("another origin got %d requests", thief)
	}
}

// The first HTTP transport posts too.
func TestRedirectsOfSSE(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	r, _ := reach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			send := stream(w)
			send("event: endpoint\ndata: /post\n\n")
			send("data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n")
			<-r.Context().Done()
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		calls = append(calls, r.Method+" "+r.URL.Path)
		mu.Unlock()
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
	}), func(_ *upstream.Options, ep *driver.Endpoint) { ep.Transport = "sse" })
	got := newClient("c").calls(t, r, "x")
	testkit.Has(t, "the outcome", got, "infrastructure: ", "HTTP 302", "/elsewhere", "set servers.srv.url")
	mu.Lock()
	defer mu.Unlock()
	for _, c := range calls {
		if c != "POST /post" {
			t.Errorf("there was a %s", c)
		}
	}
}
