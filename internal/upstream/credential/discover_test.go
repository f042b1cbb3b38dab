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
		"another resource":  {func(p *peer, _ *Settings) { p.resource = "https://other.example/mcp" }, "/.well-known/oauth-protected-resource/mcp is about the resource https://other.example/mcp, which is not the server"},
		"another issuer":    {func(p *peer, _ *Settings) { p.issuer = "https://other.example" }, "is of the issuer https://other.example, and not of http://127.0.0.1:"},
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
			if err == nil || !strings.Contains(err.Error(), tt.part) {
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
	private, _ := url.Parse("https://10.0.0.7/mcp")
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
		{remote, "https://10.0.0.7/token", false},
		{remote, "https://169.254.169.254/token", false},
		{private, "https://10.0.0.7/token", true},
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

// Errors of the search are for people: the cause first, each URL once, what to do at the
// end, and no other try where that can't help.
func TestSearchErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*peer, *Settings)
		want   string // PEER is its URL
		again  bool
	}{
		"another resource": {func(p *peer, _ *Settings) { p.resource, p.gone = "https://other.example/mcp", true },
			"the metadata at PEER/.well-known/oauth-protected-resource/mcp is about the resource https://other.example/mcp, which is not the server; " +
				"there is no metadata at PEER/.well-known/oauth-protected-resource, PEER/.well-known/oauth-authorization-server, PEER/.well-known/openid-configuration; " +
				"set servers.x.auth.resource to it if that is right, or else servers.x.auth.token_url", false},
		"of the config": {func(p *peer, s *Settings) { s.Resource, p.gone = "urn:mine", true },
			"the metadata at PEER/.well-known/oauth-protected-resource/mcp is about the resource PEER/mcp, which is not what servers.x.auth.resource says; " +
				"there is no metadata at PEER/.well-known/oauth-protected-resource, PEER/.well-known/oauth-authorization-server, PEER/.well-known/openid-configuration; " +
				"set servers.x.auth.resource to it if that is right, or else servers.x.auth.token_url", false},
		"no metadata": {func(p *peer, s *Settings) { p.gone, s.ClientSecret, s.PrivateKey = true, "", pemOf(t, newEC(t)) },
			"no authorization server was found: there is no metadata at PEER/.well-known/oauth-authorization-server, PEER/.well-known/openid-configuration; " +
				"set servers.x.auth.token_url and issuer", false},
		"another issuer": {func(p *peer, _ *Settings) { p.issuer = "https://other.example" },
			"the metadata at PEER/.well-known/oauth-authorization-server and PEER/.well-known/openid-configuration is of the issuer https://other.example, and not of PEER; " +
				"set servers.x.auth.token_url", false},
		"down": {func(_ *peer, s *Settings) { s.URL = "http://127.0.0.1:1/mcp" },
			"http://127.0.0.1:1/mcp can't be reached: dial tcp 127.0.0.1:1: connect: connection refused", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.robot()
			s.TokenURL, s.Resource = "", ""
			tt.change(r.peer, &s)
			m := newMachine(r.Wallet, &s)
			_, f := m.find(context.Background(), &s)
			if f == nil {
				t.Fatal("an authorization server was found")
			}
			want := `server "x": ` + strings.ReplaceAll(tt.want, "PEER", r.peer.URL)
			if f.err.Message != want || f.err.Retryable != tt.again {
				t.Errorf("error, retryable %v\n%s\nwant\n%s", f.err.Retryable, f.err.Message, want)
			}
		})
	}
}

func TestEndpointKeys(t *testing.T) {
	for want, s := range map[string]Settings{
		"servers.x.auth.token_url":                                                                 {Type: "client_credentials"},
		"servers.x.auth.token_url and issuer":                                                      {Type: "client_credentials", PrivateKey: "k"},
		"servers.x.auth.auth_url and token_url":                                                    {Type: "login", ClientID: "c"},
		"servers.x.auth.auth_url, token_url and client_id":                                         {Type: "login"},
		"servers.x.auth.auth_url, token_url, client_id and issuer in place of client_metadata_url": {Type: "login", PrivateKey: "k", ClientMetadataURL: document},
	} {
		s.Server = "x"
		if got := s.endpoints(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
