package credential

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// shelf is a store that may refuse.
type shelf struct {
	mu   sync.Mutex
	data map[account]store.Credential
	fail error // of writes
	puts int
}

var _ store.Credentials = (*shelf)(nil)

func newShelf() *shelf { return &shelf{data: map[account]store.Credential{}} }

func (s *shelf) broken(err error) { s.mu.Lock(); defer s.mu.Unlock(); s.fail = err }

func (s *shelf) PutCredential(ctx context.Context, c store.Credential) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	if s.fail != nil {
		return s.fail
	}
	s.data[account{c.Server, c.Principal}] = c
	return ctx.Err()
}

func (s *shelf) DeleteCredential(_ context.Context, server, principal string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	delete(s.data, account{server, principal})
	return nil
}

func (s *shelf) Credential(_ context.Context, server, principal string) (store.Credential, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.data[account{server, principal}]
	return c, ok, nil
}

func (s *shelf) CredentialsOf(context.Context, string) ([]store.Credential, error) { return nil, nil }

// rig is a wallet, its store, and the peer it talks to.
type rig struct {
	*Wallet
	t     testing.TB
	peer  *peer
	shelf *shelf
	clock *testkit.Clock
	log   *testkit.Log
	next  *http.Transport
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, peer: newPeer(t), shelf: newShelf(), clock: testkit.NewClock(time.Now()), log: new(testkit.Log), next: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(r.next.CloseIdleConnections)
	r.open(r.shelf)
	return r
}

// open makes the wallet, the one before it closed.
func (r *rig) open(s store.Credentials) {
	if r.Wallet != nil {
		r.Wallet.Close()
	}
	r.Wallet = New(Options{Store: s, Log: r.log.Logger(), Now: r.clock.Now})
	r.t.Cleanup(r.Wallet.Close)
}

func (r *rig) robot() Settings {
	return Settings{
		Server: "x", URL: r.peer.URL + "/mcp", Type: config.AuthClientCredentials, TokenURL: r.peer.URL + "/token",
		ClientID: "robot", ClientSecret: "s3cret&robot", Scopes: []string{"a", "b"}, Audience: "aud", Resource: "urn:res",
	}
}

func (r *rig) login() Settings {
	return Settings{Server: "x", URL: r.peer.URL + "/mcp", Type: config.AuthLogin}
}

// call makes one request and returns status and body.
func (r *rig) call(rt http.RoundTripper, body string) (int, string, error) {
	req, err := http.NewRequest(http.MethodPost, r.peer.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// must makes one request that gives text.
func (r *rig) must(rt http.RoundTripper, body, want string) {
	r.t.Helper()
	status, text, err := r.call(rt, body)
	if err != nil || status != 200 || text != want {
		r.t.Fatalf("call: %d %q %v, want %q", status, text, err, want)
	}
}

// visit does what a browser does with the URL of a login, up to the redirect.
func (r *rig) visit(start api.LoginStart, person string) string {
	r.t.Helper()
	hc := &http.Client{Transport: r.next, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := hc.Get(start.URL + "&login_hint=" + person)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.StatusCode != 302 || !strings.HasPrefix(to.String(), start.Redirect+"?") {
		r.t.Fatalf("the authorization server answered %d %q", resp.StatusCode, to)
	}
	return to.RawQuery
}

const here = "http://127.0.0.1:7777/callback"

// enroll logs a principal in.
func (r *rig) enroll(s Settings, principal, person string) {
	r.t.Helper()
	start, err := r.Begin(context.Background(), s, principal, here)
	if err != nil {
		r.t.Fatalf("begin: %v", err)
	}
	if err := r.Finish(context.Background(), s, start.Flow, principal, r.visit(start, person)); err != nil {
		r.t.Fatalf("finish: %v", err)
	}
}

// refused checks that err is an *api.Error of a kind whose text holds part.
func refused(t testing.TB, err error, kind api.Kind, retryable bool, part string) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Retryable != retryable || !strings.Contains(e.Message, part) || e.Server != "x" {
		t.Fatalf("error %#v (%v), want %s with %q", e, err, kind, part)
	}
	return e
}
