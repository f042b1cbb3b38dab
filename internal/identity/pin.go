package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A session's token admits its holder as the session's owner, but only to that
// session, and only while the owner would be admitted. What the owner may use is
// decided with the present rules, from a note made when the session was opened: the
// issuer's token that the owner showed is not kept, and may have expired.
//
//	an owner that a token names   is admitted while a token of that name is valid
//	an owner of an issuer         is admitted while that issuer is the configured one
//	the machine's user            is always admitted
//
// A session may have further tokens, each with a Limit. Its holder is the owner too, with
// the owner's rules, within the limit.

// pinned is that note. It holds no token.
type pinned struct {
	Name string `json:"name,omitempty"`
	// Local is set for the machine's own operator, which no rule limits.
	Local  bool            `json:"local,omitempty"`
	Claims json.RawMessage `json:"claims,omitempty"` // of the issuer's token
}

// A Binding is the session that a token is of.
type Binding struct {
	Session string
	Pinned  []byte // the note that Pin made of the session's owner
	Limit   *Limit // nil for the session's own token
}

// lease is how a principal was admitted by a session's token.
type lease struct {
	hash  string // of the token, in hex
	pin   []byte
	limit *Limit // nil for the session's own token
}

// Pin notes what is needed to make a principal again later, without its token and
// with no more than the role of a user. It is JSON, and may hold an issuer's claims
// about a person.
func Pin(p Principal) []byte {
	if p.lease != nil {
		return p.lease.pin
	}
	note := pinned{Name: p.Name, Local: p.access == nil && p.Name == "" && p.Role == api.RoleOperator}
	if p.signed != nil {
		note.Claims = p.signed.payload
	}
	b, err := json.Marshal(note)
	if err != nil {
		panic(err) // the payload was parsed when it was verified
	}
	return b
}

// What a token is as one of a session.
const (
	leaseNone    = iota // no open session has it
	leaseRefused        // the session's owner would not be admitted
	leaseOver           // it has expired
	leaseGood
)

// leased makes the principal of a session's token, if it is good.
func (g *Guard) leased(hash string) (p Principal, is int) {
	if g.bound == nil {
		return Principal{}, leaseNone
	}
	b, ok := g.bound(hash)
	if !ok {
		return Principal{}, leaseNone
	}
	o := g.owner(b.Pinned)
	switch {
	case o == nil:
		g.log.Warn("a session's owner can't be read, so its token is refused", "session", b.Session)
		return Principal{}, leaseNone
	case !g.admits(o):
		return Principal{}, leaseRefused
	case b.Limit != nil && !b.Limit.Expires.IsZero() && !g.now().Before(b.Limit.Expires):
		return Principal{}, leaseOver
	}
	p = o.principal
	p.Session, p.lease = b.Session, &lease{hash, b.Pinned, b.Limit}
	if b.Limit != nil {
		p.Run = b.Limit.Run
	}
	return p, leaseGood
}

// admits reports whether the owner of a session would be admitted now.
func (g *Guard) admits(o *owner) bool {
	switch {
	case strings.HasPrefix(o.principal.Name, issued):
		// A session that an operator forked may have no claims.
		return g.issuer != nil && (!o.signed || g.issuer.names(o.claims) == o.principal.Name)
	case o.principal.Name == "":
		return true
	}
	return slices.ContainsFunc(g.named[o.principal.Name], func(expires time.Time) bool {
		return expires.IsZero() || g.now().Before(expires)
	})
}

// Admits reports whether the owner of a session would be admitted now, by the note that
// Pin made, or by its name if there is none.
func (g *Guard) Admits(name string, pin []byte) bool {
	o := &owner{principal: Principal{Name: name}}
	if len(pin) > 0 {
		o = g.owner(pin)
	}
	return o != nil && g.admits(o)
}

// Owner makes the principal that a session belongs to, from the note that Pin made,
// or from its name if there is none. It lacks what rules give for claims that were
// not noted.
func (g *Guard) Owner(name string, pin []byte) Principal {
	if len(pin) > 0 {
		if o := g.owner(pin); o != nil {
			return o.principal
		}
		return Principal{} // an unreadable owner may use nothing
	}
	return g.rules.principal(name, api.RoleUser, nil)
}

// owner is the owner of a session.
type owner struct {
	principal Principal
	signed    bool // an issuer's token named it, with these claims
	claims    claims
}

// owner is unpin, done once for all sessions of one owner: they share a note, and
// the results of the rules.
func (g *Guard) owner(pin []byte) *owner {
	sum := sha256.Sum256(pin)
	return g.owners.get(string(sum[:]), func(string) *owner { return g.unpin(pin) })
}

// unpin makes the owner of a note; nil when it can't be read.
func (g *Guard) unpin(pin []byte) *owner {
	var note pinned
	if err := json.Unmarshal(pin, &note); err != nil {
		return nil
	}
	var c claims
	if note.Claims != nil {
		var err error
		if c, err = parseClaims(note.Claims); err != nil {
			return nil
		}
	}
	p := g.rules.principal(note.Name, api.RoleUser, c)
	if note.Local {
		p.access = g.all
	}
	p.Role = api.RoleUser // also where the rules give the owner a higher one
	return &owner{principal: p, signed: note.Claims != nil, claims: c}
}

func hexOf(d digest) string { return hex.EncodeToString(d[:]) }
