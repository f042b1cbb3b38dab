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

// A session's token lets in as the session's owner, but only to that session, and
// only while the owner could come in. What the owner may use is decided with the
// rules of today, from what was noted of the owner when the session was opened:
// the issuer's token that they showed is not there any more, and may have run out.
//
//	an owner that a token names   comes in while a token of that name is good
//	an owner of an issuer         comes in while that issuer is the configured one
//	the machine's user            always does

// pinned is that note. It holds no token.
type pinned struct {
	Name string `json:"name,omitempty"`
	// Local is set for the machine's own operator, whom no rule limits.
	Local  bool            `json:"local,omitempty"`
	Claims json.RawMessage `json:"claims,omitempty"` // of the issuer's token
}

// lease is how a principal came in by a session's token.
type lease struct {
	hash string // of the token, in hex
	pin  []byte
}

// Pin notes what is needed to make a principal again later, without its token
// and with no more than the role of a user. It is JSON, and may hold what an
// issuer says of a person.
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

// leased makes the principal of a session's token. It is not found when there is
// no open session that has the token, and not good while the session's owner
// could not come in.
func (g *Guard) leased(hash string) (p Principal, found, good bool) {
	if g.bound == nil {
		return Principal{}, false, false
	}
	session, pin, ok := g.bound(hash)
	if !ok {
		return Principal{}, false, false
	}
	o := g.owner(pin)
	if o == nil {
		g.log.Warn("a session's owner can't be read, so its token lets nobody in", "session", session)
		return Principal{}, false, false
	}
	p = o.principal
	p.Session, p.lease = session, &lease{hash, pin}
	return p, true, g.admits(o)
}

// admits reports whether the owner of a session could come in now.
func (g *Guard) admits(o *owner) bool {
	switch {
	case strings.HasPrefix(o.principal.Name, issued):
		// Of a session that an operator forked there may be no claims.
		return g.issuer != nil && (!o.signed || g.issuer.names(o.claims) == o.principal.Name)
	case o.principal.Name == "":
		return true
	}
	return slices.ContainsFunc(g.named[o.principal.Name], func(expires time.Time) bool {
		return expires.IsZero() || g.now().Before(expires)
	})
}

// Owner makes the principal that a session belongs to, from what Pin noted of it,
// or from its name where nothing is noted. What the rules give for claims that
// nobody noted is not among what it may use.
func (g *Guard) Owner(name string, pin []byte) Principal {
	if len(pin) > 0 {
		if o := g.owner(pin); o != nil {
			return o.principal
		}
		return Principal{} // who can't be read may use nothing
	}
	return g.rules.principal(name, api.RoleUser, nil)
}

// owner is whose a session is.
type owner struct {
	principal Principal
	signed    bool // an issuer's token named it, with these claims
	claims    claims
}

// owner is unpin, done once for all sessions of one owner: they share a note, and
// what the rules make of it.
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
