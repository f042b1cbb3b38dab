//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// A loginClient is a program that knows nothing but a URL.
type loginClient struct {
	name    string
	command []string
	eras    []string
}

func loginClients(t *testing.T) []loginClient {
	need(t, python, node, tsSDK1, tsSDK2)
	scripts, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	mjs := filepath.Join(scripts, "oauth.mjs")
	return []loginClient{
		{"python", []string{filepath.Join(toolsDir(), python), filepath.Join(scripts, "oauth.py")}, []string{"legacy", "auto"}},
		{"typescript-1", []string{filepath.Join(toolsDir(), node), mjs, "1"}, []string{"legacy"}},
		{"typescript-2", []string{filepath.Join(toolsDir(), node), mjs, "2"}, []string{"legacy", "auto"}},
	}
}

// loggedIn is what a loginClient says of itself.
type loggedIn struct {
	Tools   []string
	Text    string
	IsError bool
	Visits  int
	Client  string
	Token   string
}

func (c loginClient) run(t *testing.T, kind, era, tool, target string, more ...string) loggedIn {
	t.Helper()
	line := slices.Concat(c.command[1:], []string{kind, era, tool, `{"timezone":"Europe/Vienna"}`, target}, more)
	out, err := runTool(t.Context(), t, toolEnv(t), c.command[0], line...)
	if err != nil {
		t.Fatal(err)
	}
	var got loggedIn
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.IsError || !strings.Contains(got.Text, "Europe/Vienna") {
		t.Errorf("the call answers %q", got.Text)
	}
	if !slices.Contains(got.Tools, tool) {
		t.Errorf("%s is not listed: %v", tool, got.Tools)
	}
	return got
}

// TestClientsLogIn has the official SDKs find the issuer by the metadata alone,
// log in there and use a tool, at each kind of URL: once as a client that
// registers itself, once as one that was registered before.
func TestClientsLogIn(t *testing.T) {
	t.Parallel()
	clients := loginClients(t)
	for _, registered := range []bool{false, true} {
		name, o, id := "registers", issuertest.Options{Registration: true}, []string(nil)
		if registered {
			id = []string{"known-before"}
			name, o = "pre-registered", issuertest.Options{Clients: []issuertest.Client{{ID: id[0], Redirects: []string{"http://127.0.0.1:1/callback"}}}}
		}
		o.Path, o.Scopes = "/realms/work", []string{"mcp", "profile"}
		iss := issuertest.New(t, o)
		g := startGateway(t, fmt.Sprintf("auth:\n  oidc: {issuer: %q, scopes: [mcp]}\nservers:\n  clock: {builtin: time}\n", iss.URL()))
		for _, c := range clients {
			for _, era := range c.eras {
				for _, at := range []struct{ kind, path, tool string }{
					{"streamable", "/mcp", "clock__get_current_time"},
					{"streamable", "/mcp/clock", "get_current_time"},
					{"sse", "/sse", "clock__get_current_time"},
				} {
					if at.kind == "sse" && era != "legacy" {
						continue // the transport is older than the modern era
					}
					if registered && at.path != "/mcp" {
						continue // where it logs in does not change how
					}
					t.Run(name+"/"+c.name+"/"+era+at.path, func(t *testing.T) {
						t.Parallel()
						got := c.run(t, at.kind, era, at.tool, g.url+at.path, id...)
						if got.Visits != 1 {
							t.Errorf("the person was sent to log in %d times", got.Visits)
						}
						if registered != (got.Client == "known-before") {
							t.Errorf("the client is %q", got.Client)
						}
						// The token is for the URL that was used and nothing else.
						claims, err := iss.Check(got.Token, g.url+at.path)
						if err != nil || claims["scope"] != "mcp" {
							t.Errorf("the token's claims are %v (%v)", claims, err)
						}
					})
				}
			}
		}
		t.Cleanup(func() {
			if n := iss.Count(issuertest.Register); (n > 0) == registered {
				t.Errorf("%s: %d clients were registered", name, n)
			}
		})
	}
}

// TestClientsLogInThroughAProxy does the same behind a reverse proxy that serves
// Tine below a path, as public_url says.
func TestClientsLogInThroughAProxy(t *testing.T) {
	t.Parallel()
	clients := loginClients(t)
	iss := issuertest.New(t, issuertest.Options{Registration: true, Scopes: []string{"mcp"}})
	var inside atomic.Pointer[url.URL]
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(inside.Load())
		r.Out.Host = r.In.Host
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/gate")
		r.Out.URL.RawQuery = r.In.URL.RawQuery
	}, FlushInterval: -1})
	t.Cleanup(proxy.Close)
	public := proxy.URL + "/gate"
	g := startGateway(t, fmt.Sprintf("public_url: %q\nauth:\n  oidc: {issuer: %q, scopes: [mcp]}\nservers:\n  clock: {builtin: time}\n", public, iss.URL()))
	u, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	inside.Store(u)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for kind, path := range map[string]string{"streamable": "/mcp/clock", "sse": "/mcp/clock/sse"} {
				got := c.run(t, kind, "legacy", "get_current_time", public+path)
				if _, err := iss.Check(got.Token, public+path); err != nil || got.Visits != 1 {
					t.Errorf("%s: %d visits, %v", path, got.Visits, err)
				}
			}
		})
	}
}
