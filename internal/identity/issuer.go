package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // takes no key twice and none in another case
	"github.com/go-jose/go-jose/v4/jwt"
	lru "github.com/hashicorp/golang-lru/v2"
)

// OIDC says whose signed tokens are accepted, and which.
type OIDC struct {
	Issuer string
	// Audience lists the accepted values of a token's aud. Default: the called
	// resource, or one above it, up to the public URL.
	Audience   []string
	Scopes     []string // that a token must have
	Algorithms []string // of signatures; never none or HS256. Default all that are safe
	Principal  string   // the claim that names the principal; default sub
	CAFile     string   // further certificate authorities, PEM
}

const (
	leeway      = 30 * time.Second // between our clock and the issuer's
	verifiedAge = 10 * time.Minute
	refusedAge  = 30 * time.Second
	cacheSize   = 4096 // tokens, of each kind
)

// An issuer checks signed tokens and remembers the results. It does not depend on
// the rest of the config (audience, scopes, rules), so that it outlives a reload.
type issuer struct {
	url        string
	claim      string
	algorithms []jose.SignatureAlgorithm
	keys       *keyring
	now        func() time.Time
	verified   *lru.Cache[digest, *verified]
	refused    *lru.Cache[digest, *refused]
}

// verified is a token whose signature and issuer are right.
type verified struct {
	name      string
	audience  []string
	scopes    []string
	payload   []byte // for rules, which may change
	expires   time.Time
	notBefore time.Time

	until   time.Time // how long this is remembered
	dropped uint64    // of the key set
	bound   atomic.Pointer[bound]
}

type refused struct {
	refusal Refusal
	until   time.Time
	change  uint64 // of the key set
}

func newIssuer(o *OIDC, now func() time.Time, log *slog.Logger) *issuer {
	i := &issuer{url: o.Issuer, claim: o.Principal, algorithms: safeAlgorithms(o.Algorithms), now: now}
	if i.claim == "" {
		i.claim = "sub"
	}
	if len(i.algorithms) == 0 {
		log.Warn("auth.oidc.algorithms names none that is safe, so no signed token is taken", "algorithms", o.Algorithms)
	}
	i.keys = newKeyring(o.Issuer, o.CAFile, now, log)
	// A size above zero is all New wants.
	i.verified, _ = lru.New[digest, *verified](cacheSize)
	i.refused, _ = lru.New[digest, *refused](cacheSize)
	return i
}

// safeAlgorithms leaves out all but signatures with a public key: with none anyone
// can sign, with HS256 anyone who has the public key.
func safeAlgorithms(names []string) []jose.SignatureAlgorithm {
	safe := []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
	if len(names) == 0 {
		return safe
	}
	return slices.DeleteFunc(safe, func(a jose.SignatureAlgorithm) bool { return !slices.Contains(names, string(a)) })
}

// serves reports whether o would make the same issuer.
func (i *issuer) serves(o *OIDC) bool {
	return i.url == o.Issuer && i.keys.caFile == o.CAFile && (i.claim == o.Principal || i.claim == "sub" && o.Principal == "") &&
		slices.Equal(i.algorithms, safeAlgorithms(o.Algorithms))
}

// check finds a token among those that were checked before, or checks it.
func (i *issuer) check(ctx context.Context, token string, sum digest) (*verified, *Refusal) {
	now, keys := i.now(), i.keys.current.Load()
	if keys != nil {
		if v, ok := i.verified.Get(sum); ok {
			if now.Before(v.until) && v.dropped == keys.dropped {
				return v, nil
			}
			i.verified.Remove(sum)
		}
		if r, ok := i.refused.Get(sum); ok {
			if now.Before(r.until) && r.change == keys.change {
				again := r.refusal
				return nil, &again
			}
			i.refused.Remove(sum)
		}
	}
	if strings.Count(token, ".") != 2 {
		return nil, invalid(ReasonUnknown, "unknown token")
	}
	return i.verify(ctx, token, sum)
}

// verify checks a token's form and signature, with new keys if the old ones don't
// match.
func (i *issuer) verify(ctx context.Context, token string, sum digest) (*verified, *Refusal) {
	parsed, err := jose.ParseSignedCompact(token, i.algorithms)
	if err != nil {
		var algorithm *jose.ErrUnexpectedSignatureAlgorithm
		if errors.As(err, &algorithm) || len(i.algorithms) == 0 {
			return nil, invalid(ReasonSignature, "the token is signed in a way that is not allowed here")
		}
		return nil, invalid(ReasonMalformed, "the token is neither a known one nor a signed one")
	}
	if !accessType(parsed.Signatures[0].Header) {
		return nil, invalid(ReasonMalformed, "the token is signed but not an access token")
	}
	keys := i.keys.current.Load()
	if keys == nil {
		if err := i.keys.fetch(ctx); err != nil {
			return nil, i.down(err)
		}
		if keys = i.keys.current.Load(); keys == nil {
			return nil, i.down(errors.New("no keys")) // closed meanwhile
		}
	} else if i.now().Sub(keys.fetched) > keysAge {
		_, _ = i.keys.begin() // no caller waits for it, and its failure is logged
	}
	payload, signed, known := keys.verify(parsed)
	if !signed {
		// The key may be newer than what we have, or its kid be used again.
		err := i.keys.fetch(ctx)
		if newer := i.keys.current.Load(); newer != keys {
			keys = newer
			payload, signed, known = keys.verify(parsed)
		}
		if !signed && !known && err != nil {
			return nil, i.down(err)
		}
	}
	switch {
	case !known:
		// Not remembered: it costs no signature, and the key may appear any time.
		return nil, invalid(ReasonSignature, "the token is signed with a key that its issuer does not publish")
	case !signed:
		return nil, i.refuse(sum, keys, i.keys.nextFetch(), invalid(ReasonSignature, "the token's signature is wrong"))
	}
	return i.judge(sum, keys, payload)
}

// issued begins the names of an issuer's principals.
const issued = "oidc:"

// names is the principal that claims of this issuer name; empty for claims of
// another issuer.
func (i *issuer) names(c claims) string {
	if url := c.texts("iss"); len(url) != 1 || url[0] != i.url {
		return ""
	}
	name, ok := c.name(i.claim)
	if !ok {
		return ""
	}
	return issued + name
}

// judge checks the claims of a token with a valid signature.
func (i *issuer) judge(sum digest, keys *keySet, payload []byte) (*verified, *Refusal) {
	now := i.now()
	no := func(reason, message string) (*verified, *Refusal) {
		return nil, i.refuse(sum, keys, now.Add(refusedAge), invalid(reason, message))
	}
	var std jwt.Claims
	c, err := parseClaims(payload)
	if err == nil {
		err = json.Unmarshal(payload, &std)
	}
	if err != nil {
		return no(ReasonMalformed, "the token's claims can't be read")
	}
	if std.Issuer != i.url {
		return no(ReasonIssuer, "the token is of another issuer than "+i.url)
	}
	if std.Expiry == nil {
		return no(ReasonExpired, "the token does not say when it expires")
	}
	name, ok := c.name(i.claim)
	if !ok {
		return no(ReasonPrincipal, fmt.Sprintf("the token's claim %s does not name a principal: it must be a text of 1 to %d bytes without control characters", i.claim, maxName))
	}
	v := &verified{
		name: issued + name, audience: std.Audience, scopes: c.scopes(), payload: payload,
		expires: std.Expiry.Time().Add(leeway), dropped: keys.dropped,
	}
	if std.NotBefore != nil {
		v.notBefore = std.NotBefore.Time().Add(-leeway)
	}
	if r := v.timely(now); r != nil && r.Reason == ReasonExpired {
		return no(r.Reason, r.Message)
	}
	v.until = now.Add(verifiedAge)
	if v.expires.Before(v.until) {
		v.until = v.expires
	}
	i.verified.Add(sum, v)
	return v, nil
}

// timely checks the clock again, also after a token was verified.
func (v *verified) timely(now time.Time) *Refusal {
	switch {
	case !now.Before(v.expires):
		return invalid(ReasonExpired, "the token has expired")
	case now.Before(v.notBefore):
		return invalid(ReasonEarly, "the token is not valid yet")
	}
	return nil
}

// refuse remembers that a token is refused, so that showing it repeatedly costs no
// signature check. New keys end that.
func (i *issuer) refuse(sum digest, keys *keySet, until time.Time, r *Refusal) *Refusal {
	i.refused.Add(sum, &refused{refusal: *r, until: until, change: keys.change})
	return r
}

// down is the refusal when there are no keys.
func (i *issuer) down(err error) *Refusal {
	r := &Refusal{Status: http.StatusServiceUnavailable, Reason: ReasonDown, RetryAfter: firstPause}
	var un *unavailable
	if errors.As(err, &un) {
		r.RetryAfter = (un.wait + time.Second - 1).Truncate(time.Second) // the header has whole seconds
	}
	r.Message = fmt.Sprintf("the issuer %s does not give its keys, so the token can't be checked; try again in %s", i.url, r.RetryAfter)
	return r
}

// accessType reports whether a signed token may be an access token by its typ,
// which tells it from logout tokens, proofs and others of the same issuer.
func accessType(h jose.Header) bool {
	typ, ok := h.ExtraHeaders[jose.HeaderType]
	if !ok {
		return true
	}
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return text == "jwt" || text == "at+jwt"
}
