package identity_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/testkit"
)

func staticOptions(c *testkit.Clock) identity.Options {
	return identity.Options{
		Now: c.Now,
		Tokens: []identity.Token{
			{Name: "ada", Hash: identity.HashToken("s3cret-of-ada")},
			{Name: "bob", Hash: identity.HashToken("s3cret-of-bob"), Role: api.RoleViewer},
			{Name: "old", Hash: identity.HashToken("s3cret-of-old"), Expires: c.Now()},
			{Name: "eve", Hash: identity.HashToken("s3cret-of-eve"), Expires: c.Now().Add(time.Hour), Role: "emperor"},
			{Name: "broken", Hash: "s3cret-of-broken"},
			{Name: "", Hash: identity.HashToken("s3cret-of-nobody"), Role: api.RoleOperator},
			{Name: "mallory", Hash: identity.HashToken("s3cret-of-ada"), Role: api.RoleOperator},
		},
		Operator: identity.HashToken("0perator"),
	}
}

func TestStaticTokens(t *testing.T) {
	c := newClock()
	g := identity.NewGuard(staticOptions(c))
	defer g.Close()
	if g.Open() {
		t.Error("a gateway with tokens is open")
	}
	for _, tt := range []struct {
		header string
		want   string // name/role, or the reason
		code   string
	}{
		{"Bearer s3cret-of-ada", "ada/user", ""},
		{"bearer s3cret-of-ada", "ada/user", ""},
		{"BEARER s3cret-of-bob", "bob/viewer", ""},
		{"Bearer   s3cret-of-bob  ", "bob/viewer", ""},
		{"Bearer 0perator", "/operator", ""},
		{"Bearer s3cret-of-eve", "eve/user", ""},
		{"Bearer s3cret-of-old", "expired", "invalid_token"},
		{"Bearer s3cret-of-broken", "unknown", "invalid_token"},
		{"Bearer s3cret-of-nobody", "unknown", "invalid_token"},
		{"", "missing", ""},
		{"Bearer", "malformed", "invalid_token"},
		{"Bearer ", "malformed", "invalid_token"},
		{"Bearer s3cret-of-ad", "unknown", "invalid_token"},
		{"Bearer s3cret-of-adaa", "unknown", "invalid_token"},
		{"Bearer S3cret-of-ada", "unknown", "invalid_token"},
		{"Bearer s3cret-of-ada s3cret-of-bob", "unknown", "invalid_token"},
		{"Bearer " + identity.HashToken("s3cret-of-ada"), "unknown", "invalid_token"},
		{"Bearer ada", "unknown", "invalid_token"},
		{"Bearer a.b.c", "unknown", "invalid_token"},
		{"Bearers3cret-of-ada", "malformed", ""},
		{"Bearer\ts3cret-of-ada", "malformed", ""},
		{"Basic s3cret-of-ada", "malformed", ""},
		{"s3cret-of-ada", "malformed", ""},
		{" Bearer s3cret-of-ada", "malformed", ""},
		{"Bearer " + strings.Repeat("x", 16<<10), "unknown", "invalid_token"},
		{"Bearer " + strings.Repeat("x", 16<<10+1), "malformed", "invalid_token"},
	} {
		p, r := g.Identify(t.Context(), tt.header, resource)
		got := allOf(p)
		if r != nil {
			got = r.Reason
			if r.Status != 401 || r.Code != tt.code || r.Message == "" || strings.Contains(r.Message, "s3cret") {
				t.Errorf("%.40q: %+v", tt.header, r)
			}
		}
		if got != tt.want {
			t.Errorf("%.40q is %s, want %s", tt.header, got, tt.want)
		}
	}
	c.Advance(time.Hour)
	if _, r := g.Identify(t.Context(), "Bearer s3cret-of-eve", resource); r == nil || r.Reason != identity.ReasonExpired {
		t.Errorf("an hour later: %+v", r)
	}
	if g.Metadata(resource) != nil {
		t.Error("metadata without an issuer")
	}
	if s := fmt.Sprintf("%v %+v", g, g); strings.Contains(s, "s3cret") || strings.Contains(s, "0perator") {
		t.Error("a token can be read out of the guard")
	}
}

// The operator's own token does not close the door to those without one; a
// wrong token never opens it.
func TestOpen(t *testing.T) {
	for _, operator := range []string{"", identity.HashToken("op")} {
		g := identity.NewGuard(identity.Options{Operator: operator})
		if p, r := g.Identify(t.Context(), "", resource); !g.Open() || r != nil || !p.Anonymous() || !p.Is(api.RoleOperator) || !p.Unlimited("any") {
			t.Errorf("no token: %+v, %+v", p, r)
		}
		for _, wrong := range []string{"Bearer x", "Bearer", "Bearer ", "Basic eDp5", "x"} {
			if p, r := g.Identify(t.Context(), wrong, resource); r == nil {
				t.Errorf("%q is %+v", wrong, p)
			}
		}
		g.Close()
		g.Close()
	}
	for name, o := range map[string]identity.Options{
		"token":        {Tokens: []identity.Token{{Name: "a", Hash: identity.HashToken("a")}}},
		"broken token": {Tokens: []identity.Token{{Name: "a", Hash: "a"}}},
		"issuer":       {OIDC: &identity.OIDC{Issuer: "https://issuer.example"}},
	} {
		g := identity.NewGuard(o)
		if _, r := g.Identify(t.Context(), "", resource); g.Open() || r == nil || r.Status != 401 || r.Code != "" {
			t.Errorf("%s: open %v, %+v", name, g.Open(), r)
		}
		g.Close()
	}
}

func TestRoles(t *testing.T) {
	for _, tt := range []struct {
		have string
		want string // of u, v, o: those it has
	}{{"", ""}, {"user", "u"}, {"viewer", "uv"}, {"operator", "uvo"}, {"root", ""}} {
		p, got := identity.Principal{Role: tt.have}, ""
		for _, role := range []string{api.RoleUser, api.RoleViewer, api.RoleOperator} {
			if p.Is(role) {
				got += role[:1]
			}
		}
		if got != tt.want || p.Is("") || p.Is("root") {
			t.Errorf("%q is %q, want %q", tt.have, got, tt.want)
		}
	}
}

// A principal that no guard made must not be able to do anything by accident.
func TestUnguarded(t *testing.T) {
	for _, p := range []identity.Principal{{}, {Name: "ada"}, {Name: "ada", Role: api.RoleOperator}, {Role: api.RoleViewer}} {
		if p.MaySee("s") || p.MayCall("s", "t") || p.Unlimited("s") {
			t.Errorf("%+v may do something", p)
		}
	}
	if p := identity.Local(); !p.MaySee("s") || !p.MayCall("s", "t") || !p.Unlimited("s") || !p.Is(api.RoleOperator) || !p.Anonymous() {
		t.Errorf("%+v is limited", p)
	}
}

func TestNewToken(t *testing.T) {
	a, b := identity.NewToken(), identity.NewToken()
	if a == b || len(a) < 40 || !strings.HasPrefix(a, "tine_") || strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.Errorf("tokens %q and %q", a, b)
	}
	if h := identity.HashToken("abc"); h != "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(h)
	}
}

// Nothing of any token reaches the log.
func TestSilence(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *identity.Options) {
		o.Log = slog.New(slog.NewJSONHandler(&log, nil))
		o.Rules = []identity.Rule{{Principals: []string{"[", "oidc:*"}}}
	})
	w.iss.Down(true)
	good := w.token(nil)
	_, r := w.expect(t, good, identity.ReasonDown)
	messages := r.Message
	w.iss.Down(false)
	w.Advance(time.Minute)
	w.expect(t, good, "oidc:ada")
	parts := strings.Split(good, ".")
	secret := map[string]any{"sub": "ada", "aud": "https://pl4nted.example", "iss": "https://pl4nted.example", "scope": "pl4nted"}
	for _, token := range []string{
		w.iss.Token(secret), w.iss.WrongKey(secret), w.iss.UnknownKey("pl4nted", secret), w.iss.None(secret), w.iss.HS256(secret),
		w.iss.Expired(secret), w.token(map[string]any{"sub": "pl4nted\n"}), "pl4nted", "pl4nted.pl4nted.pl4nted",
	} {
		_, r := w.guard.Identify(t.Context(), "Bearer "+token, resource)
		if r == nil {
			t.Fatal("let in")
		}
		messages += r.Message + r.Challenge("https://m.example") + strings.Join(r.Scopes, "")
		parts = append(parts, strings.Split(token, ".")...)
	}
	w.guard.Close() // what logs has ended
	for _, part := range parts {
		if part != "" && strings.Contains(messages+log.String(), part) {
			t.Errorf("a part of a token is in a message or the log: %s", part)
		}
	}
	if strings.Contains(messages+log.String(), "pl4nted") {
		t.Errorf("what a token says is in a message or the log: %s %s", messages, log.String())
	}
	if !strings.Contains(log.String(), w.iss.URL()) || !strings.Contains(log.String(), "malformed") {
		t.Errorf("the log does not tell what went wrong: %s", log.String())
	}
}

func FuzzIdentify(f *testing.F) {
	for _, s := range []string{"", "Bearer t0ken", "bearer  t0ken ", "Bearer", "Basic t0ken", "Bearer t0ken t0ken", "\x00", "Bearer\u00a0t0ken",
		"Bearer e30.e30.", "Bearer eyJhbGciOiJub25lIn0.e30.", "Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.e30.AAAA"} {
		f.Add(s)
	}
	w := newWorld(f, func(o *identity.Options) {
		o.Tokens = []identity.Token{{Name: "ada", Hash: identity.HashToken("t0ken")}}
	})
	f.Fuzz(func(t *testing.T, header string) {
		p, r := w.guard.Identify(t.Context(), header, resource)
		if r != nil {
			if p != (identity.Principal{}) || r.Message == "" || r.Reason == "" || strings.ContainsAny(r.Challenge("u"), "\r\n\x00") {
				t.Errorf("%q is %+v, %+v", header, p, r)
			}
			return
		}
		scheme, token, _ := strings.Cut(header, " ")
		if p.Name != "ada" || strings.TrimSpace(token) != "t0ken" || !strings.EqualFold(scheme, "bearer") {
			t.Errorf("%q is %+v", header, p)
		}
	})
}

// TestAgain checks what an admitted principal may do, after everything that
// can change meanwhile.
func TestAgain(t *testing.T) {
	now := time.Now()
	o := identity.Options{
		Tokens:   []identity.Token{{Name: "ada", Hash: identity.HashToken("ada-token-of-the-day")}, {Name: "bob", Hash: identity.HashToken("bob-token-of-the-day"), Expires: now.Add(time.Hour)}},
		Operator: identity.HashToken("operator-of-the-machine"), Now: func() time.Time { return now },
	}
	g := identity.NewGuard(o)
	defer func() { g.Close() }()
	in := func(token string) identity.Principal {
		p, no := g.Identify(t.Context(), "Bearer "+token, "")
		if no != nil {
			t.Fatal(no.Message)
		}
		return p
	}
	ada, bob, operator := in("ada-token-of-the-day"), in("bob-token-of-the-day"), in("operator-of-the-machine")
	check := func(when string, p identity.Principal, ok, sees bool) {
		t.Helper()
		got, admitted := g.Again(p)
		if admitted != ok || ok && got.MaySee("a") != sees {
			t.Errorf("%s: admitted %v, sees %v", when, admitted, got.MaySee("a"))
		}
	}
	check("at first", ada, true, true)
	o.Rules = []identity.Rule{{Principals: []string{"bob"}, Servers: []string{"a"}}}
	g = g.With(o)
	check("without a rule", ada, true, false)
	check("with one", bob, true, true)
	now = now.Add(2 * time.Hour)
	check("after its time", bob, false, false)
	o.Tokens = o.Tokens[1:]
	g = g.With(o)
	check("revoked", ada, false, false)
	check("the machine's own", operator, true, true)
	check("from inside", identity.Local(), true, true)
	check("nobody", identity.Principal{}, false, false)
	o.Tokens, o.Shut = nil, true
	g = g.With(o)
	check("nobody, when the last token is gone and others can come", identity.Principal{}, false, false)
	if g.Open() {
		t.Error("it is open to all callers")
	}
	o.Shut, o.Lost = false, true
	g = g.With(o)
	check("nobody, when the tokens are lost", identity.Principal{}, false, false)
	if _, no := g.Identify(t.Context(), "", "http://127.0.0.1/mcp"); no == nil || !strings.Contains(no.Message, "`tine token confirm --all`") || !strings.Contains(no.Message, "--state that the gateway was started with") {
		t.Errorf("got %v", no)
	}
	o.Tokens = []identity.Token{{Name: "eve", Hash: identity.HashToken("eve-token"), Unconfirmed: true}}
	g = g.With(o)
	if _, no := g.Identify(t.Context(), "Bearer eve-token", "http://127.0.0.1/mcp"); no == nil || !strings.Contains(no.Message, "`tine token confirm eve`; give it the --state") {
		t.Errorf("got %v", no)
	}
	o.Tokens, o.Lost = nil, false
	g = g.With(o)
	check("nobody, where it is one person's", identity.Principal{}, true, false)
}
