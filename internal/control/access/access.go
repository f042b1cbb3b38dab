// Package access says who may do what. Every way in asks here: the control API,
// the orchestration API, MCP, and servers inside the gateway that act on
// sessions. The functions are pure: the principal is an argument, and nothing is
// looked up.
//
//	                     its owner   its token   an operator   a viewer   others
//	know of a session    yes         that one    yes           yes        no
//	act in it, read it   yes         that one    yes           no         no
//	know of an agent's   yes         that one    yes           yes        a run's token: below it
//	session, read it     yes         that one    yes           no         a run's token: below it
//	start, stop, resume  yes         no          yes           no         a run's token: below it
//	know of a server     what the rules give     yes           yes        no
//	start and call it    what the rules give, whatever the role
//	read its stderr      of the session's own instance   yes      no         no
//
// A further token of a session does no more than the session's own: it reaches the
// servers that it was made for, and forks, closes or rewinds only where it says so.
//
// Others get the words for something that does not exist.
package access

import (
	"errors"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// A Thing has an owner, which is a principal: a session, a snapshot of one, or
// a call in one, which belongs to its caller.
type Thing struct {
	Owner   string
	Session string // the session that it is, or comes from; empty for none
}

// Uses reports whether a principal may act in a thing and read what is in it.
func Uses(who identity.Principal, t Thing) bool {
	if who.Session != "" {
		return who.Session == t.Session
	}
	return who.Name == t.Owner || who.Is(api.RoleOperator)
}

// Sees reports whether a principal may know of a thing.
func Sees(who identity.Principal, t Thing) bool {
	return Uses(who, t) || who.Session == "" && who.Is(api.RoleViewer)
}

// Need refuses a principal with less than a role.
func Need(who identity.Principal, role string) error {
	if who.Is(role) {
		return nil
	}
	return &api.Error{
		Kind: api.KindRefused, Status: http.StatusForbidden,
		Message: "this needs the role " + role + "; auth.tokens and auth.rules give roles, and the user of the gateway's machine has all",
	}
}

// Base is the server that a member of a session is an instance of.
func Base(member string) string {
	server, _, _ := strings.Cut(member, "~")
	return server
}

// Starts reports whether a principal may have a member of a session started, and
// call it. No role stands above the rules in this.
func Starts(who identity.Principal, member string) bool { return who.MaySee(Base(member)) }

// Knows reports whether a principal may know that there is a server: it may use
// it, or look after all of them.
func Knows(who identity.Principal, member string) bool {
	return Starts(who, member) || who.Session == "" && who.Is(api.RoleViewer)
}

// Hidden returns what a principal must not learn of, for a request that writes
// or reads the states of members.
func Hidden(who identity.Principal) func(member string) bool {
	return func(member string) bool { return !Knows(who, member) }
}

// Brings returns which servers a principal may not bring a state for: those that
// it may not start, unless it looks after them.
func Brings(who identity.Principal) func(member string) bool {
	return func(member string) bool { return !Starts(who, member) && !who.Is(api.RoleOperator) }
}

// Programs reports whether a principal may bring a state that holds a program,
// such as a memory, which this gateway did not write.
func Programs(who identity.Principal) bool { return who.Session == "" && who.Is(api.RoleOperator) }

// Unnamed is an error about a session without the names of servers that the
// principal must not learn of.
func Unnamed(who identity.Principal, err error) error {
	var e *api.Error
	if err == nil || !errors.As(err, &e) || !names(who, e) {
		return err
	}
	return &api.Error{
		Kind: e.Kind, Status: e.Status, Retryable: e.Retryable, RetryAfter: e.RetryAfter,
		Message: "a part of the session that is not yours to see stands in the way; an operator sees what it is",
	}
}

func names(who identity.Principal, e *api.Error) bool {
	if e.Server != "" && !Knows(who, e.Server) {
		return true
	}
	for _, cause := range e.Causes {
		if names(who, cause) {
			return true
		}
	}
	return false
}
