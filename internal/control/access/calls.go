package access

import (
	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// A Call is what decides how far a principal may look at a call in the journal.
type Call struct {
	Thing
	Server string
	Run    string // of the token that it was made with
	Denied bool   // a rule kept it from being made
	Aside  bool   // it is no call of a tool, but an annotation, a command or files that were copied in
}

// A Look is what of a call may be looked at.
type Look struct {
	Row      bool // that there was one, and how it went
	Contents bool // what was said in it: arguments, result, the words of an error
	Reason   bool // why it was denied
}

// At says how far a principal may look at a call. Within a session that it may
// use it reads the calls of all principals.
//
// A denied call shows that there is a server of that name, so its caller finds
// it only where it knows of the server. A session's token is for the agent in the
// session, whose rewards, checks and expected answers are not for it to see. A further
// token sees the calls of its own run, unless it may read the trajectory, and none to
// servers that it does not reach.
func At(who identity.Principal, c Call, session *Thing) Look {
	inside := session != nil && Uses(who, *session)
	look := Look{Row: inside || Sees(who, c.Thing), Contents: inside || Uses(who, c.Thing)}
	if c.Aside && who.Session != "" {
		return Look{}
	}
	if l := who.Limit(); l != nil {
		mine := l.Run != "" && l.Run == c.Run || gives(l, api.AllowTrajectory)
		if !mine || l.Servers != nil && !Knows(who, c.Server) {
			return Look{}
		}
	}
	if c.Denied {
		look.Row = look.Row && Knows(who, c.Server)
		look.Reason = who.Session == "" && who.Is(api.RoleOperator)
	}
	return look
}

// All reports whether a principal looks at the calls of all principals, or at its own.
func All(who identity.Principal) bool { return who.Session == "" && who.Is(api.RoleViewer) }
