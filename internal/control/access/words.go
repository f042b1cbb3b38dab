package access

import (
	"fmt"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// What a server writes to its standard error may repeat the content of a call.
// Operators read it, and principals who may use the session that has the
// instance for itself. That a server failed, and how it ended, is for all who
// know of it.

// Hears reports whether a principal may read what an instance wrote to its standard
// error. The session is the one that has the instance for itself; nil for an
// instance of several.
func Hears(who identity.Principal, session *Thing) bool {
	return who.Session == "" && who.Is(api.RoleOperator) || session != nil && Uses(who, *session)
}

// Told is an error as a principal is told it: with what the server wrote where it
// may read that. An error of an instance that one session has for itself is told
// only to those who act in that session.
func Told(who identity.Principal, e *api.Error) *api.Error {
	told := *e
	told.Words, told.Own = "", false
	if e.Own || Hears(who, nil) {
		told.Message = api.WithWords(e.Message, e.Words)
	}
	if e.Causes == nil {
		return &told
	}
	told.Causes = make([]*api.Error, len(e.Causes))
	for i, cause := range e.Causes {
		told.Causes[i] = Told(who, cause)
		if cause.Words != "" && (cause.Own || Hears(who, nil)) {
			told.Message += fmt.Sprintf("; the last words of server %q: %s", cause.Server, cause.Words)
		}
	}
	return &told
}

// Damages are those of a session, or of a snapshot of one, that a principal may know
// of: of servers that it knows, and with what they wrote where it may read that.
// Damages that an earlier version wrote down have the words of shared servers in
// their reason, which is for operators.
func Damages(who identity.Principal, of Thing, all []api.Damage) []api.Damage {
	var out []api.Damage
	for _, d := range all {
		if d.Server != "" && !Knows(who, d.Server) {
			continue
		}
		if !Hears(who, nil) {
			d.Why = api.WithoutWords(d.Why)
		}
		if !Hears(who, &of) {
			d.Words = ""
		}
		out = append(out, d)
	}
	return out
}
