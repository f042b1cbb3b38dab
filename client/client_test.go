package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// serve answers every request with handler and returns a client of it.
func serve(t *testing.T, o client.Options, handler http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	o.URL = s.URL + o.URL
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRequests(t *testing.T) {
	off := false
	tests := []struct {
		name   string
		base   string
		do     func(context.Context, *client.Client) error
		method string
		uri    string
		body   string
		answer string
	}{
		{"status", "", func(ctx context.Context, c *client.Client) error { _, err := c.Status(ctx); return err }, "GET", "/v1/status", "", `{}`},
		{"servers", "/", func(ctx context.Context, c *client.Client) error { _, err := c.Servers(ctx); return err }, "GET", "/v1/servers", "", `{}`},
		{"behind a path", "/tine/", func(ctx context.Context, c *client.Client) error { _, err := c.Servers(ctx); return err }, "GET", "/tine/v1/servers", "", `{}`},
		{"server", "", func(ctx context.Context, c *client.Client) error { _, err := c.Server(ctx, "a/b ?"); return err }, "GET", "/v1/servers/a%2Fb%20%3F", "", `{}`},
		{"climbing id", "", func(ctx context.Context, c *client.Client) error { _, err := c.Server(ctx, ".."); return err }, "GET", "/v1/servers/%2E%2E", "", `{}`},
		{"disable", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.PatchServer(ctx, "x", api.ServerPatch{Enabled: &off})
			return err
		}, "PATCH", "/v1/servers/x", `{"enabled":false}`, `{}`},
		{"tools of all", "", func(ctx context.Context, c *client.Client) error { _, err := c.Tools(ctx, ""); return err }, "GET", "/v1/tools", "", `{}`},
		{"tools of one", "", func(ctx context.Context, c *client.Client) error { _, err := c.Tools(ctx, "a&b"); return err }, "GET", "/v1/tools?server=a%26b", "", `{}`},
		{"call", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.Call(ctx, "x__y", json.RawMessage(`{"z":"<&>","a":12345678901234567890}`))
			return err
		}, "POST", "/v1/call", `{"tool":"x__y","arguments":{"z":"<&>","a":12345678901234567890}}`, `{"result":{}}`},
		{"put an agent", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.PutAgent(ctx, "a", json.RawMessage("{\n \"color\": \"<b>\"}\n"))
			return err
		}, "PUT", "/v1/agents/a", "{\n \"color\": \"<b>\"}\n", `{}`},
		{"blueprint", "", func(ctx context.Context, c *client.Client) error { _, err := c.Blueprint(ctx, "a"); return err }, "GET", "/v1/agents/a/blueprint", "", `{}`},
		{"delete an agent", "", func(ctx context.Context, c *client.Client) error { return c.DeleteAgent(ctx, "a") }, "DELETE", "/v1/agents/a", "", ``},
		{"logs", "", func(ctx context.Context, c *client.Client) error { _, err := c.Logs(ctx, "x", 99); return err }, "GET", "/v1/servers/x/logs?bytes=99", "", `{}`},
		{"calls", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.Calls(ctx, client.CallQuery{Server: "a&b", Session: "ses_x", Run: "r", Principal: "kim", Failed: true, Since: time.Unix(0, 0), Before: "9", Limit: 5})
			return err
		}, "GET", "/v1/calls?before=9&failed=1&limit=5&principal=kim&run=r&server=a%26b&session=ses_x&since=1970-01-01T00%3A00%3A00Z", "", `{}`},
		{"all calls", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.Calls(ctx, client.CallQuery{})
			return err
		}, "GET", "/v1/calls", "", `{}`},
		{"one call", "", func(ctx context.Context, c *client.Client) error { _, err := c.JournalCall(ctx, "../x"); return err }, "GET", "/v1/calls/..%2Fx", "", `{}`},
		{"replay", "", func(ctx context.Context, c *client.Client) error { _, err := c.Replay(ctx, "x"); return err }, "POST", "/v1/calls/x/replay", "", `{"id":"y","result":{}}`},
		{"tokens", "", func(ctx context.Context, c *client.Client) error { _, err := c.Tokens(ctx); return err }, "GET", "/v1/tokens", "", `{}`},
		{"new token", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.NewToken(ctx, api.NewToken{Name: "ci"})
			return err
		}, "POST", "/v1/tokens", `{"name":"ci"}`, `{"token":"x"}`},
		{"confirm", "", func(ctx context.Context, c *client.Client) error { return c.ConfirmToken(ctx, "c i") }, "POST", "/v1/tokens/c%20i/confirm", "", ``},
		{"confirm lost", "", func(ctx context.Context, c *client.Client) error { return c.ConfirmLost(ctx) }, "POST", "/v1/tokens/confirm", "", ``},
		{"revoke", "", func(ctx context.Context, c *client.Client) error { return c.RevokeToken(ctx, "c i") }, "DELETE", "/v1/tokens/c%20i", "", ``},
		{"start a login", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.StartLogin(ctx, "x", "http://127.0.0.1:1/callback")
			return err
		}, "POST", "/v1/servers/x/login", `{"redirect":"http://127.0.0.1:1/callback"}`, `{}`},
		{"finish a login", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.FinishLogin(ctx, "x", "f/1", "code=a&state=b")
			return err
		}, "POST", "/v1/servers/x/login/f%2F1", `{"query":"code=a&state=b"}`, `{}`},
		{"logout", "", func(ctx context.Context, c *client.Client) error { _, err := c.Logout(ctx, "x"); return err }, "DELETE", "/v1/servers/x/login", "", `{}`},
		{"healthz", "", func(ctx context.Context, c *client.Client) error { _, err := c.Healthz(ctx); return err }, "GET", "/healthz", "", `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var method, uri, body, auth string
			c := serve(t, client.Options{URL: tt.base, Token: "tok"}, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				method, uri, body, auth = r.Method, r.RequestURI, string(b), r.Header.Get("Authorization")
				io.WriteString(w, tt.answer)
			})
			if err := tt.do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if method != tt.method || uri != tt.uri || body != tt.body || auth != "Bearer tok" {
				t.Errorf("sent %s %s %q with %q; want %s %s %q", method, uri, body, auth, tt.method, tt.uri, tt.body)
			}
		})
	}
}

func TestCallKeepsBytes(t *testing.T) {
	const result = `{"zz": 12345678901234567890, "content": [ {"type":"new","x":"<é&\u00e9>"} ]}`
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"result":`+result+`}`) })
	got, err := c.Call(t.Context(), "x", nil)
	if err != nil || string(got) != result {
		t.Errorf("got %s, %v; want %s", got, err, result)
	}
}

func TestAnswersThatSayNo(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
		kind    api.Kind // empty: no *api.Error
		status  int
		say     string
	}{
		{"ours", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			io.WriteString(w, `{"kind":"invalid","message":"unknown server \"x\"","server":"x","retryable":false}`)
		}, api.KindInvalid, 404, `unknown server "x"`},
		{"a stranger's 404", func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, "", 0, "does not look like Tine's control API"},
		{"a bare 401", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, api.KindRefused, 401, "token"},
		{"a bare 503", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, api.KindRefused, 503, "later"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		}, "", 0, "elsewhere.invalid"},
		{"not JSON", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }, "", 0, "check the URL"},
		{"no result", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }, "", 0, "without a result"},
		{"an endless error", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for range 64 {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, "", 0, "500"},
		{"too much", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"result":"`+strings.Repeat("x", 2000)+`"}`)
		}, "", 0, "larger than the limit of 1000 bytes"},
		{"broken off", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, "", 0, "whether it was carried out is unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, client.Options{MaxBody: 1000}, tt.handler)
			_, err := c.Call(t.Context(), "x", nil)
			if err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Fatalf("got error %v; want one with %q", err, tt.say)
			}
			var ae *api.Error
			if got := errors.As(err, &ae); got != (tt.kind != "") {
				t.Fatalf("*api.Error: %v, error %v", got, err)
			}
			if ae != nil && (ae.Kind != tt.kind || ae.Status != tt.status) {
				t.Errorf("got %s %d; want %s %d", ae.Kind, ae.Status, tt.kind, tt.status)
			}
		})
	}
}

func TestReadyzWhileDraining(t *testing.T) {
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, `{"status":"draining"}`)
	})
	h, err := c.Readyz(t.Context())
	if err != nil || h.Status != "draining" {
		t.Errorf("got %v, %v", h, err)
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := client.New(client.Options{URL: "http://user:secret@" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Status(t.Context())
	if !errors.Is(err, client.ErrNoGateway) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{l.Addr().String(), "tine serve", "refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q shows the password", err)
	}
}

func TestWrongScheme(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	c, err := client.New(client.Options{URL: strings.Replace(s.URL, "http:", "https:", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "http://") {
		t.Errorf("got %v", err)
	}
}

func TestUntrustedCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it would report the refused handshake
	s.StartTLS()
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
		t.Errorf("got %v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // net/http watches the connection from here on
		cancel()
		<-r.Context().Done() // the cancellation reaches the gateway
	})
	if _, err := c.Call(ctx, "x", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []client.Options{
		{URL: "127.0.0.1:8463"},
		{URL: "localhost"},
		{URL: "unix:///x"},
		{URL: "http://"},
		{URL: "http://a b/"},
		{Token: "a\r\nX-Evil: 1"},
	} {
		if _, err := client.New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if c, err := client.New(client.Options{}); err != nil || c.URL() != client.DefaultURL {
		t.Errorf("zero options: %v, %v", c, err)
	}
}
