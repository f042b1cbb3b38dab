package control

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// NoSession is the answer for a session that is not there, and for one of
// another principal.
func NoSession(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no session " + Clip(id) + " of yours"}
}

// ended is the answer to the owner of a session that was closed. One that ended by
// itself is lost: its caller made no mistake.
func ended(s api.Session) error {
	kind := api.KindInvalid
	message := "session " + s.ID + " was closed at " + s.Closed.UTC().Format(time.RFC3339)
	if s.Reason != "" {
		kind = api.KindLost
		message += ": " + s.Reason
	}
	return &api.Error{Kind: kind, Status: http.StatusGone, Message: message}
}

// missing is the answer for a session that is not served. One that is still
// recorded as open says why and what would bring it back.
func (c *Sessions) missing(who identity.Principal, id string) error {
	u, ok := c.reg.Unserved(id)
	if !ok || !access.Sees(who, access.Thing{Owner: u.Owner, Session: id}) {
		return NoSession(id)
	}
	mend := u.Mend
	if !who.Is(api.RoleOperator) {
		mend = "the operator of the gateway finds in its log what brings the session back"
	}
	return &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Message: "session " + id + " is not served: " + u.Why + "; " + mend}
}

// ID is the id of the session that is meant by an id, or by the name of a durable
// session: one of the principal, else the only one of another principal that it may see. The
// default session of another principal is not found by its name.
func (c *Sessions) ID(who identity.Principal, ref string) (string, error) {
	if session.IsID(ref) {
		return ref, nil
	}
	var others []*session.Session
	for _, s := range c.reg.Called(ref) {
		switch {
		case s.Owner == who.Name && access.Uses(who, access.Thing{Owner: s.Owner, Session: s.ID}):
			return s.ID, nil
		case access.Sees(who, access.Thing{Owner: s.Owner, Session: s.ID}):
			others = append(others, s)
		}
	}
	switch {
	case len(others) == 0:
		return "", NoSession(ref)
	case len(others) == 1 && ref != session.DefaultName:
		return others[0].ID, nil
	}
	slices.SortFunc(others, func(a, b *session.Session) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})
	var named []string
	for _, s := range others[:min(len(others), 10)] {
		named = append(named, s.ID+" of "+cmp.Or(s.Owner, "callers without a token"))
	}
	if more := len(others) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return "", &api.Error{
		Kind: api.KindInvalid, Status: http.StatusConflict,
		Message: fmt.Sprintf("the name %s is ambiguous: you have no session of that name, and others have %d: %s; give the id", ref, len(others), strings.Join(named, ", ")),
	}
}

// Usable finds an open session for a principal that acts in it.
func (c *Sessions) Usable(ctx context.Context, who identity.Principal, id string) (*session.Session, error) {
	if s := c.reg.Get(id); s != nil {
		if access.Uses(who, access.Thing{Owner: s.Owner, Session: id}) {
			return s, s.Expired()
		}
		if access.Sees(who, access.Thing{Owner: s.Owner, Session: id}) {
			return nil, access.Need(who, api.RoleOperator)
		}
		return nil, NoSession(id)
	}
	was, ok, err := c.reg.Closed(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || !access.Sees(who, access.Thing{Owner: was.Owner, Session: id}) {
		return nil, c.missing(who, id)
	}
	return nil, ended(was)
}

// Seen finds a session, open or closed, for a principal that looks at it.
// The session is nil when it is closed.
func (c *Sessions) Seen(ctx context.Context, who identity.Principal, id string) (*session.Session, api.Session, error) {
	if s := c.reg.Get(id); s != nil {
		if !access.Sees(who, access.Thing{Owner: s.Owner, Session: id}) {
			return nil, api.Session{}, NoSession(id)
		}
		return s, c.reg.Describe(s, true), nil
	}
	was, ok, err := c.reg.Closed(ctx, id)
	if err == nil && (!ok || !access.Sees(who, access.Thing{Owner: was.Owner, Session: id})) {
		err = c.missing(who, id)
	}
	return nil, was, err
}

// Of finds the session of a request without a client: the one it names, the one that
// its token is bound to, or the principal's default.
func (c *Sessions) Of(ctx context.Context, who identity.Principal, id string) (*session.Session, error) {
	if id == "" {
		if who.Session == "" {
			return c.reg.Default(ctx, who.Name)
		}
		id = who.Session
	}
	id, err := c.ID(who, id)
	if err != nil {
		return nil, err
	}
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return nil, err
	}
	s.Touch()
	return s, nil
}

// OwnNamed is the id of the session that ?session= means, an id or a name of the
// principal's; empty where there is none yet.
func (c *Sessions) OwnNamed(who identity.Principal, ref string) string {
	if session.IsID(ref) {
		return ref
	}
	for _, s := range c.reg.Called(ref) {
		if s.Owner == who.Name {
			return s.ID
		}
	}
	return ""
}

// Named finds or opens the principal's durable session of a name.
func (c *Sessions) Named(ctx context.Context, who identity.Principal, name string) (*session.Session, error) {
	switch {
	case who.Session != "":
		return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden, Message: "this token is for one session; leave ?session= out"}
	case session.IsID(name):
		return c.Usable(ctx, who, name)
	}
	return c.reg.Named(ctx, who.Name, name)
}

// Catalog is the servers of a session that the principal may use, and otherwise those
// of the config: the principal is refused later.
func (c *Sessions) Catalog(who identity.Principal, id string) *catalog.Catalog {
	if s := c.reg.Get(id); s != nil && access.Uses(who, access.Thing{Owner: s.Owner, Session: id}) {
		return s.Catalog()
	}
	return c.reg.Catalog()
}
