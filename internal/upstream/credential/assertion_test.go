package credential

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tine-mcp/tine/api"
)

func pemOf(t testing.TB, key crypto.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func newEC(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signing is the settings of a client that signs, whose key the peer knows.
func (r *rig) signing(key crypto.Signer, text string) Settings {
	r.peer.do(func() { r.peer.keys = map[string]crypto.PublicKey{"signer": key.Public()} })
	return Settings{Server: "x", URL: r.peer.URL + "/mcp", Type: "client_credentials", ClientID: "signer", PrivateKey: text}
}

func TestSignedClient(t *testing.T) {
	ec := newEC(t)
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwk, err := json.Marshal(jose.JSONWebKey{Key: ec, KeyID: "key-7", Algorithm: "ES256"})
	if err != nil {
		t.Fatal(err)
	}
	edJWK := fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","alg":"Ed25519","kid":"key-8","x":%q,"d":%q}`,
		base64.RawURLEncoding.EncodeToString(ed.Public().(ed25519.PublicKey)), base64.RawURLEncoding.EncodeToString(ed.Seed()))
	for name, tt := range map[string]struct {
		key       crypto.Signer
		text      string
		listed    []string
		alg, kid  string
		tokenURL  bool
		noMethods bool
	}{
		"EC":                 {key: ec, listed: []string{"RS256", "ES256"}, alg: "ES256"},
		"RSA":                {key: big, alg: "RS256"},
		"RSA, other padding": {key: big, listed: []string{"PS256"}, alg: "PS256"},
		"Ed25519":            {key: ed, listed: []string{"EdDSA"}, alg: "EdDSA"},
		"Ed25519, new name":  {key: ed, text: edJWK, listed: []string{"ES256", "Ed25519"}, alg: "Ed25519", kid: "key-8"},
		"JWK":                {key: ec, text: string(jwk), alg: "ES256", kid: "key-7"},
		"nothing listed":     {key: ec, alg: "ES256", noMethods: true},
		"endpoint given":     {key: ec, alg: "ES256", tokenURL: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tt.text == "" {
				tt.text = pemOf(t, tt.key)
			}
			s := r.signing(tt.key, tt.text)
			r.peer.algorithms = tt.listed
			if !tt.noMethods {
				r.peer.methods = []string{"client_secret_basic", "private_key_jwt"}
			}
			if tt.tokenURL {
				s.TokenURL, s.Issuer = r.peer.URL+"/token", r.peer.URL
			}
			rt := r.Wrap(s, "", r.next)
			r.must(rt, "a", "signer:a")
			r.peer.forget()
			r.must(rt, "b", "signer:b") // the peer takes no assertion twice
			h := r.peer.signed[1].Headers[0]
			if h.Algorithm != tt.alg || h.KeyID != tt.kid {
				t.Errorf("signed by %s with the key %q, want %s and %q", h.Algorithm, h.KeyID, tt.alg, tt.kid)
			}
		})
	}
}

func TestSignedClientRefused(t *testing.T) {
	key := newEC(t)
	for name, tt := range map[string]struct {
		change func(*peer, *Settings)
		kind   api.Kind
		part   string
	}{
		"algorithm":    {func(p *peer, _ *Settings) { p.algorithms = []string{"RS256", "PS256"} }, api.KindInfrastructure, "signs with ES256, which the authorization server"},
		"method":       {func(p *peer, _ *Settings) { p.methods = []string{"client_secret_basic"} }, api.KindInfrastructure, "does not take private_key_jwt; use servers.x.auth.client_secret"},
		"no issuer":    {func(p *peer, s *Settings) { s.TokenURL = p.URL + "/token" }, api.KindInfrastructure, "set servers.x.auth.issuer"},
		"other issuer": {func(p *peer, s *Settings) { s.TokenURL, s.Issuer = p.URL+"/token", "https://other.example" }, api.KindRefused, "check servers.x.auth.client_id, private_key and issuer"},
		"no key":       {func(_ *peer, s *Settings) { s.PrivateKey = "planted-" + s.PrivateKey[40:] }, api.KindInfrastructure, "is neither a private key in PEM nor a JWK; mend servers.x.auth.private_key"},
		"other key":    {func(_ *peer, s *Settings) { s.PrivateKey = pemOf(t, newEC(t)) }, api.KindRefused, "check servers.x.auth.client_id and private_key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.signing(key, pemOf(t, key))
			tt.change(r.peer, &s)
			_, _, err := r.call(r.Wrap(s, "", r.next), "b")
			refused(t, err, tt.kind, false, tt.part)
			said := fmt.Sprintf("%v %+v %#v %+v %#v %s", err, err, err, s, s, r.log.String())
			text, _ := json.Marshal(s)
			if said += string(text); strings.Contains(said, "planted") || strings.Contains(said, "eyJ") || strings.Contains(said, strings.Split(pemOf(t, key), "\n")[1]) {
				t.Errorf("a secret was told: %s", said)
			}
		})
	}
}

// A person's login with a client that signs: when it begins, is renewed and ends.
func TestSignedLogin(t *testing.T) {
	key := newEC(t)
	r := newRig(t)
	s := r.signing(key, pemOf(t, key))
	s.Type = "login"
	r.peer.do(func() { r.peer.secrets["signer"] = "" })
	r.peer.methods = []string{"private_key_jwt"}
	r.enroll(s, "", "ann")
	r.open(r.shelf)
	rt := r.Wrap(s, "", r.next)
	r.must(rt, "a", "ann:a")
	r.clock.Advance(2 * time.Hour)
	r.must(rt, "b", "ann:b")
	if n := len(r.peer.signed); n != 2 || r.peer.form().Get("grant_type") != "refresh_token" {
		t.Errorf("%d requests were signed, the last one for %s", n, r.peer.form().Get("grant_type"))
	}
	if err := r.Logout(context.Background(), s, ""); err != nil {
		t.Fatal(err)
	}
	if len(r.peer.revokers) != 1 || r.peer.revokers[0] == "" {
		t.Errorf("the login was taken back with %q", r.peer.revokers)
	}
	for _, c := range r.shelf.data {
		if strings.Contains(string(c.Data), "PRIVATE") {
			t.Error("the key of the config is in the store")
		}
	}
}
