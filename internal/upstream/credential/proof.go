package credential

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/internal/driver"
)

// A token that is bound to a key is of no use to who steals it (DPoP, RFC 9449): each
// request, to the token endpoint and to the server, comes with a proof that is signed
// for it alone. Each credential has a key of its own, which is kept with its tokens.

const (
	codeUseNonce     = "use_dpop_nonce"
	codeInvalidProof = "invalid_dpop_proof"
	schemeDPoP       = "dpop"
	maxNonce         = 1 << 10
)

// proofAlgorithms are those that Tine makes keys for, the first ones first.
var proofAlgorithms = []string{string(jose.ES256), string(jose.EdDSA), algEd25519, string(jose.RS256)}

// A prover has the key of a credential. It does not change.
type prover struct {
	key      jose.JSONWebKey
	signer   jose.Signer
	required bool // the server takes no token that is not bound
}

// makeProver makes a key.
func makeProver(alg string, required bool) (*prover, error) {
	var key crypto.Signer
	var err error
	switch alg {
	case string(jose.ES256):
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case string(jose.EdDSA), algEd25519:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case string(jose.RS256):
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		return nil, errors.New("there is no key for this algorithm")
	}
	if err != nil {
		return nil, fmt.Errorf("make a key for proofs: %w", err)
	}
	return newProver(jose.JSONWebKey{Key: key, Algorithm: alg}, required)
}

func newProver(key jose.JSONWebKey, required bool) (*prover, error) {
	if key.IsPublic() || !slices.Contains(proofAlgorithms, key.Algorithm) {
		return nil, errors.New("the key for proofs can't be used")
	}
	signer, err := newSigner(key.Algorithm, key.Key, "", (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	if err != nil {
		return nil, errors.New("the key for proofs can't sign")
	}
	return &prover{key: key, signer: signer, required: required}, nil
}

// thumbprint names the key to an authorization server.
func (p *prover) thumbprint() (string, error) {
	sum, err := p.key.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}

// prove signs one request. access is empty at a token endpoint.
func (p *prover) prove(r *http.Request, access, nonce string, now time.Time) (string, error) {
	at := url.URL{Scheme: strings.ToLower(r.URL.Scheme), Host: strings.ToLower(r.URL.Host), Path: r.URL.Path, RawPath: r.URL.RawPath}
	claims := struct {
		ID       string           `json:"jti"`
		Method   string           `json:"htm"`
		URL      string           `json:"htu"`
		IssuedAt *jwt.NumericDate `json:"iat"`
		Access   string           `json:"ath,omitempty"`
		Nonce    string           `json:"nonce,omitempty"`
	}{ID: rand.Text(), Method: r.Method, URL: at.String(), IssuedAt: jwt.NewNumericDate(now), Nonce: nonce}
	if claims.Method == "" {
		claims.Method = http.MethodGet
	}
	if access != "" {
		sum := sha256.Sum256([]byte(access))
		claims.Access = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	proof, err := jwt.Signed(p.signer).Claims(claims).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a request: %w", err)
	}
	return proof, nil
}

// nonces are the last ones that were wanted in proofs: by a server, and by a token
// endpoint, which may be at one origin and know nothing of each other.
type nonces struct {
	mu sync.Mutex
	of map[asker]string
}

// An asker is an origin, in one of its two roles.
type asker struct {
	origin string
	tokens bool // as a token endpoint
}

func atServer(u *url.URL) asker { return asker{driver.Origin(u), false} }
func atTokens(u *url.URL) asker { return asker{driver.Origin(u), true} }

func (n *nonces) at(who asker) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[who]
}

// learn notes what an answer says, and returns it; empty for nothing.
func (n *nonces) learn(who asker, h http.Header) string {
	nonce := h.Get("DPoP-Nonce")
	if len(nonce) > maxNonce || strings.ContainsFunc(nonce, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		nonce = ""
	}
	if nonce == "" {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = make(map[asker]string)
	}
	n.of[who] = nonce
	return nonce
}

// proving is a transport to a token endpoint: whatever is sent there has a proof.
type proving struct {
	next http.RoundTripper
	c    *client
	now  func() time.Time
}

func (p *proving) RoundTrip(r *http.Request) (*http.Response, error) {
	proof, err := p.c.prover.prove(r, "", p.c.nonces.at(atTokens(r.URL)), p.now())
	if err != nil {
		r.Body.Close()
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("DPoP", proof)
	resp, err := p.next.RoundTrip(r)
	if err == nil {
		p.c.nonces.learn(atTokens(r.URL), resp.Header)
	}
	return resp, err
}

// wantsProof reports whether a token endpoint wants another proof than it was sent, and
// has the client ready for it.
func (c *client) wantsProof(err error) bool {
	var answer *oauth2.RetrieveError
	if c.nonces == nil || !errors.As(err, &answer) || answer.Response == nil {
		return false
	}
	switch {
	case answer.ErrorCode != codeUseNonce && answer.ErrorCode != codeInvalidProof:
		return false
	case c.prover != nil:
		return answer.ErrorCode == codeUseNonce && c.nonces.at(atTokens(answer.Response.Request.URL)) != ""
	}
	c.nonces.learn(atTokens(answer.Response.Request.URL), answer.Response.Header)
	c.prover, err = makeProver(proofAlgorithms[0], false)
	return err == nil
}

// demands reports what an answer's challenges say of bound tokens: that they are
// taken, and that nothing else is.
func demands(h http.Header) (taken, only bool) {
	bearer := false
	for _, c := range challengesOf(h) {
		taken, bearer = taken || c.Scheme == schemeDPoP, bearer || c.Scheme == schemeBearer
	}
	return taken, taken && !bearer
}

// wantsNonce reports whether a server refused a proof for its nonce.
func wantsNonce(resp *http.Response) bool {
	if resp.StatusCode != http.StatusUnauthorized {
		return false
	}
	for _, c := range challengesOf(resp.Header) {
		if c.Scheme == schemeDPoP && c.Params["error"] == codeUseNonce {
			return true
		}
	}
	return false
}

// chooseProof returns the algorithm that all take; a list that is empty says nothing.
func chooseProof(lists ...[]string) string {
	for _, alg := range proofAlgorithms {
		if !slices.ContainsFunc(lists, func(l []string) bool { return len(l) > 0 && !slices.Contains(l, alg) }) {
			return alg
		}
	}
	return ""
}
