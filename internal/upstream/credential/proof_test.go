package credential

import (
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/tine-mcp/tine/api"
)

// dpopRules are what a peer wants of proofs.
type dpopRules struct {
	listed           []string       // of the authorization server
	resource         map[string]any // more of the server's metadata
	challenge        string         // the schemes of the server's challenges
	strict           bool           // no token without a proof
	unbound          bool           // a bearer token whatever was proved
	asNonce, rsNonce string

	keys    map[string]string // access tokens and the thumbprints they are bound to
	refresh string            // the thumbprint of the last login
	seen    map[string]bool   // proofs
	methods []string          // of requests that were proved to the server
}

// proof returns the thumbprint of a request's proof, or what is wrong with it. The
// peer's mu is held.
func (p *peer) proof(r *http.Request, access, nonce string) (key, wrong string) {
	headers := r.Header.Values("DPoP")
	if len(headers) == 0 {
		return "", "missing"
	}
	tok, err := jwt.ParseSigned(headers[0], []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA, algEd25519, jose.RS256})
	if err != nil || len(headers) > 1 {
		return "", fmt.Sprint("unreadable ", err)
	}
	h := tok.Headers[0]
	var c struct {
		JTI   string `json:"jti"`
		Htm   string `json:"htm"`
		Htu   string `json:"htu"`
		Iat   int64  `json:"iat"`
		Ath   string `json:"ath"`
		Nonce string `json:"nonce"`
	}
	if h.JSONWebKey == nil || !h.JSONWebKey.IsPublic() || h.ExtraHeaders[jose.HeaderType] != "dpop+jwt" {
		return "", "header"
	}
	if err := tok.Claims(verifier(tok, h.JSONWebKey.Key), &c); err != nil {
		return "", err.Error()
	}
	sum := sha256.Sum256([]byte(access))
	ath := base64.RawURLEncoding.EncodeToString(sum[:])
	if access == "" {
		ath = ""
	}
	thumb, err := h.JSONWebKey.Thumbprint(crypto.SHA256)
	switch {
	case err != nil || c.JTI == "" || p.dpop.seen[c.JTI] || c.Iat == 0:
		return "", "it came before"
	case c.Htm != r.Method || c.Htu != p.URL+r.URL.Path || c.Ath != ath:
		return "", fmt.Sprintf("another request: %+v", c)
	case c.Nonce != nonce:
		return "", "nonce"
	}
	p.dpop.seen[c.JTI] = true
	return string(thumb), ""
}

// bound checks a request to the server; it has set the challenge where it is refused.
func (p *peer) bound(w http.ResponseWriter, r *http.Request) (who string, ok bool) {
	more := fmt.Sprintf(`resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, p.URL)
	access, is := strings.CutPrefix(r.Header.Get("Authorization"), "DPoP ")
	if who, ok = p.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]; ok && strings.Contains(p.dpop.challenge, "Bearer") {
		return who, true
	}
	who, ok = p.access[access]
	if is && ok {
		key, wrong := p.proof(r, access, p.dpop.rsNonce)
		switch {
		case wrong == "nonce":
			w.Header().Set("DPoP-Nonce", p.dpop.rsNonce)
			w.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce", `+more)
			return "", false
		case wrong == "" && key == p.dpop.keys[access]:
			p.dpop.methods = append(p.dpop.methods, r.Method)
			return who, true
		}
	}
	for _, scheme := range strings.Fields(p.dpop.challenge) {
		w.Header().Add("WWW-Authenticate", scheme+` error="invalid_token", `+more)
	}
	return "", false
}

func (p *peer) binds(d *dpopRules) {
	d.keys, d.seen = map[string]string{}, map[string]bool{}
	if d.challenge == "" {
		d.challenge = "DPoP"
	}
	p.do(func() { p.dpop = d })
}

// Bound tokens are got and shown wherever the server or its authorization server asks
// for it, by machines and by people.
func TestBoundTokens(t *testing.T) {
	es := []string{"ES256"}
	for name, tt := range map[string]struct {
		rules    dpopRules
		tokenURL bool
		bearer   bool
	}{
		"by the challenge":   {rules: dpopRules{listed: es}},
		"by the metadata":    {rules: dpopRules{listed: es, challenge: "Bearer DPoP", resource: map[string]any{"dpop_bound_access_tokens_required": true}}},
		"both take it":       {rules: dpopRules{listed: es, challenge: "Bearer", resource: map[string]any{"dpop_signing_alg_values_supported": es}}},
		"nothing is listed":  {rules: dpopRules{}},
		"Ed25519":            {rules: dpopRules{listed: []string{"PS256", "EdDSA"}}},
		"Ed25519, new name":  {rules: dpopRules{listed: []string{"PS256", "Ed25519"}}},
		"RSA":                {rules: dpopRules{listed: []string{"RS256"}}},
		"nonces":             {rules: dpopRules{listed: es, asNonce: "as-1", rsNonce: "rs-1"}},
		"endpoint demands":   {rules: dpopRules{challenge: "Bearer DPoP", strict: true}, tokenURL: true},
		"... with a nonce":   {rules: dpopRules{challenge: "Bearer DPoP", strict: true, asNonce: "as-1", rsNonce: "rs-1"}, tokenURL: true},
		"found out by a 401": {rules: dpopRules{}, tokenURL: true},
		"only one takes it":  {rules: dpopRules{listed: es, challenge: "Bearer"}, bearer: true},
	} {
		for _, kind := range []string{"machine", "person"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				r := newRig(t)
				rules := tt.rules
				r.peer.binds(&rules)
				s, who := r.robot(), "robot"
				s.TokenURL, s.Resource, s.Scopes, s.Audience = "", "", nil, ""
				if kind == "person" {
					s, who = r.login(), "ann"
				}
				if tt.tokenURL {
					s.TokenURL = r.peer.URL + "/token"
					if kind == "person" {
						s.AuthURL, s.ClientID, s.ClientSecret = r.peer.URL+"/authorize", "robot", "s3cret&robot"
					}
				}
				if kind == "person" {
					r.enroll(s, "", who)
				}
				rt := r.Wrap(s, "", r.next)
				r.must(rt, "a", who+":a")
				r.peer.do(func() { rules.asNonce, rules.rsNonce = rules.asNonce+"next", rules.rsNonce+"next" })
				if rules.asNonce == "next" {
					r.peer.do(func() { rules.asNonce, rules.rsNonce = "", "" })
				}
				r.must(rt, "b", who+":b")
				r.clock.Advance(2 * time.Hour)
				r.must(rt, "c", who+":c")
				r.peer.forget()
				r.must(rt, "d", who+":d")
				if kind == "person" { // the key outlives the gateway
					r.open(r.shelf)
					r.clock.Advance(2 * time.Hour)
					r.must(r.Wrap(s, "", r.next), "e", who+":e")
				}
				headers := r.peer.headers()
				if last := headers[len(headers)-1]; strings.HasPrefix(last, "DPoP ") == tt.bearer {
					t.Errorf("the last token was shown as %s", last)
				}
			})
		}
	}
}

// Each path to a server carries a proof of its own: POST, the GET of a stream, DELETE.
func TestProofOfEachMethod(t *testing.T) {
	r := newRig(t)
	rules := &dpopRules{listed: []string{"ES256"}, rsNonce: "one"}
	r.peer.binds(rules)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	for i, method := range []string{"GET", "POST", "DELETE"} {
		r.peer.do(func() { rules.rsNonce = fmt.Sprint("nonce-", i) })
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader("whole")
		}
		req, _ := http.NewRequest(method, r.peer.URL+"/mcp?secret=in#query", body)
		resp, err := rt.RoundTrip(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v %v", method, resp, err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if method == "POST" && string(text) != "ann:whole" {
			t.Errorf("the body was sent again as %q", text)
		}
	}
	if got := strings.Join(rules.methods, " "); got != "GET POST DELETE" || r.peer.counted("/token") != 1 {
		t.Errorf("proved were %s, with %d token requests", got, r.peer.counted("/token"))
	}
	// A body that can't be had again meets the nonce's 401, which is no reason for another token.
	r.peer.do(func() { rules.rsNonce = "last" })
	req, _ := http.NewRequest("POST", r.peer.URL+"/mcp", io.NopCloser(strings.NewReader("once")))
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 401 || r.peer.counted("/token") != 1 {
		t.Errorf("HTTP %d, %d token requests", resp.StatusCode, r.peer.counted("/token"))
	}
	r.must(rt, "next", "ann:next")
}

func TestBoundTokensRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		rules dpopRules
		part  string
	}{
		"unbound":   {dpopRules{listed: []string{"ES256"}, unbound: true}, "is not bound to Tine's key (DPoP), as the server demands"},
		"algorithm": {dpopRules{listed: []string{"PS512"}}, "(DPoP) by an algorithm that Tine has not (PS512); the server and its authorization server must both take one of ES256, EdDSA, Ed25519, RS256"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.peer.binds(&tt.rules)
			s := r.robot()
			s.TokenURL = ""
			_, _, err := r.call(r.Wrap(s, "", r.next), "b")
			e := refused(t, err, api.KindInfrastructure, false, tt.part)
			if strings.Contains(e.Message, "token_url") {
				t.Errorf("advice that does not help: %s", e.Message)
			}
		})
	}
}

// The code of a login is bound to the key, which is in the store with the tokens and
// in nothing that is told.
func TestProofKeyIsKept(t *testing.T) {
	r := newRig(t)
	r.peer.binds(&dpopRules{listed: []string{"ES256"}})
	start, err := r.Begin(context.Background(), r.login(), "", here)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(start.URL)
	if err != nil || u.Query().Get("dpop_jkt") == "" {
		t.Fatalf("the person goes to %s (%v)", start.URL, err)
	}
	r.enroll(r.login(), "", "ann")
	rec, err := r.read(context.Background(), account{"x", ""})
	if err != nil || rec.Proof == nil || !rec.Proof.Bound || rec.prover == nil {
		t.Fatalf("the store has %v (%v)", rec, err)
	}
	before, _ := rec.prover.thumbprint()
	r.clock.Advance(2 * time.Hour)
	r.must(r.Wrap(r.login(), "", r.next), "a", "ann:a")
	next, err := r.read(context.Background(), account{"x", ""})
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := next.prover.thumbprint(); after != before || next.Access == rec.Access {
		t.Errorf("the renewed login has the key %s, before %s", after, before)
	}
	private, _ := rec.Proof.Key.MarshalJSON()
	_, d, _ := strings.Cut(string(private), `"d":"`)
	d, _, _ = strings.Cut(d, `"`)
	if said := fmt.Sprintf("%+v %s", r.State(context.Background(), r.login(), ""), r.log.String()); d == "" || strings.Contains(said, d) {
		t.Errorf("the key is told: %s", said)
	}
	// A key that can't be read is a login that has ended, not a bearer token.
	c := r.shelf.data[account{"x", ""}]
	c.Data = []byte(strings.Replace(string(c.Data), `"alg":"ES256"`, `"alg":"none"`, 1))
	r.shelf.data[account{"x", ""}] = c
	r.open(r.shelf)
	_, _, err = r.call(r.Wrap(r.login(), "", r.next), "b")
	refused(t, err, api.KindRefused, false, "can't be read; run: tine login x")
}

// A server and a token endpoint at one origin have nonces of their own: none is sent to
// the other, where it would cost a round.
func TestNoncesOfOneOrigin(t *testing.T) {
	r := newRig(t)
	rules := dpopRules{listed: []string{"ES256"}, asNonce: "as-1", rsNonce: "rs-1"}
	r.peer.binds(&rules)
	s := r.robot()
	s.TokenURL, s.Resource, s.Scopes, s.Audience = "", "", nil, ""
	rt := r.Wrap(s, "", r.next)
	r.must(rt, "a", "robot:a")
	tokens, calls := r.peer.counted("/token"), r.peer.counted("/mcp")
	r.clock.Advance(2 * time.Hour)
	r.must(rt, "b", "robot:b")
	// The server is asked twice: for its metadata, and with the call.
	if n, m := r.peer.counted("/token")-tokens, r.peer.counted("/mcp")-calls; n != 1 || m != 2 {
		t.Errorf("%d token requests and %d to the server, want 1 and 2", n, m)
	}
}
