// Package identity knows the callers and what they may use: principals, the tokens
// that name them, and the rules that give them servers and tools.
//
// A Guard turns an Authorization header into a Principal. It knows four kinds of
// tokens: the machine's own one, static ones that are kept as hashes, those of
// sessions, which bind the caller to that session and may limit it to some servers, and
// signed ones (JWT) of one OpenID Connect issuer. The expensive checks of a signed token happen once:
// afterwards a call costs one hash and one lookup.
//
// No token, nor any part of one, is ever in an error, a log or a message.
package identity

import (
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A Principal is someone who may use the gateway. It is small and may be kept
// and copied; principals are the same when their names, sessions and further tokens are.
// One that no Guard made sees nothing, but for the one of Local.
type Principal struct {
	// Name is empty for the anonymous principal of an open gateway and for the
	// machine's own operator. Those of an issuer begin with "oidc:".
	Name string
	// Role is one of the roles in package api.
	Role string
	// Session is the one session that the principal is bound to, since it showed
	// a token of that session; empty if it is not bound.
	Session string
	// Run is what that token was made for; empty for none.
	Run string

	access *access
	static digest    // of the token that named it
	signed *verified // or the issuer's token
	lease  *lease    // or a session's
}

// A Limit is what a further token of a session limits its holder to. It is not changed
// once a Guard knows it.
type Limit struct {
	Token   string   // the token's id
	Run     string   // what it was made for; may be empty
	Servers []string // that it reaches, in order; nil for all
	Allow   []string // rights of package api that it gives
	Expires time.Time
}

// Allows reports whether the token gives a right.
func (l *Limit) Allows(right string) bool { return slices.Contains(l.Allow, right) }

func (l *Limit) reaches(server string) bool {
	if l.Servers == nil {
		return true
	}
	_, ok := slices.BinarySearch(l.Servers, server)
	return ok
}

// Limit is what the principal's token limits it to; nil for one that is no further token
// of a session.
func (p Principal) Limit() *Limit {
	if p.lease == nil {
		return nil
	}
	return p.lease.limit
}

// Token is the id of the further token of a session that the principal showed; empty for
// any other.
func (p Principal) Token() string {
	if l := p.Limit(); l != nil {
		return l.Token
	}
	return ""
}

// Local is the principal of the machine's own token: an operator without a name
// that no rule limits.
func Local() Principal { return Principal{Role: api.RoleOperator} }

// Anonymous reports whether the principal has no name.
func (p Principal) Anonymous() bool { return p.Name == "" }

// Is reports whether the principal has a role, or one above it. It is false for an
// unknown role.
func (p Principal) Is(role string) bool {
	want := rank(role)
	return want >= 0 && rank(p.Role) >= want
}

// MaySee reports whether the principal may use anything of a server.
func (p Principal) MaySee(server string) bool { return p.reach(server).seen }

// MayCall reports whether the principal may use a tool, under the name that
// clients of the server's own view see.
func (p Principal) MayCall(server, tool string) bool { return p.reach(server).tools.gives(tool) }

// MayPrompt reports whether the principal may use a prompt of a server.
func (p Principal) MayPrompt(server, prompt string) bool {
	return p.reach(server).prompts.gives(prompt)
}

// Prompts reports whether the principal may use any prompts of a server, and
// whether it may use all.
func (p Principal) Prompts(server string) (some, all bool) {
	n := &p.reach(server).prompts
	return !n.none(), n.all
}

// MayRead reports whether the principal may use the resources of a server.
func (p Principal) MayRead(server string) bool { return p.reach(server).resources }

// MayExec reports whether the principal may run commands beside a server and copy its
// files, and whether a rule says so: without rules every principal may use everything.
func (p Principal) MayExec(server string) (may, ruled bool) {
	return p.mayAct(server, func(r *rule) bool { return len(r.servers) == 0 || matchAny(r.servers, server) })
}

// MayCopyInto reports whether the principal may copy files to a place that is no server's.
func (p Principal) MayCopyInto(place string) bool {
	may, _ := p.mayAct(place, func(*rule) bool { return true })
	return may
}

// mayAct looks for a rule that lets the principal act at a place, of those that are about
// the place.
func (p Principal) mayAct(place string, about func(*rule) bool) (may, ruled bool) {
	switch a := p.access; {
	case p.shutOut(place):
		return false, false
	case a == nil:
		return p.Name == "" && p.Role == api.RoleOperator, false
	case a.open:
		return true, false
	default:
		for _, r := range a.grants {
			if matchAny(r.exec, place) && about(r) {
				return true, true
			}
		}
	}
	return false, false
}

// Unlimited reports whether the principal may use all of a server. It may be false
// for rules that give all of it in pieces.
func (p Principal) Unlimited(server string) bool { return p.reach(server).unlimited }

// Rate is what bounds the calls of the principal, over all servers.
func (p Principal) Rate() Rate {
	if p.access == nil {
		return Rate{}
	}
	return p.access.rate
}

// shutOut reports whether the principal's token does not reach a server, whatever the
// rules say. Only reach and mayAct look at the rules, and both ask it first.
func (p Principal) shutOut(server string) bool {
	return p.lease != nil && p.lease.limit != nil && !p.lease.limit.reaches(server)
}

func (p Principal) reach(server string) *reach {
	switch {
	case p.shutOut(server):
		return nothing
	case p.access != nil:
		return p.access.reach(server)
	case p.Name == "" && p.Role == api.RoleOperator:
		return everything
	}
	return nothing
}

// rank orders the roles; it is -1 for an unknown one.
func rank(role string) int {
	return slices.Index([]string{api.RoleUser, api.RoleViewer, api.RoleOperator}, role)
}

// higher is the one of two roles with more permissions. An unknown role is below
// any.
func higher(a, b string) string {
	if rank(b) > rank(a) {
		return b
	}
	return a
}
