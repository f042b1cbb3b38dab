package identity_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

func TestSignedTokens(t *testing.T) {
	w := newWorld(t, nil)
	now := w.Now().Unix()
	for _, tt := range []struct {
		name  string
		token string
		want  string
	}{
		{"good", w.token(nil), "oidc:ada"},
		{"without a kid", w.iss.Unnamed(aud(nil)), "oidc:ada"},
		{"several audiences", w.token(map[string]any{"aud": []string{"x", public}}), "oidc:ada"},
		{"expired within the leeway", w.token(map[string]any{"exp": now - 29}), "oidc:ada"},
		{"expired", w.token(map[string]any{"exp": now - 30}), identity.ReasonExpired},
		{"long expired", w.iss.Expired(aud(nil)), identity.ReasonExpired},
		{"exp with a fraction", w.token(map[string]any{"exp": float64(now) + 60.5}), "oidc:ada"},
		{"without an exp", w.token(map[string]any{"exp": nil}), identity.ReasonExpired},
		{"exp as text", w.token(map[string]any{"exp": "tomorrow"}), identity.ReasonMalformed},
		{"exp beyond time", w.token(map[string]any{"exp": 1e300}), identity.ReasonMalformed},
		{"too early", w.token(map[string]any{"nbf": now + 31}), identity.ReasonEarly},
		{"early within the leeway", w.token(map[string]any{"nbf": now + 30}), "oidc:ada"},
		{"another issuer", w.token(map[string]any{"iss": "https://other.example"}), identity.ReasonIssuer},
		{"nearly the issuer", w.token(map[string]any{"iss": w.iss.URL() + "/"}), identity.ReasonIssuer},
		{"without an issuer", w.token(map[string]any{"iss": nil}), identity.ReasonIssuer},
		{"another audience", w.token(map[string]any{"aud": "https://other.example"}), identity.ReasonAudience},
		{"without an audience", w.token(map[string]any{"aud": nil}), identity.ReasonAudience},
		{"audience as a number", w.token(map[string]any{"aud": 7}), identity.ReasonMalformed},
		{"none", w.iss.None(aud(nil)), identity.ReasonSignature},
		{"HS256 with the public key", w.iss.HS256(aud(nil)), identity.ReasonSignature},
		{"wrong key", w.iss.WrongKey(aud(nil)), identity.ReasonSignature},
		{"unknown key", w.iss.UnknownKey("zzz", aud(nil)), identity.ReasonSignature},
		{"unknown key without a kid", w.iss.UnknownKey("", aud(nil)), identity.ReasonSignature},
		{"two parts", "a.b", identity.ReasonUnknown},
		{"no base64", "?.?.?", identity.ReasonMalformed},
		{"no subject", w.token(map[string]any{"sub": nil}), identity.ReasonPrincipal},
		{"empty subject", w.token(map[string]any{"sub": ""}), identity.ReasonPrincipal},
		{"subject as a number", w.token(map[string]any{"sub": 7}), identity.ReasonMalformed},
		{"subject with a newline", w.token(map[string]any{"sub": "a\nb"}), identity.ReasonPrincipal},
		{"long subject", w.token(map[string]any{"sub": strings.Repeat("x", 257)}), identity.ReasonPrincipal},
		{"longest subject", w.token(map[string]any{"sub": strings.Repeat("x", 256)}), "oidc:" + strings.Repeat("x", 256)},
		{"too big", w.token(map[string]any{"groups": strings.Repeat("x", 16<<10)}), identity.ReasonMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // what was remembered is no different
				p, r := w.expect(t, tt.token, tt.want)
				if r == nil && (p.Role != api.RoleUser || !p.Unlimited("any")) {
					t.Errorf("without rules it is %+v", p)
				}
				if r != nil && (r.Status != 401 || r.Code != "invalid_token") {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	// A payload that was exchanged under a good signature.
	good, bad := strings.Split(w.token(nil), "."), strings.Split(w.token(map[string]any{"sub": "root"}), ".")
	w.expect(t, good[0]+"."+bad[1]+"."+good[2], identity.ReasonSignature)
}

func TestAlgorithms(t *testing.T) {
	for _, tt := range []struct {
		signs   string
		allowed []string
		want    string
	}{
		{"RS256", nil, "oidc:ada"}, {"PS256", nil, "oidc:ada"}, {"ES384", nil, "oidc:ada"}, {"ES512", nil, "oidc:ada"}, {"EdDSA", nil, "oidc:ada"},
		{"ES256", []string{"RS256", "ES256"}, "oidc:ada"},
		{"ES256", []string{"RS256"}, identity.ReasonSignature},
		{"ES256", []string{"none", "HS256"}, identity.ReasonSignature},
	} {
		iss := issuertest.New(t, issuertest.Options{Algorithm: tt.signs})
		g := identity.NewGuard(identity.Options{PublicURL: public, OIDC: &identity.OIDC{Issuer: iss.URL(), Algorithms: tt.allowed}})
		w := world{iss: iss, guard: g}
		w.expect(t, iss.Token(aud(nil)), tt.want)
		w.expect(t, iss.None(aud(nil)), identity.ReasonSignature)
		w.expect(t, iss.HS256(aud(nil)), identity.ReasonSignature)
		g.Close()
	}
}

func TestPrincipalClaim(t *testing.T) {
	for claim, want := range map[string]string{
		"email": "oidc:ada@example.com", "user.name": "oidc:Ada", "https://x.example/id": "oidc:7f", "user": identity.ReasonPrincipal, "gone": identity.ReasonPrincipal,
	} {
		w := newWorld(t, func(o *identity.Options) { o.OIDC.Principal = claim })
		w.expect(t, w.token(map[string]any{"email": "ada@example.com", "user": map[string]any{"name": "Ada"}, "https://x.example/id": "7f"}), want)
	}
}

func TestScopes(t *testing.T) {
	w := newWorld(t, func(o *identity.Options) { o.OIDC.Scopes = []string{"tools", "mcp"} })
	for _, tt := range []struct {
		claims map[string]any
		ok     bool
	}{
		{map[string]any{"scope": "mcp openid tools"}, true},
		{map[string]any{"scp": []string{"tools", "mcp"}}, true},
		{map[string]any{"scp": "tools mcp"}, true},
		{map[string]any{"scope": "tools"}, false},
		{map[string]any{"scope": "toolsmcp"}, false},
		{map[string]any{"scp": []any{"tools", 7}}, false},
		{map[string]any{"scope": 7}, false},
		{nil, false},
	} {
		token := w.token(tt.claims)
		if tt.ok {
			w.expect(t, token, "oidc:ada")
			continue
		}
		_, r := w.expect(t, token, identity.ReasonScope)
		if r == nil || r.Status != http.StatusForbidden || r.Code != "insufficient_scope" || !slices.Equal(r.Scopes, []string{"tools", "mcp"}) {
			t.Errorf("%v: %+v", tt.claims, r)
		}
	}
	if _, r := w.guard.Identify(t.Context(), "", resource); r == nil || !slices.Equal(r.Scopes, []string{"tools", "mcp"}) {
		t.Errorf("who has no token is not told what to ask for: %+v", r)
	}
}

func TestAudience(t *testing.T) {
	for _, tt := range []struct {
		public   string
		listed   []string
		aud      any
		resource string
		ok       bool
	}{
		{public, nil, "https://tine.example/gw", resource, true},
		{public, nil, "https://tine.example/gw/", resource, true},
		{public, nil, "HTTPS://Tine.Example:443/gw", resource, true},
		{public, nil, "https://tine.example/gw/mcp", resource, true},
		{public, nil, resource, resource, true},
		{public, nil, resource, resource + "/", true},
		{public, nil, resource + "/x", resource, false},
		{public, nil, "https://tine.example/gw/mcp/git", resource, false},
		{public, nil, "https://tine.example/gw/mcp/gitlab", resource, false},
		{public, nil, "https://tine.example", resource, false},
		{public, nil, "https://tine.example/", resource, false},
		{public, nil, "http://tine.example/gw", resource, false},
		{public, nil, "https://tine.example:8443/gw", resource, false},
		{public, nil, "https://tine.example/gw?x", resource, false},
		{public, nil, "https://tine.example/gw#x", resource, false},
		{public, nil, "https://u@tine.example/gw", resource, false},
		{public, nil, "https://tine.example/gw/../gw", resource, false},
		{public, nil, "https://tine.example/gw/mcp", "https://tine.example/gw/mcp/../v1", false},
		{public, nil, "https://tine.example/gw/mcp", "https://tine.example/gw/mcp/%2e%2e/v1", false},
		{public, nil, "https://tine.example/gw/mcp", "https://tine.example/gw/v1/servers", false},
		{public, nil, "", resource, false},
		{public, nil, []string{}, resource, false},
		{"https://tine.example", nil, "https://tine.example", resource, true},
		{"https://tine.example/", nil, "https://tine.example", "https://tine.example/mcp", true},
		{public, []string{"tine", "other"}, "tine", resource, true},
		{public, []string{"tine"}, []string{"x", "tine"}, resource, true},
		{public, []string{"tine"}, public, resource, false},
		{public, []string{"tine"}, "Tine", resource, false},
		{"", nil, "http://127.0.0.1:8463/mcp", "http://127.0.0.1:8463/mcp/github", true},
		{"", nil, "http://localhost:8463/", "http://localhost:8463/mcp", true},
		{"", nil, "http://[::1]:8463", "http://[::1]:8463/mcp", true},
		{"", nil, "http://localhost:8463", "http://127.0.0.1:8463/mcp", false},
		// The caller chose this host by its Host header.
		{"", nil, "https://other.example/mcp", "https://other.example/mcp", false},
		{"no url", nil, "no url", "no url", false},
	} {
		w := newWorld(t, func(o *identity.Options) { o.PublicURL, o.OIDC.Audience = tt.public, tt.listed })
		_, r := w.guard.Identify(t.Context(), "Bearer "+w.token(map[string]any{"aud": tt.aud}), tt.resource)
		if (r == nil) != tt.ok || r != nil && (r.Reason != identity.ReasonAudience || r.Status != 401) {
			t.Errorf("%+v: %+v", tt, r)
		}
	}
}

// The same token at another URL is looked at again, although it was verified.
func TestAudiencePerRequest(t *testing.T) {
	w := newWorld(t, nil)
	token := "Bearer " + w.token(map[string]any{"aud": public + "/mcp/github"})
	for range 2 {
		if _, r := w.guard.Identify(t.Context(), token, public+"/mcp/github"); r != nil {
			t.Errorf("its own: %+v", r)
		}
		if _, r := w.guard.Identify(t.Context(), token, public+"/mcp/other"); r == nil {
			t.Error("a token for one server is good at another")
		}
	}
}

func TestCachedTokenExpires(t *testing.T) {
	w := newWorld(t, nil)
	short := w.token(map[string]any{"exp": w.Now().Add(time.Minute).Unix()})
	long := w.token(map[string]any{"exp": w.Now().Add(24 * time.Hour).Unix()})
	early := w.token(map[string]any{"nbf": w.Now().Add(time.Hour).Unix(), "exp": w.Now().Add(24 * time.Hour).Unix()})
	w.expect(t, short, "oidc:ada")
	w.expect(t, long, "oidc:ada")
	w.expect(t, early, identity.ReasonEarly)
	w.Advance(89 * time.Second)
	w.expect(t, short, "oidc:ada")
	w.Advance(time.Second)
	w.expect(t, short, identity.ReasonExpired)
	w.Advance(2 * time.Hour)
	w.expect(t, long, "oidc:ada")
	w.expect(t, early, "oidc:ada")
	w.expect(t, short, identity.ReasonExpired)
}

func TestMetadata(t *testing.T) {
	w := newWorld(t, func(o *identity.Options) { o.OIDC.Scopes = []string{"tools"} })
	for _, url := range []string{"https://tine.example/gw/mcp", "https://tine.example/gw/mcp/", "http://127.0.0.1:8463/mcp/a&b"} {
		var got map[string]any
		if err := json.Unmarshal(w.guard.Metadata(url), &got); err != nil {
			t.Fatal(err)
		}
		servers, _ := got["authorization_servers"].([]any)
		scopes, _ := got["scopes_supported"].([]any)
		methods, _ := got["bearer_methods_supported"].([]any)
		if got["resource"] != url || len(servers) != 1 || servers[0] != w.iss.URL() || len(scopes) != 1 || scopes[0] != "tools" ||
			len(methods) != 1 || methods[0] != "header" || got["resource_name"] != "Tine" {
			t.Errorf("%s: %v", url, got)
		}
	}
	if doc := newWorld(t, nil).guard.Metadata(resource); strings.Contains(string(doc), "scopes_supported") {
		t.Errorf("%s", doc)
	}
}

// An issuer behind a certificate authority of its own, and one whose keys would
// come over an open line.
func TestCertificateAuthority(t *testing.T) {
	inner := issuertest.New(t, issuertest.Options{})
	var outer *httptest.Server
	insecure := false
	outer = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "openid-configuration") {
			keys := outer.URL + "/jwks"
			if insecure {
				keys = inner.URL() + "/jwks"
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": outer.URL, "jwks_uri": keys})
			return
		}
		http.Redirect(w, r, outer.URL+"/moved", http.StatusFound)
	}))
	outer.Config.Handler = redirected(inner, outer.Config.Handler)
	outer.Config.ErrorLog = quiet()
	outer.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	outer.StartTLS()
	defer outer.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: outer.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	token := inner.Token(aud(map[string]any{"iss": outer.URL}))
	for _, tt := range []struct {
		ca       string
		insecure bool
		want     string
	}{
		{ca, false, "oidc:ada"},
		{"", false, identity.ReasonDown},
		{nothing, false, identity.ReasonDown},
		{ca + ".gone", false, identity.ReasonDown},
		{ca, true, identity.ReasonDown},
	} {
		insecure = tt.insecure
		g := identity.NewGuard(identity.Options{PublicURL: public, OIDC: &identity.OIDC{Issuer: outer.URL, CAFile: tt.ca}})
		w := world{guard: g}
		w.expect(t, token, tt.want)
		g.Close()
	}
}
