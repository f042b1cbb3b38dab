package issuertest

import (
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
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

type signingKey struct {
	id      string
	alg     jose.SignatureAlgorithm
	private crypto.Signer
}

func newKey(algorithm string) (signingKey, error) {
	k := signingKey{id: rand.Text()[:12], alg: jose.SignatureAlgorithm(algorithm)}
	var err error
	switch k.alg {
	case jose.ES256:
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		k.private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.ES512:
		k.private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case jose.EdDSA:
		_, k.private, err = ed25519.GenerateKey(rand.Reader)
	case jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512:
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		err = errors.New("not one of ES*, RS*, PS*, EdDSA")
	}
	if err != nil {
		return k, fmt.Errorf("a key for %q: %w", algorithm, err)
	}
	return k, nil
}

// Rotate makes a new key that signs from now on. The old ones stay published
// until DropOld.
func (i *Issuer) Rotate() {
	k, err := newKey(i.opts.Algorithm)
	if err != nil {
		panic(err) // the same call made the first key
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append(i.keys, k)
}

// DropOld publishes the key that signs and no other.
func (i *Issuer) DropOld() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// KeyID is the kid of the key that signs.
func (i *Issuer) KeyID() string { return i.current().id }

func (i *Issuer) current() signingKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

func (i *Issuer) serveKeys(w http.ResponseWriter, _ *http.Request) {
	var set jose.JSONWebKeySet
	i.mu.Lock()
	for _, k := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(k.alg), Use: "sig"})
	}
	i.mu.Unlock()
	writeJSON(w, http.StatusOK, set)
}

// Token signs claims with the current key. Unless they stand in claims, iss is
// the issuer, sub the subject, iat now and exp a lifetime from now; a claim that
// is nil is left out.
func (i *Issuer) Token(claims map[string]any) string {
	k := i.current()
	return i.sign(k, k.id, claims)
}

// Expired is a Token that ran out an hour ago.
func (i *Issuer) Expired(claims map[string]any) string {
	claims = maps.Clone(claims)
	if claims == nil {
		claims = map[string]any{}
	}
	now := i.opts.Now()
	claims["iat"], claims["exp"] = now.Add(-2*time.Hour).Unix(), now.Add(-time.Hour).Unix()
	return i.Token(claims)
}

// WrongKey is a Token that says it is signed with the current key and is not.
func (i *Issuer) WrongKey(claims map[string]any) string {
	return i.sign(i.stranger, i.current().id, claims)
}

// UnknownKey is a Token of a key that is not published, under any kid.
func (i *Issuer) UnknownKey(kid string, claims map[string]any) string {
	return i.sign(i.stranger, kid, claims)
}

// Unnamed is a Token of the current key without a kid.
func (i *Issuer) Unnamed(claims map[string]any) string {
	return i.sign(i.current(), "", claims)
}

// None is a Token with the algorithm none and no signature.
func (i *Issuer) None(claims map[string]any) string {
	header := fmt.Sprintf(`{"alg":"none","typ":"JWT","kid":%q}`, i.KeyID())
	payload, err := json.Marshal(i.fill(claims))
	if err != nil {
		panic(err)
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString(payload) + "."
}

// HS256 is a Token whose signature is an HMAC with the current public key, in PEM
// form, as its secret: a verifier that lets the token choose the algorithm accepts
// it.
func (i *Issuer) HS256(claims map[string]any) string {
	k := i.current()
	der, err := x509.MarshalPKIXPublicKey(k.private.Public())
	if err != nil {
		panic(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return i.signWith(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: k.id}}, claims)
}

func (i *Issuer) sign(k signingKey, kid string, claims map[string]any) string {
	return i.signWith(jose.SigningKey{Algorithm: k.alg, Key: jose.JSONWebKey{Key: k.private, KeyID: kid}}, claims)
}

// signWith panics where claims can't be written as JSON: that is a mistake of
// the test.
func (i *Issuer) signWith(key jose.SigningKey, claims map[string]any) string {
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		panic(err)
	}
	token, err := jwt.Signed(signer).Claims(i.fill(claims)).Serialize()
	if err != nil {
		panic(err)
	}
	return token
}

func (i *Issuer) fill(claims map[string]any) map[string]any {
	now := i.opts.Now()
	i.mu.Lock()
	all := map[string]any{"iss": i.URL(), "sub": i.subject, "iat": now.Unix(), "exp": now.Add(i.lifetime).Unix(), "jti": rand.Text()}
	i.mu.Unlock()
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// Check is what a server that accepts this issuer's tokens does: it returns the
// claims of a token that is signed, not expired, not revoked and meant for
// audience, if that is not empty.
func (i *Issuer) Check(token, audience string) (map[string]any, error) {
	i.mu.Lock()
	revoked := i.revoked[token]
	keys := append([]signingKey(nil), i.keys...)
	i.mu.Unlock()
	if revoked {
		return nil, errors.New("revoked")
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(i.opts.Algorithm)})
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		var std jwt.Claims
		var claims map[string]any
		if parsed.Claims(k.private.Public(), &std, &claims) != nil {
			continue
		}
		want := jwt.Expected{Issuer: i.URL(), Time: i.opts.Now()}
		if audience != "" {
			want.AnyAudience = jwt.Audience{audience}
		}
		return claims, std.ValidateWithLeeway(want, 0)
	}
	return nil, errors.New("signed with no key of the issuer")
}

// Revoke makes Check refuse a token before it expires.
func (i *Issuer) Revoke(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revoked[token] = true
}
