package credential

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// peer is an authorization server and the MCP server it guards, in one process
// and at one origin.
type peer struct {
	*httptest.Server
	t testing.TB

	mu         sync.Mutex
	secrets    map[string]string // client id to secret; registered ones too
	codes      map[string]url.Values
	access     map[string]string // good access tokens, and whose
	refresh    map[string]string // good refresh tokens, and whose
	expiresIn  int               // 0 to leave it out
	postOnly   bool              // no client secret in the header
	noRefresh  bool
	rotate     bool
	methods    []string
	keys       map[string]crypto.PublicKey // of clients that sign who they are
	signed     []*jwt.JSONWebToken         // the assertions that were taken
	algorithms []string
	dpop       *dpopRules // nil for bearer tokens
	gone       bool       // no metadata of an authorization server
	issuer     string     // what the metadata says; empty for the truth
	resource   string
	openid     bool // metadata at the OpenID place only
	silent     bool // no resource_metadata in the challenge
	noRegister bool
	madeMethod string // how a registered client shows itself, where it asked to sign
	documents  bool   // URLs of client id metadata documents are client ids; their secrets are there already
	issParam   string // what the redirect says of the issuer
	token      func(w http.ResponseWriter, r *http.Request) bool
	serve      func(w http.ResponseWriter, r *http.Request) bool

	count       map[string]int
	forms       []url.Values // of token requests
	revoked     []string
	revokers    []string // the assertions that came with them
	registered  []map[string]any
	authHeaders []string // at the MCP server
	bodies      []string
}

func newPeer(t testing.TB) *peer {
	p := &peer{
		t: t, secrets: map[string]string{"robot": "s3cret&robot"}, codes: map[string]url.Values{},
		access: map[string]string{}, refresh: map[string]string{}, count: map[string]int{}, expiresIn: 3600, rotate: true,
	}
	mux := http.NewServeMux()
	handle := func(path string, f http.HandlerFunc) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			p.count[path]++
			p.mu.Unlock()
			f(w, r)
		})
	}
	handle("/mcp", p.mcp)
	handle("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, r *http.Request) {
		resource := p.URL + "/mcp"
		if p.resource != "" {
			resource = p.resource
		}
		m := map[string]any{"resource": resource, "authorization_servers": []string{p.URL}, "scopes_supported": []string{"tools"}}
		if p.dpop != nil {
			maps.Copy(m, p.dpop.resource)
		}
		answer(w, 200, m)
	})
	meta := func(w http.ResponseWriter, r *http.Request) {
		if p.gone {
			http.NotFound(w, r)
			return
		}
		issuer := p.URL
		if p.issuer != "" {
			issuer = p.issuer
		}
		m := map[string]any{
			"issuer": issuer, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"revocation_endpoint": p.URL + "/revoke", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}, "scopes_supported": []string{"tools", "offline_access"},
			"authorization_response_iss_parameter_supported": p.issParam != "",
		}
		if p.methods != nil {
			m["token_endpoint_auth_methods_supported"] = p.methods
		}
		if p.algorithms != nil {
			m["token_endpoint_auth_signing_alg_values_supported"] = p.algorithms
		}
		if p.dpop != nil && p.dpop.listed != nil {
			m["dpop_signing_alg_values_supported"] = p.dpop.listed
		}
		if p.documents {
			m["client_id_metadata_document_supported"] = true
		}
		if !p.noRegister {
			m["registration_endpoint"] = p.URL + "/register"
		}
		answer(w, 200, m)
	}
	handle("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, r *http.Request) {
		if p.openid { // a web application that answers everything
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>")
			return
		}
		meta(w, r)
	})
	handle("/.well-known/openid-configuration", meta)
	handle("/register", p.register)
	handle("/authorize", p.authorize)
	handle("/token", p.tokens)
	handle("/revoke", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.revoked = append(p.revoked, r.FormValue("token"))
		p.revokers = append(p.revokers, r.FormValue("client_assertion"))
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func (p *peer) mcp(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.authHeaders = append(p.authHeaders, r.Header.Get("Authorization"))
	p.bodies = append(p.bodies, string(body))
	serve := p.serve
	who, ok := p.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if p.dpop != nil {
		if who, ok = p.bound(w, r); !ok {
			p.mu.Unlock()
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
	}
	p.mu.Unlock()
	if serve != nil && serve(w, r) {
		return
	}
	if !ok {
		challenge := `Bearer error="invalid_token"`
		if !p.silent {
			challenge += fmt.Sprintf(`, resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, p.URL)
		}
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, "%s:%s", who, body)
}

func (p *peer) register(w http.ResponseWriter, r *http.Request) {
	var ask map[string]any
	var keys struct{ JWKS jose.JSONWebKeySet }
	body, _ := io.ReadAll(r.Body)
	json.Unmarshal(body, &ask)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered = append(p.registered, ask)
	id := fmt.Sprintf("client-%d", len(p.registered))
	p.secrets[id] = ""
	ask["client_id"] = id
	switch {
	case ask["token_endpoint_auth_method"] == "private_key_jwt":
		if json.Unmarshal(body, &keys) != nil || len(keys.JWKS.Keys) != 1 || !keys.JWKS.Keys[0].IsPublic() {
			answer(w, 400, map[string]any{"error": "invalid_client_metadata", "error_description": "no key"})
			return
		}
		p.keys = map[string]crypto.PublicKey{id: keys.JWKS.Keys[0].Key}
		if p.madeMethod != "" {
			ask["token_endpoint_auth_method"] = p.madeMethod
		}
	case ask["token_endpoint_auth_method"] != "none":
		p.secrets[id] = "made-" + id
		ask["client_secret"] = p.secrets[id]
		ask["client_secret_expires_at"] = 0
	}
	answer(w, 201, ask)
}

// authorize agrees at once. The person is the login_hint that the test adds.
func (p *peer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.secrets[q.Get("client_id")]; !ok || q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" {
		http.Error(w, "bad request", 400)
		return
	}
	code := fmt.Sprintf("code-%d", p.count["/authorize"])
	p.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if p.issParam != "" {
		back.Set("iss", p.issParam)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *peer) tokens(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	if p.token != nil && p.token(w, r) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forms = append(p.forms, r.PostForm)
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	if key := p.keys[id]; key != nil {
		if why := p.assertion(id, key, r.PostForm); why != "" {
			answer(w, 401, map[string]any{"error": "invalid_client", "error_description": why + " " + r.PostForm.Get("client_assertion")})
			return
		}
	} else if want, ok := p.secrets[id]; !ok || want != secret || basic && p.postOnly {
		answer(w, 401, map[string]any{"error": "invalid_client", "error_description": "no such client " + secret})
		return
	}
	key := ""
	if p.dpop != nil {
		var why string
		if key, why = p.proof(r, "", p.dpop.asNonce); why != "" && (why != "missing" || p.dpop.strict) {
			w.Header().Set("DPoP-Nonce", p.dpop.asNonce)
			code := "invalid_dpop_proof"
			if why == "nonce" {
				code = "use_dpop_nonce"
			}
			answer(w, 400, map[string]any{"error": code, "error_description": why})
			return
		}
	}
	who := ""
	switch r.PostForm.Get("grant_type") {
	case "client_credentials":
		who = id
	case "authorization_code":
		q, ok := p.codes[r.PostForm.Get("code")]
		delete(p.codes, r.PostForm.Get("code"))
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if !ok || q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			q.Get("redirect_uri") != r.PostForm.Get("redirect_uri") || q.Get("client_id") != id || q.Get("resource") != r.PostForm.Get("resource") {
			answer(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		who = q.Get("login_hint")
	case "refresh_token":
		var ok bool
		if who, ok = p.refresh[r.PostForm.Get("refresh_token")]; !ok {
			answer(w, 400, map[string]any{"error": "invalid_grant", "error_description": "unknown " + r.PostForm.Get("refresh_token")})
			return
		}
	}
	n := len(p.forms)
	m := map[string]any{"access_token": fmt.Sprintf("access-%d", n), "token_type": "bearer"}
	if p.expiresIn != 0 {
		m["expires_in"] = p.expiresIn
	}
	p.access[fmt.Sprintf("access-%d", n)] = who
	if p.dpop != nil && key != "" && !p.dpop.unbound {
		m["token_type"] = "DPoP"
		p.dpop.keys[fmt.Sprintf("access-%d", n)] = key
	}
	if was := r.PostForm.Get("refresh_token"); p.dpop != nil && was != "" && p.dpop.refresh != "" && p.dpop.refresh != key {
		answer(w, 400, map[string]any{"error": "invalid_grant", "error_description": "another key"})
		return
	}
	if p.dpop != nil {
		p.dpop.refresh = key
	}
	if r.PostForm.Get("grant_type") != "client_credentials" && !p.noRefresh && (p.rotate || r.PostForm.Get("grant_type") == "authorization_code") {
		delete(p.refresh, r.PostForm.Get("refresh_token"))
		p.refresh[fmt.Sprintf("refresh-%d", n)] = who
		m["refresh_token"] = fmt.Sprintf("refresh-%d", n)
	}
	answer(w, 200, m)
}

// assertion says what is wrong with how a client signed who it is; mu is held.
func (p *peer) assertion(id string, key crypto.PublicKey, form url.Values) string {
	all := []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.RS256, jose.PS256, jose.EdDSA, algEd25519}
	tok, err := jwt.ParseSigned(form.Get("client_assertion"), all)
	if err != nil {
		return err.Error()
	}
	var c jwt.Claims
	if err := tok.Claims(verifier(tok, key), &c); err != nil {
		return err.Error()
	}
	for _, old := range p.signed {
		var was jwt.Claims
		if old.UnsafeClaimsWithoutVerification(&was) != nil || was.ID == c.ID {
			return "the assertion came before"
		}
	}
	switch {
	case form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer":
		return "assertion type"
	case form.Has("client_secret") || form.Get("client_id") != id:
		return "another word of who it is"
	case c.Issuer != id || c.Subject != id || c.ID == "" || c.IssuedAt == nil || c.Expiry == nil:
		return fmt.Sprintf("claims %+v", c)
	case !slices.Equal(c.Audience, jwt.Audience{p.URL}):
		return fmt.Sprintf("audience %q", c.Audience)
	case c.Expiry.Time().Sub(c.IssuedAt.Time()) > 5*time.Minute:
		return "it is good for too long"
	}
	p.signed = append(p.signed, tok)
	return ""
}

// verifier is a key for the algorithm of a token, which the library may not know.
func verifier(tok *jwt.JSONWebToken, key crypto.PublicKey) any {
	if ed, ok := key.(ed25519.PublicKey); ok && tok.Headers[0].Algorithm == algEd25519 {
		return edVerifier(ed)
	}
	return key
}

type edVerifier ed25519.PublicKey

func (v edVerifier) VerifyPayload(payload, signature []byte, _ jose.SignatureAlgorithm) error {
	return ed25519.VerifyWithOptions(ed25519.PublicKey(v), payload, signature, &ed25519.Options{})
}

// do changes the peer while it serves.
func (p *peer) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *peer) counted(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[path]
}

// forget makes every access token bad.
func (p *peer) forget() { p.do(func() { clear(p.access) }) }

// form is the last token request.
func (p *peer) form() url.Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forms[len(p.forms)-1]
}

func (p *peer) headers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.authHeaders)
}
