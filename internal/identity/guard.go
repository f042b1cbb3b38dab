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

// Options are what a Guard goes by. The zero value is open.
type Options struct {
	Tokens []Token
	// Operator is the hash of the machine's own token, which names Local.
	Operator string
	OIDC     *OIDC // nil without
	Rules    []Rule
	// Separator stands between server and tool in rules; default "__".
	Separator string
	// PublicURL is where the gateway is reached from outside. Without it and
	// without OIDC.Audience tokens are taken for loopback URLs only.
	PublicURL string
	// Bound finds the open session whose token has a hash, sha256 in hex, and what
	// Pin noted of its owner; nil where there are no such tokens. It may be called
	// at once, at every request.
	Bound func(hash string) (session string, pinned []byte, ok bool)
	// Shut keeps whoever has no token out even where there is none to have: the
	// gateway can be reached by others.
	Shut bool
	// Lost does the same because there were tokens and they are lost.
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
	// Unconfirmed is of a token that came back with a backup: it lets nobody in, and
	// keeps those without a token out like any other.
	Unconfirmed bool
}

// A Guard tells who comes in. Its methods may be called at once.
type Guard struct {
	now       func() time.Time
	log       *slog.Logger
	open      bool
	lost      bool
	anonymous Principal
	static    map[digest]staticToken
	rules     *ruleset
	bound     func(hash string) (session string, pinned []byte, ok bool)
	owners    memo[*owner]           // of sessions, by what was pinned
	named     map[string][]time.Time // until when the tokens of a name are good; zero for ever
	all       *access                // of whom no rule limits
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

// NewGuard makes a Guard, which must be closed. It reaches out to nobody before
// the first signed token is shown.
func NewGuard(o Options) *Guard {
	g := newGuard(o)
	if o.OIDC != nil {
		g.issuer = newIssuer(o.OIDC, g.now, g.log)
	}
	return g
}

// With makes the Guard that takes g's place: with other options, and with the
// keys and verified tokens of g where both have the same issuer. Requests that
// are with g may end there; only the new one must be closed.
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

// Close ends what the guard does by itself and waits for it. It may be called
// twice, and does nothing where With has given another guard its place.
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
			o.Log.Warn("a token without a name or with a malformed hash lets nobody in", "name", t.Name)
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

// Open reports whether callers without a token come in: there is neither a token
// nor an issuer, so all there can be is one person on this machine.
func (g *Guard) Open() bool { return g.open }

// sameState ends the advice of a command on the gateway's state folder. The path of
// the folder is not for callers whom nobody knows.
const sameState = "; give it the --state that the gateway was started with, if there was one"

// Identify tells who sent an Authorization header to a URL of the gateway. A
// header that is there and wrong is refused even where none would do. With a
// Refusal there is no Principal.
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
		r.Code = "" // RFC 6750: who sent none has done nothing wrong yet
		return Principal{}, g.tell(r)
	}
	token, r := bearer(authorization)
	if r != nil {
		return Principal{}, g.tell(r)
	}
	sum := digest(sha256.Sum256([]byte(token)))
	if t, ok := g.static[sum]; ok {
		if t.unconfirmed {
			return Principal{}, g.tell(invalid(ReasonUnconfirmed, "the token came back with a backup of the gateway's database and has to be confirmed by an operator with `tine token confirm "+t.principal.Name+"`"+sameState))
		}
		if !t.expires.IsZero() && !g.now().Before(t.expires) {
			return Principal{}, g.tell(invalid(ReasonExpired, "the token has expired"))
		}
		return t.principal, nil
	}
	if p, found, good := g.leased(hexOf(sum)); good {
		return p, nil
	} else if found {
		return Principal{}, g.tell(invalid(ReasonRevoked, "the session's owner may not come in now: its token was revoked or waits to be confirmed. The token of the session is refused until the owner may come in again"))
	}
	if g.issuer == nil || strings.HasPrefix(token, tokenPrefix) {
		message := "the token is not known here"
		if g.bound != nil {
			message += "; that of a session ends with the session"
		}
		return Principal{}, g.tell(invalid(ReasonUnknown, message))
	}
	v, r := g.issuer.check(ctx, token, sum)
	if r != nil {
		return Principal{}, g.tell(r)
	}
	p, r := g.admit(v, resource)
	if r != nil {
		return Principal{}, g.tell(r)
	}
	return p, nil
}

// Again tells what somebody who came in before may do now, and false when their
// token is no longer taken. It is for what stays open between requests.
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
		p, _, good := g.leased(p.lease.hash)
		return p, good
	case p.static != digest{}:
		t, ok := g.static[p.static]
		return t.principal, ok && !t.unconfirmed && (t.expires.IsZero() || g.now().Before(t.expires))
	case p == Local():
		return p, true // it came in by no token, but from inside
	}
	return g.anonymous, g.open && p.Name == ""
}

// tell adds the scopes that whoever gets a better token should ask for.
func (g *Guard) tell(r *Refusal) *Refusal {
	if r.Status != http.StatusServiceUnavailable {
		r.Scopes = slices.Clone(g.scopes)
	}
	return r
}

// bound is what a verified token is worth to one guard.
type bound struct {
	guard     *Guard
	principal Principal
	anywhere  bool     // its audience is one of the listed
	audiences []string // otherwise these, and what is below them
	scoped    bool     // it has all scopes
}

// admit holds a verified token against what depends on the guard and the
// request.
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
