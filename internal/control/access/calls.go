package access

import (
	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// A Call is what decides how far a principal may look at a call in the journal.
type Call struct {
	Thing
	Server string
	Denied bool // a rule kept it from being made
	Aside  bool // it is no call of a tool, but an annotation, a command or files that were copied in
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
// session, whose rewards, checks and expected answers are not for it to see.
func At(who identity.Principal, c Call, session *Thing) Look {
	inside := session != nil && Uses(who, *session)
	look := Look{Row: inside || Sees(who, c.Thing), Contents: inside || Uses(who, c.Thing)}
	if c.Aside && who.Session != "" {
		return Look{}
	}
	if c.Denied {
		look.Row = look.Row && Knows(who, c.Server)
		look.Reason = who.Session == "" && who.Is(api.RoleOperator)
	}
	return look
}

// All reports whether a principal looks at the calls of all principals, or at its own.
func All(who identity.Principal) bool { return who.Session == "" && who.Is(api.RoleViewer) }
