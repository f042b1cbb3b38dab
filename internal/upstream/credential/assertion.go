package credential

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// A client with a private key shows no secret: it signs an assertion of who it is,
// for one issuer and one request (private_key_jwt, RFC 7523).

const (
	methodSigned  = "private_key_jwt"
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	assertionLife = time.Minute
)

// A signature is how a client signs who it is.
type signature struct {
	signer jose.Signer
	alg    string
	issuer string // of the authorization server, for which alone it is
}

// sign makes the signature of a client. alg is the algorithm where an earlier login
// has settled it; else one is chosen from what the authorization server lists.
func (s *Settings) sign(issuer, alg string, listed []string) (*signature, error) {
	key, err := config.SigningKey(s.PrivateKey)
	if err != nil {
		return nil, problem(api.KindInvalid, s.Server, false, "the private key %v; mend servers.%s.auth.private_key", err, s.Server)
	}
	if issuer == "" {
		return nil, problem(api.KindInvalid, s.Server, false,
			"the issuer is not known, for which Tine signs who it is; set servers.%s.auth.issuer", s.Server)
	}
	if alg == "" {
		alg = key.Algorithm
		if len(listed) > 0 && !slices.Contains(listed, alg) {
			// An RSA key signs with either padding, and EdDSA has a second name.
			other := strings.Replace(alg, "RS", "PS", 1)
			if alg == string(jose.EdDSA) {
				other = algEd25519
			}
			if !slices.Contains(listed, other) {
				return nil, problem(api.KindInvalid, s.Server, false,
					"the key of servers.%s.auth.private_key signs with %s, which the authorization server %s does not take; use a key for one of %s, and register its public part there",
					s.Server, alg, shown(issuer), scrub(strings.Join(listed, ", ")))
			}
			alg = other
		}
	}
	// The key id helps an authorization server that knows several keys.
	signer, err := newSigner(alg, key.Key, key.KeyID, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, problem(api.KindInvalid, s.Server, false, "the private key does not sign by %s; mend servers.%s.auth.private_key", scrub(alg), s.Server)
	}
	return &signature{signer: signer, alg: alg, issuer: issuer}, nil
}

// assert adds to a request who the client is, in words that are good once.
func (s *signature) assert(client string, now time.Time, form url.Values) (assertion string, err error) {
	assertion, err = jwt.Signed(s.signer).Claims(jwt.Claims{
		Issuer: client, Subject: client, Audience: jwt.Audience{s.issuer}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(assertionLife)),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign who the client is: %w", err)
	}
	form.Set("client_id", client)
	form.Set("client_assertion_type", assertionType)
	form.Set("client_assertion", assertion)
	return assertion, nil
}

// signs adds the signature to a client of the config that has a key.
func (s *Settings) signs(c client, f *found) (client, error) {
	if s.PrivateKey == "" {
		return c, nil
	}
	if len(f.methods) > 0 && !slices.Contains(f.methods, methodSigned) {
		return c, problem(api.KindInvalid, s.Server, false, "the authorization server %s does not take %s; use servers.%s.auth.client_secret in place of private_key",
			shown(f.issuer), methodSigned, s.Server)
	}
	var err error
	c.signature, err = s.sign(f.issuer, "", f.algorithms)
	return c, err
}
