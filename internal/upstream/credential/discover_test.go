package credential

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

func TestMetadataIsChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*peer, *Settings)
		part   string
	}{
		"another resource":  {func(p *peer, _ *Settings) { p.resource = "https://other.example/mcp" }, `got metadata resource \"https://other.example/mcp\"`},
		"another issuer":    {func(p *peer, _ *Settings) { p.issuer = "https://other.example" }, "does not match"},
		"auth_url in clear": {func(_ *peer, s *Settings) { s.AuthURL = "http://idp.example/authorize" }, "servers.x.auth.auth_url"},
		"no server":         {func(_ *peer, s *Settings) { s.URL = "http://127.0.0.1:1/mcp" }, "can't be reached"},
		"no URL":            {func(_ *peer, s *Settings) { s.URL = "ftp://x" }, "servers.x.url"},
		"no login":          {func(_ *peer, s *Settings) { s.Type = "client_credentials" }, "wants no login"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.login()
			tt.change(r.peer, &s)
			// Without the fallback to a server that is its own authorization server,
			// what was refused would be the end.
			if name == "another resource" {
				r.peer.issuer = "https://other.example"
			}
			_, err := r.Begin(context.Background(), s, "", here)
			if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(tt.part, `\"`, `"`)) {
				t.Fatalf("error %v, want %q", err, tt.part)
			}
			if _, ok := err.(*api.Error); !ok {
				t.Fatalf("error is a %T", err)
			}
		})
	}
}

// TestResourceOfTheConfig accepts metadata about the resource that the config
// names, where it is not the server's URL.
func TestResourceOfTheConfig(t *testing.T) {
	r := newRig(t)
	r.peer.resource = "urn:other"
	s := r.login()
	s.Resource = "urn:other"
	r.enroll(s, "", "ann")
	if got := r.peer.form().Get("resource"); got != "urn:other" {
		t.Errorf("resource %q", got)
	}
}

func TestNamedAddresses(t *testing.T) {
	remote, _ := url.Parse("https://mcp.example/mcp")
	here, _ := url.Parse("http://127.0.0.1:9/mcp")
	for _, tt := range []struct {
		server *url.URL
		to     string
		ok     bool
	}{
		{remote, "https://idp.example/token", true},
		{remote, "http://idp.example/token", false},
		{remote, "http://127.0.0.1:8080/token", false},
		{remote, "https://localhost/token", false},
		{remote, "https://[::ffff:127.0.0.1]/token", false},
		{remote, "javascript:alert(1)", false},
		{remote, "", false},
		{here, "http://127.0.0.1:8080/token", true},
		{here, "http://[::1]:8080/token", true},
		{here, "http://idp.example/token", false},
	} {
		if err := checkNamed(tt.server, tt.to); (err == nil) != tt.ok {
			t.Errorf("%s names %s: %v", tt.server, tt.to, err)
		}
	}
}

// TestHugeMetadata has a server that never stops talking.
func TestHugeMetadata(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"resource":"`))
		for range 64 << 10 {
			if _, err := w.Write([]byte(strings.Repeat("x", 1<<10))); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	w := New(Options{Store: newShelf()})
	defer w.Close()
	_, err := w.Begin(context.Background(), Settings{Server: "x", URL: srv.URL + "/mcp", Type: "login"}, "", here)
	if e, ok := err.(*api.Error); !ok || len(e.Message) > 2000 {
		t.Fatalf("error %v", err)
	}
}
