package identity

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// Options configure a Guard. The zero value is open.
type Options struct {
	Tokens []Token
	// Operator is the hash of the machine's own token, which names Local.
	Operator string
	OIDC     *OIDC // nil without
	Rules    []Rule
	// Separator stands between server and tool in rules; default "__".
	Separator string
	// PublicURL is where the gateway is reached from outside. Without it and
	// without OIDC.Audience, tokens are accepted for loopback URLs only.
	PublicURL string
	// Bound finds what a token with a hash, sha256 in hex, binds its holder to; nil if
	// there are no such tokens. It is called at every request, possibly concurrently.
	Bound func(hash string) (b Binding, ok bool)
	// Shut refuses callers without a token even if there is no token: the gateway
	// can be reached from other machines.
	Shut bool
	// Lost does the same because tokens were lost.
	Lost bool
	Log  *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Token is a static bearer token and the principal it names.
type Token struct {
	Name    string
	Hash    string // of HashToken
	Role    string // user unless given
	Expires time.Time
	// Unconfirmed is set for a token that came back with a backup: it is refused,
	// but like any other token it closes the gateway to callers without one.
	Unconfirmed bool
}

// A Guard identifies callers. Its methods may be called at once.
type Guard struct {
	now       func() time.Time
	log       *slog.Logger
	open      bool
	lost      bool
	anonymous Principal
	static    map[digest]staticToken
	rules     *ruleset
	bound     func(hash string) (Binding, bool)
	owners    memo[*owner]           // of sessions, by their pins
	named     map[string][]time.Time // when the tokens of a name expire; zero for never
	all       *access                // of principals that no rule limits
	audiences audiences
	scopes    []string
	issuer    *issuer // nil without

	mu       sync.Mutex
	replaced bool // the issuer belongs to the guard that came after, or is closed
}

type staticToken struct {
	principal   Principal
	expires     time.Time // zero for never
	unconfirmed bool
}

// NewGuard makes a Guard, which must be closed. It makes no network request before
// the first signed token.
func NewGuard(o Options) *Guard {
	g := newGuard(o)
	if o.OIDC != nil {
		g.issuer = newIssuer(o.OIDC, g.now, g.log)
	}
	return g
}

// With makes the Guard that replaces g: with other options, and with the keys and
// verified tokens of g if both have the same issuer. Requests that use g may still
// end; only the new one must be closed.
func (g *Guard) With(o Options) *Guard {
	n := newGuard(o)
	if o.OIDC != nil && g.issuer != nil && g.issuer.serves(o.OIDC) {
		g.mu.Lock()
		g.replaced = true
		g.mu.Unlock()
		n.issuer = g.issuer
		return n
	}
	g.Close()
	if o.OIDC != nil {
		n.issuer = newIssuer(o.OIDC, n.now, n.log)
	}
	return n
}

// Close ends the guard's own work and waits for it. It may be called twice, and
// does nothing after With has replaced the guard.
func (g *Guard) Close() {
	g.mu.Lock()
	mine := g.issuer != nil && !g.replaced
	g.replaced = true
	g.mu.Unlock()
	if mine {
		g.issuer.keys.close()
	}
}

func newGuard(o Options) *Guard {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Separator == "" {
		o.Separator = "__"
	}
	g := &Guard{
		now: o.Now, log: o.Log, open: len(o.Tokens) == 0 && o.OIDC == nil && !o.Shut && !o.Lost, lost: o.Lost,
		static: make(map[digest]staticToken, len(o.Tokens)+1), named: make(map[string][]time.Time, len(o.Tokens)), rules: newRuleset(o.Rules, o.Separator, o.Log),
		bound: o.Bound, all: &access{separator: o.Separator, grants: []*rule{{}}},
	}
	g.anonymous = g.rules.principal("", api.RoleOperator, nil)
	for _, t := range o.Tokens {
		sum, ok := parseHash(t.Hash)
		if !ok || t.Name == "" {
			o.Log.Warn("a token without a name or with a malformed hash is ignored", "name", t.Name)
			continue
		}
		if _, taken := g.static[sum]; !taken {
			p := g.rules.principal(t.Name, t.Role, nil)
			p.static = sum
			g.static[sum] = staticToken{p, t.Expires, t.Unconfirmed}
			if !t.Unconfirmed {
				g.named[t.Name] = append(g.named[t.Name], t.Expires)
			}
		}
	}
	if sum, ok := parseHash(o.Operator); ok {
		p := Local()
		p.static = sum
		g.static[sum] = staticToken{principal: p}
	}
	if o.OIDC != nil {
		g.scopes = slices.Clone(o.OIDC.Scopes)
		g.audiences.listed = slices.Clone(o.OIDC.Audience)
		if o.PublicURL != "" {
			public, ok := canonical(o.PublicURL)
			if !ok {
				o.Log.Warn("public_url can't be an audience, so no token is meant for this gateway", "public_url", o.PublicURL)
				public = "invalid:"
			}
			g.audiences.public = public
		}
	}
	return g
}

// Open reports whether callers without a token are admitted: there is neither a
// token nor an issuer, so the only user is the person at this machine.
func (g *Guard) Open() bool { return g.open }

// sameState ends the advice of a command on the gateway's state folder. The
// folder's path is not shown to unknown callers.
const sameState = "; give it the --state that the gateway was started with, if there was one"

// Identify returns the principal that sent an Authorization header to a URL of the
// gateway. A wrong header is refused even where none is needed. With a Refusal
// there is no Principal.
func (g *Guard) Identify(ctx context.Context, authorization, resource string) (Principal, *Refusal) {
	if authorization == "" {
		if g.open {
			return g.anonymous, nil
		}
		message := "a bearer token is needed: send Authorization: Bearer TOKEN"
		if g.lost {
			message = "the gateway's tokens were lost with its database; it refuses all callers until an operator makes a token with `tine token new NAME`, or admits all callers on the machine again with `tine token confirm --all`" + sameState
		}
		r := invalid(ReasonMissing, message)
		r.Code = "" // RFC 6750: a request without a token gets no error code
		return Principal{}, g.withScopes(r)
	}
	token, r := bearer(authorization)
	if r != nil {
		return Principal{}, g.withScopes(r)
	}
	sum := digest(sha256.Sum256([]byte(token)))
	if t, ok := g.static[sum]; ok {
		if t.unconfirmed {
			return Principal{}, g.withScopes(invalid(ReasonUnconfirmed, "the token came back with a backup of the gateway's database and must be confirmed by an operator with `tine token confirm "+t.principal.Name+"`"+sameState))
		}
		if !t.expires.IsZero() && !g.now().Before(t.expires) {
			return Principal{}, g.withScopes(invalid(ReasonExpired, "the token has expired"))
		}
		return t.principal, nil
	}
	switch p, is := g.leased(hexOf(sum)); is {
	case leaseGood:
		return p, nil
	case leaseOver:
		return Principal{}, g.withScopes(invalid(ReasonExpired, "the session's token has expired; the session's owner can make another one"))
	case leaseRefused:
		return Principal{}, g.withScopes(invalid(ReasonRevoked, "the session's owner is refused: its token was revoked or is unconfirmed. The session's token is refused as long as the owner is"))
	}
	if g.issuer == nil || strings.HasPrefix(token, tokenPrefix) {
		message := "unknown or expired token"
		if g.bound != nil {
			message += " (a session's token expires when the session closes)"
		}
		return Principal{}, g.withScopes(invalid(ReasonUnknown, message))
	}
	v, r := g.issuer.check(ctx, token, sum)
	if r != nil {
		return Principal{}, g.withScopes(r)
	}
	p, r := g.admit(v, resource)
	if r != nil {
		return Principal{}, g.withScopes(r)
	}
	return p, nil
}

// Again returns an admitted principal with its present permissions, and false if
// its token is no longer accepted. It is for connections that stay open between
// requests.
func (g *Guard) Again(p Principal) (Principal, bool) {
	switch {
	case p.signed != nil:
		if g.issuer == nil {
			return Principal{}, false
		}
		if keys := g.issuer.keys.current.Load(); keys == nil || keys.dropped != p.signed.dropped {
			return Principal{}, false
		}
		b := p.signed.bound.Load()
		if b == nil || b.guard != g {
			var r *Refusal
			if b, r = g.bind(p.signed); r != nil {
				return Principal{}, false
			}
			p.signed.bound.Store(b)
		}
		return b.principal, b.scoped && p.signed.timely(g.now()) == nil
	case p.lease != nil:
		p, is := g.leased(p.lease.hash)
		return p, is == leaseGood
	case p.static != digest{}:
		t, ok := g.static[p.static]
		return t.principal, ok && !t.unconfirmed && (t.expires.IsZero() || g.now().Before(t.expires))
	case p == Local():
		return p, true // it has no token: it is the gateway's own
	}
	return g.anonymous, g.open && p.Name == ""
}

// withScopes adds the scopes that a better token needs.
func (g *Guard) withScopes(r *Refusal) *Refusal {
	if r.Status != http.StatusServiceUnavailable {
		r.Scopes = slices.Clone(g.scopes)
	}
	return r
}

// bound is the meaning of a verified token for one guard.
type bound struct {
	guard     *Guard
	principal Principal
	anywhere  bool     // its audience is one of the listed
	audiences []string // otherwise these, and what is below them
	scoped    bool     // it has all scopes
}

// admit checks a verified token against the guard's options and the request.
func (g *Guard) admit(v *verified, resource string) (Principal, *Refusal) {
	if r := v.timely(g.now()); r != nil {
		return Principal{}, r
	}
	b := v.bound.Load()
	if b == nil || b.guard != g {
		var r *Refusal
		if b, r = g.bind(v); r != nil {
			return Principal{}, r
		}
		v.bound.Store(b)
	}
	switch {
	case !b.anywhere && !covers(b.audiences, resource):
		return Principal{}, invalid(ReasonAudience, g.audienceHint(resource))
	case !b.scoped:
		return Principal{}, &Refusal{Status: http.StatusForbidden, Code: codeScope, Reason: ReasonScope,
			Message: "the token lacks a scope; needed are: " + strings.Join(g.scopes, " ")}
	}
	return b.principal, nil
}

func (g *Guard) bind(v *verified) (*bound, *Refusal) {
	c, err := parseClaims(v.payload)
	if err != nil {
		return nil, invalid(ReasonMalformed, "the token's claims can't be read")
	}
	b := &bound{guard: g, principal: g.rules.principal(v.name, api.RoleUser, c), scoped: true}
	b.principal.signed = v
	b.audiences, b.anywhere = g.audiences.fit(v.audience)
	for _, s := range g.scopes {
		b.scoped = b.scoped && slices.Contains(v.scopes, s)
	}
	return b, nil
}

func (g *Guard) audienceHint(resource string) string {
	if len(g.audiences.listed) > 0 {
		return "the token is meant for another audience than this gateway"
	}
	if g.audiences.public == "" {
		if c, ok := canonical(resource); ok && !loopback(c) {
			return "the token's audience can't be checked: set public_url or auth.oidc.audience"
		}
	}
	return "the token is meant for another audience; ask its issuer for one for " + resource
}
