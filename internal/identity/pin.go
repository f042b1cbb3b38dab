package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/tine-mcp/tine/api"
)

// A session's token lets in as the session's owner, but only to that session.
// What the owner may use is decided with the rules of today, from what was noted
// of the owner when the session was opened: their own token is not there any
// more, and may have run out.

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

// leased makes the principal of a session's token; false when there is no open
// session that has it.
func (g *Guard) leased(hash string) (Principal, bool) {
	if g.bound == nil {
		return Principal{}, false
	}
	session, pin, ok := g.bound(hash)
	if !ok {
		return Principal{}, false
	}
	// Sessions of one owner share a note, and what the rules make of it.
	sum := sha256.Sum256(pin)
	owner := g.owners.get(string(sum[:]), func(string) *Principal { return g.unpin(pin) })
	if owner == nil {
		g.log.Warn("a session's owner can't be read, so its token lets nobody in", "session", session)
		return Principal{}, false
	}
	p := *owner
	p.Session, p.lease = session, &lease{hash, pin}
	return p, true
}

// unpin makes the principal of a note; nil when it can't be read.
func (g *Guard) unpin(pin []byte) *Principal {
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
	return &p
}

func hexOf(d digest) string { return hex.EncodeToString(d[:]) }
