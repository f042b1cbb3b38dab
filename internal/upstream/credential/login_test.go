package credential

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

func TestLoginByDiscovery(t *testing.T) {
	for name, change := range map[string]func(*peer){
		"challenge":          func(*peer) {},
		"well-known":         func(p *peer) { p.silent = true },
		"openid":             func(p *peer) { p.openid = true },
		"secret in header":   func(p *peer) { p.methods = []string{"client_secret_basic"} },
		"secret in body":     func(p *peer) { p.methods, p.postOnly = []string{"client_secret_post"}, true },
		"says who it is":     func(p *peer) { p.issParam = p.URL },
		"no refresh rotated": func(p *peer) { p.rotate = false },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			change(r.peer)
			s := r.login()
			rt := r.Wrap(s, "", r.next)
			_, _, err := r.call(rt, "b")
			if e := refused(t, err, api.KindRefused, false, ""); e.Message != `server "x": nobody has logged in; run: tine login x` {
				t.Errorf("message %q", e.Message)
			}
			if state := r.State(context.Background(), s, ""); state.LoggedIn || state.Credential != "shared" || state.Reason != "" {
				t.Errorf("state before: %+v", state)
			}
			r.enroll(s, "", "ann")
			r.must(rt, "b", "ann:b")
			if state := r.State(context.Background(), s, ""); !state.LoggedIn || state.Expires.IsZero() {
				t.Errorf("state after: %+v", state)
			}
			form := r.peer.form()
			if form.Get("resource") != r.peer.URL+"/mcp" {
				t.Errorf("resource %q", form.Get("resource"))
			}
			if len(r.peer.registered) != 1 {
				t.Fatalf("%d registrations", len(r.peer.registered))
			}
			ask := r.peer.registered[0]
			if got := fmt.Sprintf("%v %v %v", ask["redirect_uris"], ask["grant_types"], ask["application_type"]); got != "["+here+"] [authorization_code refresh_token] native" {
				t.Errorf("registered %s", got)
			}
			r.peer.forget() // and renewed with the registered client
			r.must(rt, "c", "ann:c")
			if r.peer.form().Get("grant_type") != "refresh_token" || r.peer.form().Get("resource") != r.peer.URL+"/mcp" {
				t.Errorf("refreshed with %v", r.peer.form())
			}
		})
	}
}

// A server that wants more of a login than at first is told who lacks it, and the next
// login asks for all of it. One that is never content does not have people log in for
// ever.
func TestLoginThatLacksAScope(t *testing.T) {
	r := newRig(t)
	wanted := "write"
	r.peer.serve = func(w http.ResponseWriter, req *http.Request) bool {
		if wanted == "" || !strings.HasPrefix(req.Header.Get("Authorization"), "Bearer access-") {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+wanted+`"`)
		http.Error(w, "no", http.StatusForbidden)
		return true
	}
	s := r.login()
	rt := r.Wrap(s, "", r.next)
	asks := func() string {
		start, err := r.Begin(context.Background(), s, "", here)
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(start.URL)
		return u.Query().Get("scope")
	}
	r.enroll(s, "", "ann")
	_, _, err := r.call(rt, "b")
	if e := refused(t, err, api.KindRefused, false, ""); e.Message != `server "x": the login lacks the scope "write"; run: tine login x` {
		t.Errorf("message %q", e.Message)
	}
	if got := asks(); got != "tools offline_access write" {
		t.Errorf("the next login asks for %q", got)
	}
	wanted = "write admin"
	_, _, err = r.call(rt, "b")
	refused(t, err, api.KindRefused, false, `lacks the scope "write admin"`)
	r.enroll(s, "", "ann")
	_, _, err = r.call(rt, "b")
	if e := refused(t, err, api.KindRefused, false, `"write admin"`); strings.Contains(e.Message, "tine login") {
		t.Errorf("after a login that asked for it: %q", e.Message)
	}
	if got := asks(); got != "tools offline_access" {
		t.Errorf("the login after that asks for %q", got)
	}
	// What was asked for is known after a restart too, and added to.
	r.open(r.shelf)
	rt = r.Wrap(s, "", r.next)
	wanted = "delete " + strings.Repeat("x", 300)
	_, _, err = r.call(rt, "b")
	refused(t, err, api.KindRefused, false, `lacks the scope "delete"; run`)
	if got := asks(); got != "tools offline_access write admin delete" {
		t.Errorf("after a restart it asks for %q", got)
	}
	wanted = ""
	r.must(rt, "b", "ann:b")
	// A challenge without a scope, and any other 403, is the server's own word.
	for _, challenge := range []string{`Bearer error="insufficient_scope"`, `Bearer error="invalid_token", scope="x"`, `nonsense "`, ""} {
		r.peer.serve = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", challenge)
			http.Error(w, "no", http.StatusForbidden)
			return true
		}
		if status, text, err := r.call(rt, "b"); status != http.StatusForbidden || text != "no\n" || err != nil {
			t.Errorf("%s: %d %q %v", challenge, status, text, err)
		}
	}
	// Scopes of the config are the person's own, and so is adding to them.
	s.Scopes = []string{"tools"}
	r.peer.serve = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="tools write"`)
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	_, _, err = r.call(r.Wrap(s, "", r.next), "b")
	refused(t, err, api.KindRefused, false, `lacks the scope "write"; add it to servers.x.auth.scopes; run: tine login x`)
	if got := asks(); got != "tools" {
		t.Errorf("with scopes of the config it asks for %q", got)
	}
}

func TestLoginURL(t *testing.T) {
	r := newRig(t)
	start, err := r.Begin(context.Background(), r.login(), "", here)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(start.URL)
	q := u.Query()
	for name, want := range map[string]string{
		"state": start.Flow, "redirect_uri": here, "code_challenge_method": "S256",
		"resource": r.peer.URL + "/mcp", "scope": "tools offline_access", "client_id": "client-1",
	} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, q.Get(name), want)
		}
	}
	if len(start.Flow) < 32 || len(q.Get("code_challenge")) != 43 {
		t.Errorf("flow %q, challenge %q", start.Flow, q.Get("code_challenge"))
	}
	s := r.login()
	s.Scopes, s.Audience = []string{"only"}, "aud"
	start, err = r.Begin(context.Background(), s, "", here)
	if err != nil {
		t.Fatal(err)
	}
	if u, _ := url.Parse(start.URL); u.Query().Get("scope") != "only" || u.Query().Get("audience") != "aud" {
		t.Errorf("URL %s", u)
	}
}

// TestPreRegistered logs in with a client of the config, once with endpoints of
// the config and once with those of the metadata.
func TestPreRegistered(t *testing.T) {
	for _, given := range []bool{true, false} {
		r := newRig(t)
		r.peer.noRegister = true
		s := r.login()
		_, err := r.Begin(context.Background(), s, "", here)
		refused(t, err, api.KindInvalid, false, "servers.x.auth.client_id")
		s.ClientID, s.ClientSecret, s.Redirect = "robot", "s3cret&robot", "https://tine.example/callback"
		if given {
			s.AuthURL, s.TokenURL, s.Resource = r.peer.URL+"/authorize", r.peer.URL+"/token", "urn:res"
		}
		r.peer.do(func() { clear(r.peer.count) })
		start, err := r.Begin(context.Background(), s, "", here)
		if err != nil {
			t.Fatal(err)
		}
		if start.Redirect != s.Redirect {
			t.Errorf("redirect %s", start.Redirect)
		}
		if err := r.Finish(context.Background(), s, start.Flow, "", "?"+r.visit(start, "bob")); err != nil {
			t.Fatal(err)
		}
		rt := r.Wrap(s, "", r.next)
		r.must(rt, "b", "bob:b")
		r.peer.forget()
		r.must(rt, "c", "bob:c")
		if n := r.peer.counted("/.well-known/oauth-protected-resource/mcp"); (n == 0) != given {
			t.Errorf("endpoints given %v: metadata was read %d times", given, n)
		}
		if given && r.peer.form().Get("resource") != "urn:res" {
			t.Errorf("resource %q", r.peer.form().Get("resource"))
		}
	}
}

func TestPerPrincipal(t *testing.T) {
	r := newRig(t)
	s := r.login()
	s.PerPrincipal = true
	r.enroll(s, "ann", "ann")
	ann, ben, nobody := r.Wrap(s, "ann", r.next), r.Wrap(s, "ben", r.next), r.Wrap(s, "", r.next)
	r.must(ann, "b", "ann:b")
	for _, rt := range []http.RoundTripper{ben, nobody} {
		_, _, err := r.call(rt, "b")
		refused(t, err, api.KindRefused, false, "nobody has logged in")
	}
	r.enroll(s, "ben", "ben")
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { r.must(ann, "b", "ann:b") })
		all.Go(func() { r.must(ben, "b", "ben:b") })
	}
	all.Wait()
	if err := r.Logout(context.Background(), s, "ann"); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.call(ann, "b")
	refused(t, err, api.KindRefused, false, "nobody has logged in")
	r.must(ben, "b", "ben:b")
	if state := r.State(context.Background(), s, "ben"); !state.LoggedIn || state.Credential != "per-principal" {
		t.Errorf("state of the other: %+v", state)
	}
	if _, ok := r.shelf.data[account{"x", "ann"}]; ok || len(r.peer.revoked) != 1 || !strings.HasPrefix(r.peer.revoked[0], "refresh-") {
		t.Errorf("kept %v, revoked %v", ok, r.peer.revoked)
	}

	// A login of one is not everybody's because the config changes its mind.
	s.PerPrincipal = false
	shared := r.Wrap(s, "carl", r.next)
	_, _, err = r.call(shared, "b")
	refused(t, err, api.KindRefused, false, "nobody has logged in")
	r.enroll(s, "ann", "ann")
	r.must(shared, "b", "ann:b")
	s.PerPrincipal = true
	_, _, err = r.call(r.Wrap(s, "", r.next), "b")
	refused(t, err, api.KindRefused, false, "servers.x.credential has changed")
}

func TestForgery(t *testing.T) {
	ctx := context.Background()
	for name, tt := range map[string]struct {
		act  func(r *rig, s Settings, start api.LoginStart, query string) error
		part string
		used bool // whether the flow is gone afterwards
	}{
		"wrong state": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", strings.Replace(query, start.Flow, "forged", 1))
		}, "not the answer to a login of yours", false},
		"no state": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", "code=evil")
		}, "not the answer to a login of yours", false},
		"two states": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", query+"&state=x")
		}, "can't be read", false},
		"unknown flow": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, "forged", "ann", "state=forged&code=evil")
		}, "not the answer to a login of yours", false},
		"another's flow": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ben", query)
		}, "not the answer to a login of yours", false},
		"used flow": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			if err := r.Finish(ctx, s, start.Flow, "ann", query); err != nil {
				return err
			}
			return r.Finish(ctx, s, start.Flow, "ann", query)
		}, "not the answer to a login of yours", true},
		"expired flow": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			r.clock.Advance(flowLife)
			return r.Finish(ctx, s, start.Flow, "ann", query)
		}, "not the answer to a login of yours", true},
		"another server's": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			s.Server = "y"
			err := r.Finish(ctx, s, start.Flow, "ann", query)
			if e, ok := err.(*api.Error); ok {
				e.Server = "x"
			}
			return err
		}, "not the answer to a login of yours", false},
		"changed meanwhile": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			s.URL += "/elsewhere"
			return r.Finish(ctx, s, start.Flow, "ann", query)
		}, "was changed", true},
		"another issuer": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", query+"&iss=https://evil.example")
		}, "another authorization server", true},
		"turned down": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", "error=access_denied&error_description=I+will+not&state="+start.Flow)
		}, "access_denied: I will not", true},
		"no code": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", "state="+start.Flow)
		}, "no code", true},
		"wrong code": {func(r *rig, s Settings, start api.LoginStart, query string) error {
			return r.Finish(ctx, s, start.Flow, "ann", "code=evil&state="+start.Flow)
		}, "invalid_grant", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.login()
			s.PerPrincipal = true
			start, err := r.Begin(ctx, s, "ann", here)
			if err != nil {
				t.Fatal(err)
			}
			query := r.visit(start, "ann")
			err = tt.act(r, s, start, query)
			if e, ok := err.(*api.Error); !ok || !strings.Contains(e.Message, tt.part) {
				t.Fatalf("error %v, want %q", err, tt.part)
			}
			if name != "used flow" && len(r.shelf.data) != 0 {
				t.Fatal("a login was kept")
			}
			if err := r.Finish(ctx, s, start.Flow, "ann", query); (err != nil) != tt.used {
				t.Errorf("the person's own answer afterwards: %v", err)
			}
		})
	}
}

// TestIssuerMissing has a server that promises to say who it is, and does not.
func TestIssuerMissing(t *testing.T) {
	r := newRig(t)
	r.peer.issParam = r.peer.URL
	start, err := r.Begin(context.Background(), r.login(), "", here)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := url.ParseQuery(r.visit(start, "ann"))
	q.Del("iss")
	refused(t, r.Finish(context.Background(), r.login(), start.Flow, "", q.Encode()), api.KindRefused, false, "another authorization server")
}

func TestRedirects(t *testing.T) {
	for _, tt := range []struct{ fixed, asked, want string }{
		{"", "http://127.0.0.1:1234/cb", "http://127.0.0.1:1234/cb"},
		{"", "http://[::1]:1234/cb", "http://[::1]:1234/cb"},
		{"", "http://localhost:1234/", "http://localhost:1234/"},
		{"", "https://127.0.0.1/cb", ""},
		{"", "http://evil.example/cb", ""},
		{"", "http://127.0.0.1.evil.example/cb", ""},
		{"", "http://a@127.0.0.1/cb", ""},
		{"", "http://127.0.0.1/#f", ""},
		{"", "javascript:alert(1)", ""},
		{"", "", ""},
		{"https://tine.example/cb", "http://127.0.0.1:1/cb", "https://tine.example/cb"},
		{"https://tine.example/cb", "", "https://tine.example/cb"},
		{"http://127.0.0.1:9999/cb", "http://127.0.0.1:1/cb", "http://127.0.0.1:9999/cb"},
		{"http://127.0.0.1/cb", "http://127.0.0.1:1/cb", "http://127.0.0.1:1/cb"},
		{"http://127.0.0.1/cb", "http://127.0.0.1:1/other", "http://127.0.0.1/cb"},
		{"http://evil.example/cb", "", ""},
	} {
		got, err := chooseRedirect(&Settings{Server: "x", Redirect: tt.fixed}, tt.asked)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q, %q: %q %v, want %q", tt.fixed, tt.asked, got, err, tt.want)
		}
	}
}

func TestFlowsAreBounded(t *testing.T) {
	var f flows
	now := time.Now()
	first := &flow{principal: "p", set: Settings{Server: "x"}}
	for i := range maxOwnFlows + 1 {
		fl := first
		if i > 0 {
			fl = &flow{principal: "p", set: Settings{Server: "x"}}
		}
		if !f.add(fl, now) {
			t.Fatal("refused")
		}
	}
	if f.take(first.id, first.id, "x", "p", now) != nil {
		t.Error("the oldest of a principal did not make room")
	}
	for i := range maxFlows - maxOwnFlows {
		if !f.add(&flow{principal: fmt.Sprint(i)}, now) {
			t.Fatalf("refused at %d", i)
		}
	}
	if f.add(&flow{principal: "one more"}, now) || len(f.list) != maxFlows {
		t.Errorf("%d flows", len(f.list))
	}
	if !f.add(&flow{principal: "later"}, now.Add(flowLife)) || len(f.list) != 1 {
		t.Errorf("%d flows after all have expired", len(f.list))
	}
}

// TestRegistrationIsReused checks that a client is made once per redirect.
func TestRegistrationIsReused(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	r.enroll(r.login(), "", "ann")
	if n := r.peer.counted("/register"); n != 1 {
		t.Errorf("%d registrations for one redirect", n)
	}
	if _, err := r.Begin(context.Background(), r.login(), "", "http://127.0.0.1:8888/callback"); err != nil {
		t.Fatal(err)
	}
	if n := r.peer.counted("/register"); n != 2 {
		t.Errorf("%d registrations for two redirects", n)
	}
	// The authorization server forgets the client: the login ends, and the next
	// one makes another.
	r.peer.do(func() { delete(r.peer.secrets, "client-1"); clear(r.peer.access) })
	_, _, err := r.call(r.Wrap(r.login(), "", r.next), "b")
	refused(t, err, api.KindRefused, false, "renewal was refused (invalid_client); run: tine login x")
	r.enroll(r.login(), "", "ann")
	if n := r.peer.counted("/register"); n != 3 {
		t.Errorf("%d registrations after one was forgotten", n)
	}
}
