package credential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestClientCredentials(t *testing.T) {
	r := newRig(t)
	rt := r.Wrap(r.robot(), "", r.next)
	for i := range 5 {
		r.must(rt, fmt.Sprint(i), fmt.Sprintf("robot:%d", i))
	}
	r.must(r.Wrap(r.robot(), "anybody", r.next), "again", "robot:again")
	if n := r.peer.counted("/token"); n != 1 {
		t.Errorf("%d token requests, want 1", n)
	}
	form := r.peer.form()
	for name, want := range map[string]string{"scope": "a b", "audience": "aud", "resource": "urn:res", "grant_type": "client_credentials", "client_secret": ""} {
		if form.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, form.Get(name), want)
		}
	}
	other := r.robot()
	other.Audience = "another"
	r.must(r.Wrap(other, "", r.next), "1", "robot:1")
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want one per settings", n)
	}
}

// TestHeaders checks that a request is left alone and that what it says of
// itself is replaced.
// Without a token_url the server says where tokens come from, and what they are for.
func TestClientCredentialsByDiscovery(t *testing.T) {
	for name, change := range map[string]func(*peer){
		"challenge":        func(*peer) {},
		"well-known":       func(p *peer) { p.silent = true },
		"secret in header": func(p *peer) { p.methods = []string{"client_secret_basic"} },
		"secret in body":   func(p *peer) { p.methods, p.postOnly = []string{"client_secret_post"}, true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			change(r.peer)
			s := r.robot()
			s.TokenURL, s.Resource, s.Scopes, s.Audience = "", "", nil, ""
			rt := r.Wrap(s, "", r.next)
			r.must(rt, "b", "robot:b")
			form := r.peer.form()
			if got := form.Get("grant_type") + " " + form.Get("resource") + " " + form.Get("scope"); got != "client_credentials "+r.peer.URL+"/mcp tools" {
				t.Errorf("asked with %s", got)
			}
			r.must(rt, "c", "robot:c")
			if n := r.peer.counted("/token"); n != 1 {
				t.Errorf("%d tokens", n)
			}
			r.peer.forget()
			r.must(rt, "d", "robot:d")
			// What the config says goes first.
			s.Resource, s.Scopes = r.peer.URL+"/mcp", []string{"a"}
			r.must(r.Wrap(s, "", r.next), "e", "robot:e")
			if form := r.peer.form(); form.Get("scope") != "a" {
				t.Errorf("asked for %q", form.Get("scope"))
			}
		})
	}
	t.Run("found nowhere", func(t *testing.T) {
		r := newRig(t)
		r.peer.issuer = "https://elsewhere.example.com"
		s := r.robot()
		s.TokenURL, s.Resource = "", ""
		rt := r.Wrap(s, "", r.next)
		_, _, err := r.call(rt, "b")
		refused(t, err, api.KindInfrastructure, false, "; set servers.x.auth.token_url")
		if n := r.peer.counted("/token"); n != 0 {
			t.Errorf("the secret was sent %d times", n)
		}
		asked := r.peer.counted("/.well-known/oauth-protected-resource/mcp")
		for range 5 {
			_, _, err := r.call(rt, "b")
			refused(t, err, api.KindInfrastructure, false, "is of the issuer https://elsewhere.example.com, and not of "+r.peer.URL)
		}
		if n := r.peer.counted("/.well-known/oauth-protected-resource/mcp"); n != asked {
			t.Errorf("it was looked for %d times more", n-asked)
		}
	})
}

func TestHeaders(t *testing.T) {
	r := newRig(t)
	rt := r.Wrap(r.robot(), "", r.next)
	req, _ := http.NewRequest("POST", r.peer.URL+"/mcp", strings.NewReader("b"))
	req.Header.Set("Authorization", "Bearer of-the-caller")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := req.Header.Get("Authorization"); got != "Bearer of-the-caller" {
		t.Errorf("the caller's request was changed to %q", got)
	}
	if got := r.peer.headers(); len(got) != 1 || got[0] != "Bearer access-1" {
		t.Errorf("the server saw %q", got)
	}
	if rt := r.Wrap(Settings{Server: "x", URL: r.peer.URL}, "", r.next); rt != http.RoundTripper(r.next) {
		t.Error("a server without auth got a transport of its own")
	}
}

func TestPostStyle(t *testing.T) {
	r := newRig(t)
	r.peer.postOnly = true
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "1", "robot:1")
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want basic and post", n)
	}
	r.peer.forget()
	r.must(rt, "2", "robot:2")
	if n := r.peer.counted("/token"); n != 3 {
		t.Errorf("%d token requests: the style was not remembered", n)
	}
}

// TestRenewalDuringLoad renews while calls go on: none waits, none fails, and
// there is one request.
func TestRenewalDuringLoad(t *testing.T) {
	r := newRig(t)
	hold := make(chan struct{})
	var held atomic.Int32
	r.peer.token = func(http.ResponseWriter, *http.Request) bool {
		if held.Add(1) == 2 {
			<-hold
		}
		return false
	}
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "first", "robot:first")
	r.clock.Advance(59*time.Minute + 30*time.Second) // 30 s are left
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				if status, _, err := r.call(rt, "b"); status != 200 || err != nil {
					t.Errorf("%d %v", status, err)
				}
			}
		})
	}
	all.Wait() // with the renewal held: the old token did it
	if got := r.peer.headers(); got[len(got)-1] != "Bearer access-1" {
		t.Errorf("the last call showed %q", got[len(got)-1])
	}
	close(hold)
	testkit.Eventually(t, "the new token", func() bool {
		r.must(rt, "b", "robot:b")
		got := r.peer.headers()
		return got[len(got)-1] == "Bearer access-2"
	})
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
}

func TestEarlyRenewal(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		life, renew time.Duration
		renewable   bool
	}{
		{time.Hour, 59 * time.Minute, true},
		{100 * time.Second, 80 * time.Second, true},
		{5 * time.Second, 4 * time.Second, true},
		{time.Hour, 0, false},
		{0, 0, true},
	} {
		var expires time.Time
		if tt.life != 0 {
			expires = now.Add(tt.life)
		}
		tok := newToken("a", now, expires, tt.renewable, nil)
		if tt.renew == 0 {
			if !tok.renew.IsZero() {
				t.Errorf("%v: renewed early", tt.life)
			}
			continue
		}
		if got := tok.renew.Sub(now); got != tt.renew {
			t.Errorf("life %v: renewed after %v, want %v", tt.life, got, tt.renew)
		}
	}
}

// TestStorm has a thousand calls meet a 401 at once.
func TestStorm(t *testing.T) {
	r := newRig(t)
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "first", "robot:first")
	r.peer.forget()
	storm(t, r, rt, 200)
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
}

func storm(t *testing.T, r *rig, rt http.RoundTripper, want int) {
	t.Helper()
	var all sync.WaitGroup
	gate := make(chan struct{}, 100) // connections, not calls, are scarce
	for range 1000 {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			if status, _, err := r.call(rt, "b"); status != want || err != nil {
				t.Errorf("%d %v, want %d", status, err, want)
			}
		})
	}
	all.Wait()
}

// TestHopelessStorm has a server that refuses every token: it must not make a
// token request of every call.
func TestHopelessStorm(t *testing.T) {
	r := newRig(t)
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "first", "robot:first")
	r.peer.do(func() {
		r.peer.serve = func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", http.StatusUnauthorized)
			return true
		}
	})
	storm(t, r, rt, 401)
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
	r.clock.Advance(firstPause) // one more is tried after a pause, and the next is longer
	for range 10 {
		r.call(rt, "b")
	}
	r.clock.Advance(firstPause)
	for range 10 {
		r.call(rt, "b")
	}
	if n := r.peer.counted("/token"); n != 3 {
		t.Errorf("%d token requests, want 3", n)
	}
	r.peer.do(func() { r.peer.serve = nil; clear(r.peer.access) })
	r.clock.Advance(maxPause)
	r.must(rt, "back", "robot:back")
}

func TestWithoutExpiry(t *testing.T) {
	r := newRig(t)
	r.peer.expiresIn = 0
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "1", "robot:1")
	r.clock.Advance(1000 * time.Hour)
	r.must(rt, "2", "robot:2")
	if n := r.peer.counted("/token"); n != 1 {
		t.Errorf("%d token requests, want 1", n)
	}
	r.peer.forget()
	r.must(rt, "3", "robot:3")
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
}

func TestEndpointDownAndBack(t *testing.T) {
	r := newRig(t)
	down := func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "down", http.StatusServiceUnavailable)
		return true
	}
	r.peer.do(func() { r.peer.token = down })
	rt := r.Wrap(r.robot(), "", r.next)
	for range 1000 {
		_, _, err := r.call(rt, "b")
		if e := refused(t, err, api.KindInfrastructure, true, "answered HTTP 503"); e.RetryAfter < 1 || e.RetryAfter > 7 {
			t.Fatalf("retry after %d", e.RetryAfter)
		}
	}
	if n := r.peer.counted("/token"); n != 1 {
		t.Errorf("%d token requests in the pause, want 1", n)
	}
	if n := len(r.peer.headers()); n != 0 {
		t.Errorf("%d calls were sent without a token", n)
	}
	r.clock.Advance(7 * time.Second)
	r.call(rt, "b")
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests after the pause, want 2", n)
	}
	r.peer.do(func() { r.peer.token = nil })
	r.clock.Advance(maxPause)
	r.must(rt, "b", "robot:b")

	// Down while the old token still works: calls go on, and it is told.
	r.peer.do(func() { r.peer.token = down })
	r.clock.Advance(59*time.Minute + 30*time.Second)
	for range 10 {
		r.must(rt, "b", "robot:b")
	}
	testkit.Eventually(t, "the warning", func() bool { return strings.Contains(r.log.String(), "renewed ahead of time") })
}

func TestUnreachable(t *testing.T) {
	r := newRig(t)
	for name, tt := range map[string]struct {
		change    func(*Settings)
		kind      api.Kind
		retryable bool
		part      string
	}{
		"refuses":    {func(s *Settings) { s.TokenURL = "http://127.0.0.1:1/token" }, api.KindInfrastructure, true, "can't be reached"},
		"no client":  {func(s *Settings) { s.ClientSecret = "wrong-one" }, api.KindRefused, false, "invalid_client: no such client ***; check servers.x.auth.client_id"},
		"not there":  {func(s *Settings) { s.TokenURL = r.peer.URL + "/nowhere" }, api.KindInfrastructure, false, "HTTP 404"},
		"plain http": {func(s *Settings) { s.TokenURL = "http://idp.example/token" }, api.KindInfrastructure, false, "must be https"},
		"no CA":      {func(s *Settings) { s.CAFile = "/nowhere/ca.pem" }, api.KindInfrastructure, false, "servers.x.ca_file"},
		"odd type":   {func(s *Settings) { s.Type = "magic" }, api.KindInfrastructure, false, "magic"},
		"odd url":    {func(s *Settings) { s.URL = "::" }, api.KindInfrastructure, false, "servers.x.url"},
	} {
		t.Run(name, func(t *testing.T) {
			s := r.robot()
			tt.change(&s)
			_, _, err := r.call(r.Wrap(s, "", r.next), "b")
			refused(t, err, tt.kind, tt.retryable, tt.part)
		})
	}
}

func TestOddTokens(t *testing.T) {
	for name, tt := range map[string]struct {
		body map[string]any
		part string
	}{
		"type":    {map[string]any{"access_token": "planted", "token_type": "mac"}, "no bearer token"},
		"expired": {map[string]any{"access_token": "planted", "expires_in": -5}, "expired already"},
		"header":  {map[string]any{"access_token": "planted\nX-Evil: 1"}, "header"},
		"empty":   {map[string]any{}, "no answer to the request"},
		"number":  {map[string]any{"access_token": "planted", "expires_in": "planted"}, "no answer to the request"},
		"error":   {map[string]any{"error": "temporarily_unavailable"}, "HTTP 200: temporarily_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.peer.token = func(w http.ResponseWriter, _ *http.Request) bool { answer(w, 200, tt.body); return true }
			_, _, err := r.call(r.Wrap(r.robot(), "", r.next), "b")
			if err == nil || !strings.Contains(err.Error(), tt.part) || strings.Contains(err.Error(), "planted") {
				t.Fatalf("error %v", err)
			}
		})
	}
}

// TestGivingUp has the first caller give up: the renewal goes on for the others.
func TestGivingUp(t *testing.T) {
	r := newRig(t)
	hold := make(chan struct{})
	began := make(chan struct{})
	r.peer.token = func(http.ResponseWriter, *http.Request) bool { close(began); <-hold; return false }
	rt := r.Wrap(r.robot(), "", r.next)
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", r.peer.URL+"/mcp", strings.NewReader("b"))
		_, err := rt.RoundTrip(req)
		first <- err
	}()
	<-began
	second := make(chan error)
	go func() {
		_, _, err := r.call(rt, "b")
		second <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first got %v", err)
	}
	close(hold)
	if err := <-second; err != nil {
		t.Errorf("the second got %v", err)
	}
	if n := r.peer.counted("/token"); n != 1 {
		t.Errorf("%d token requests, want 1", n)
	}
}

// TestBodySentAgain checks that a body is sent again whole, once, and that one
// that can't be had again is not.
func TestBodySentAgain(t *testing.T) {
	r := newRig(t)
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "first", "robot:first")
	r.peer.forget()
	r.peer.do(func() { r.peer.bodies = nil })
	r.must(rt, "whole body", "robot:whole body")
	if got := strings.Join(r.peer.bodies, "|"); got != "whole body|whole body" {
		t.Errorf("the server saw %q", got)
	}

	r.peer.forget()
	r.peer.do(func() { r.peer.bodies = nil })
	req, _ := http.NewRequest("POST", r.peer.URL+"/mcp", io.NopCloser(strings.NewReader("once")))
	resp, err := rt.RoundTrip(req)
	if err != nil || resp.StatusCode != 401 {
		t.Fatalf("%v %v", resp, err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(text) != "no\n" {
		t.Errorf("the 401 lost its body: %q", text)
	}
	if got := strings.Join(r.peer.bodies, "|"); got != "once" {
		t.Errorf("the server saw %q", got)
	}
	testkit.Eventually(t, "a renewal for those who come next", func() bool { return r.peer.counted("/token") == 3 })
}

// closing notes whether a body was closed.
type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

func TestOriginGuard(t *testing.T) {
	r := newRig(t)
	elsewhere := newPeer(t)
	rt := r.Wrap(r.robot(), "", r.next)
	r.must(rt, "b", "robot:b")
	for _, to := range []string{elsewhere.URL + "/mcp", strings.Replace(r.peer.URL, "http:", "https:", 1), strings.Replace(r.peer.URL, "127.0.0.1", "localhost", 1)} {
		body := &closing{Reader: strings.NewReader("b")}
		req, _ := http.NewRequest("POST", to, body)
		_, err := rt.RoundTrip(req)
		refused(t, err, api.KindRefused, false, "are not sent to")
		if !body.closed.Load() {
			t.Error("the body was left open")
		}
	}
	if n := elsewhere.counted("/mcp"); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// TestTokenRedirect checks that a client secret does not follow a redirect.
func TestTokenRedirect(t *testing.T) {
	r := newRig(t)
	elsewhere := newPeer(t)
	r.peer.token = func(w http.ResponseWriter, req *http.Request) bool {
		http.Redirect(w, req, elsewhere.URL+"/token", http.StatusTemporaryRedirect)
		return true
	}
	_, _, err := r.call(r.Wrap(r.robot(), "", r.next), "b")
	refused(t, err, api.KindInfrastructure, false, "/token redirects to "+elsewhere.URL+", another origin, where nothing is sent; check servers.x.auth.token_url")
	if n := elsewhere.counted("/token"); n != 0 {
		t.Errorf("%d token requests went elsewhere", n)
	}
}

func TestClose(t *testing.T) {
	r := newRig(t)
	began, hold := make(chan struct{}), make(chan struct{})
	defer close(hold)
	r.peer.token = func(w http.ResponseWriter, req *http.Request) bool {
		close(began)
		select {
		case <-hold:
		case <-req.Context().Done():
		}
		return true
	}
	rt := r.Wrap(r.robot(), "", r.next)
	got := make(chan error)
	go func() { _, _, err := r.call(rt, "b"); got <- err }()
	<-began
	r.Close()
	if err := <-got; err == nil {
		t.Error("a call got a token from a closed wallet")
	}
	r.clock.Advance(maxPause)
	_, _, err := r.call(rt, "b")
	refused(t, err, api.KindInfrastructure, true, "stopping")
	r.Close()
}

// TestManySettings checks that settings that come and go don't pile up.
func TestManySettings(t *testing.T) {
	r := newRig(t)
	for i := range 100 {
		s := r.robot()
		s.Audience = fmt.Sprint(i)
		r.must(r.Wrap(s, "", r.next), "b", "robot:b")
	}
	if n := len(r.machines["x"]); n != keptMachines {
		t.Errorf("%d are kept, want %d", n, keptMachines)
	}
}

func TestShortWay(t *testing.T) {
	r := newRig(t)
	set := r.robot()
	src := r.machine(&set)
	if _, err := src.get(context.Background(), &set); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		tok, err := src.get(context.Background(), &set)
		if err != nil {
			t.Fatal(err)
		}
		tok.answered(true)
	}); n != 0 {
		t.Errorf("a call with a good token allocates %v times for it", n)
	}
}

// The scope that a server wants is named, and who can mend it.
func TestClientThatLacksAScope(t *testing.T) {
	r := newRig(t)
	r.peer.serve = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="admin"`)
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	s := r.robot()
	_, _, err := r.call(r.Wrap(s, "", r.next), "b")
	refused(t, err, api.KindRefused, false, `the server wants the scope "admin"; add it to servers.x.auth.scopes, and grant it to the client`)
	s.Scopes = append(s.Scopes, "admin")
	_, _, err = r.call(r.Wrap(s, "", r.next), "b")
	refused(t, err, api.KindRefused, false, `the scope "admin", which the client has asked for and not been given`)
}
