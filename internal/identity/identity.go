// Package identity knows who comes in: principals, the tokens that name them,
// and nothing about what they then do.
package identity

import (
	"crypto/sha256"
	"strings"
)

// A Principal is someone who may use the gateway.
type Principal struct {
	// Name is empty for the anonymous principal of a loopback gateway without
	// auth.
	Name string
	// Operator is the gateway's own user on this machine, named by the token in
	// the state folder: it may do everything.
	Operator bool
}

// Anonymous reports whether the principal has no name.
func (p Principal) Anonymous() bool { return p.Name == "" }

// Tokens maps bearer tokens to principals. Only hashes are kept, and looking
// one up takes the same time whether or not it is known.
type Tokens struct {
	byHash map[[sha256.Size]byte]Principal
	open   bool
}

// NewTokens makes an empty set. Without any token of a named principal the
// gateway is open to anonymous callers.
func NewTokens() *Tokens {
	return &Tokens{byHash: make(map[[sha256.Size]byte]Principal), open: true}
}

// Add lets a token name a principal.
func (t *Tokens) Add(token string, p Principal) {
	t.byHash[sha256.Sum256([]byte(token))] = p
	if !p.Operator {
		t.open = false
	}
}

// Open reports whether callers without a token come in.
func (t *Tokens) Open() bool { return t.open }

// Identify tells who sent an Authorization header. A header that is there and
// wrong is refused even where no header would do.
func (t *Tokens) Identify(authorization string) (Principal, bool) {
	if authorization == "" {
		return Principal{}, t.open
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Principal{}, false
	}
	p, ok := t.byHash[sha256.Sum256([]byte(strings.TrimSpace(token)))]
	return p, ok
}
