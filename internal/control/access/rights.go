package access

import (
	"fmt"
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// Whole reports whether a right reaches all servers of a session, so that it is not for a
// token that reaches some: a fork's own token reaches all, and a trajectory has the calls
// of all.
func Whole(right string) bool { return right == api.AllowFork || right == api.AllowTrajectory }

// Freely is what an action needs that any token of a session may use.
const Freely = "*"

// Allowed refuses a principal whose token is a further one of a session and does not give
// the right that an action needs. An action with neither a right nor Freely refuses all
// further tokens. Ownership and roles are not looked at.
func Allowed(who identity.Principal, right string) error {
	l := who.Limit()
	if l == nil || right == Freely || gives(l, right) {
		return nil
	}
	message := "this is not for a token that was made for a run; the session's owner can do it"
	if right != "" {
		message = fmt.Sprintf("this token does not allow %q; the session's owner can do it, or make a token that allows it", right)
	}
	return &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden, Message: message}
}

// gives reports whether a further token gives a named right.
func gives(l *identity.Limit, right string) bool {
	return right != "" && l.Allows(right) && (l.Servers == nil || !Whole(right))
}
