//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

const (
	ownToken     = "ada-ada-ada-ada-ada"
	clientSecret = "hunter2-hunter2/hunter2+hunter2="
)

// machine starts an issuer, a server that takes its tokens, and a gateway that
// gets them with client credentials.
func machine(t *testing.T, kind string, more ...string) (*gateway, *guarded, *issuertest.Issuer) {
	iss := issuertest.New(t, issuertest.Options{Clients: []issuertest.Client{{ID: "tine", Secret: clientSecret}}})
	up := guard(t, iss, kind)
	g := startGateway(t, fmt.Sprintf(`
log: {level: debug}
auth:
  tokens: [{name: ada, token: %s}]
servers:
  erp:
    {%s%surl: %q, auth: {type: client_credentials, token_url: %q, client_id: tine, client_secret: "${ERP_SECRET}", scopes: read write, audience: %q}}
`, ownToken, strings.Join(more, ""), kindYAML(kind), up.url, iss.TokenURL(), up.url), "ERP_SECRET="+clientSecret)
	return g, up, iss
}

const byCredentials = issuertest.Token + ":client_credentials"

// TestClientCredentials calls a server that wants a machine's token, many at
// once: one token is fetched for all, and nothing of the caller's reaches the
// server.
func TestClientCredentials(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"legacy", "modern", "sse"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g, up, iss := machine(t, kind)
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					path, tool := "/mcp", "erp__whoami"
					if i%2 == 0 {
						path, tool = "/mcp/erp", "whoami"
					}
					got, err := whoami(t.Context(), g.url+path, ownToken, tool, i%3 == 0)
					if err != nil || got != "tine" {
						t.Errorf("call %d: %q %v", i, got, err)
					}
				})
			}
			wg.Wait()
			// A client with a handshake and headers of its own, too.
			h := bearer(ownToken)
			h.Set("X-Api-Key", "caller-key-caller-key")
			h.Set("Cookie", "session=caller-cookie-caller-cookie")
			s, err := open(t.Context(), g.url+"/mcp/erp", h)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.mustCall(t, "whoami", map[string]any{}); got != "tine" {
				t.Errorf("the server saw %q", got)
			}
			if n := iss.Count(byCredentials); n != 1 {
				t.Errorf("%d tokens were asked for", n)
			}
			claims, err := iss.Check(up.taken(), up.url)
			if err != nil || claims["scope"] != "read write" {
				t.Errorf("the token's claims are %v (%v)", claims, err)
			}
			if n := up.executed.Load(); n != 41 {
				t.Errorf("the tool ran %d times for 41 calls", n)
			}
			up.wantNever(t, ownToken, "caller-key", "caller-cookie", clientSecret)
			log, err := os.ReadFile(g.logPath())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(log), clientSecret) || strings.Contains(string(log), up.taken()) {
				t.Error("a secret is in the log")
			}
		})
	}
}

// TestTokensRenewedUnderLoad lets tokens live for seconds while callers call on.
func TestTokensRenewedUnderLoad(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"legacy", "modern"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g, up, iss := machine(t, kind)
			// Long enough for a renewal ahead of the end, which the claim gives in
			// whole seconds.
			iss.SetLifetime(6 * time.Second)
			l := startRush(t, 8, func(ctx context.Context, _ int) error {
				got, err := whoami(ctx, g.url+"/mcp/erp", ownToken, "whoami", true)
				if err == nil && got != "tine" {
					err = fmt.Errorf("the server saw %q", got)
				}
				return err
			})
			if err := eventually(func() error {
				if n := iss.Count(byCredentials); n < 3 {
					return fmt.Errorf("%d tokens", n)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			l.end(t)
			// Renewed ahead of its end, no token is ever refused.
			if n := up.refused.Load(); n > 0 {
				t.Errorf("the server refused %d requests of %d", n, l.calls.Load())
			}
			if n := up.executed.Load(); n != l.calls.Load() {
				t.Errorf("the tool ran %d times for %d calls", n, l.calls.Load())
			}
		})
	}
}

// TestStormOf401 makes the token worthless under fifty callers, again and again.
func TestStormOf401(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"legacy", "modern"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g, up, iss := machine(t, kind)
			l := startRush(t, 50, func(ctx context.Context, i int) error {
				_, err := whoami(ctx, g.url+"/mcp/erp", ownToken, "whoami", i%2 == 0)
				return err
			})
			l.more(t, 200)
			const storms = 5
			for range storms {
				up.revoke()
				l.more(t, 200)
			}
			l.end(t)
			if n := iss.Count(byCredentials); n < 1+storms || n > 1+2*storms {
				t.Errorf("%d tokens were asked for in %d storms", n, storms)
			}
			if n := up.executed.Load(); n != l.calls.Load() {
				t.Errorf("the tool ran %d times for %d calls", n, l.calls.Load())
			}
			up.wantNever(t, ownToken)
		})
	}
}

// TestCredentialsRefused checks what a caller is told when there is no token to
// be had, and that the next call works when there is one again.
func TestCredentialsRefused(t *testing.T) {
	t.Parallel()
	// The breaker would wait for longer than the test.
	g, up, iss := machine(t, "modern", "policy: {breaker: off}, ")
	iss.AddClient(issuertest.Client{ID: "tine", Secret: "another"})
	ask := func() (string, error) { return whoami(t.Context(), g.url+"/mcp/erp", ownToken, "whoami", true) }
	_, err := ask()
	if err == nil || !strings.Contains(err.Error(), "servers.erp.auth.client_id") || !strings.Contains(err.Error(), `"refused"`) {
		t.Errorf("with a wrong secret: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), clientSecret) {
		t.Errorf("the secret is told: %v", err)
	}
	if n := len(up.headers); n > 0 {
		t.Errorf("the server was asked %d times without a token", n)
	}
	iss.AddClient(issuertest.Client{ID: "tine", Secret: clientSecret})
	recovered := func(what string) {
		t.Helper()
		if err := eventually(func() error { _, err := ask(); return err }); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
	recovered("the secret is right again")
	iss.Fail(issuertest.Token, http.StatusServiceUnavailable)
	up.revoke()
	if _, err := ask(); err == nil || !strings.Contains(err.Error(), `"infrastructure"`) {
		t.Errorf("while the issuer fails: %v", err)
	}
	iss.Fail(issuertest.Token, 0)
	recovered("the issuer is back")
}
