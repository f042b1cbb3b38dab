package gateway

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
)

// mayUse reports whether somebody may act in a session and read what was said in
// it.
func mayUse(who identity.Principal, owner, id string) bool {
	return access.Uses(who, access.Thing{Owner: owner, Session: id})
}

// maySee reports whether somebody may know of a session.
func maySee(who identity.Principal, owner, id string) bool {
	return access.Sees(who, access.Thing{Owner: owner, Session: id})
}

// noSession is the answer for a session that is not there, and for one of
// somebody else.
func noSession(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no session " + clip(id) + " of yours"}
}

// ended is the answer for a session that was closed, to whom it belonged. One that
// ended by itself is lost: whoever used it made no mistake.
func ended(s api.Session) error {
	kind := api.KindInvalid
	message := "session " + s.ID + " was closed at " + s.Closed.UTC().Format(time.RFC3339)
	if s.Reason != "" {
		kind = api.KindLost
		message += ": " + s.Reason
	}
	return &api.Error{Kind: kind, Status: http.StatusGone, Message: message}
}

// missing is the answer for a session that is not among those that are served. One
// that is still recorded as open says why and what would bring it back.
func (g *Gateway) missing(who identity.Principal, id string) error {
	u, ok := g.reg.Unserved(id)
	if !ok || !maySee(who, u.Owner, id) {
		return noSession(id)
	}
	mend := u.Mend
	if !who.Is(api.RoleOperator) {
		mend = "the operator of the gateway finds in its log what brings the session back"
	}
	return &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Message: "session " + id + " is not served: " + u.Why + "; " + mend}
}

// sessionID is the id of the session that is meant by an id, or by the name of a durable
// session: the principal's own, else that of the one other whose it may see. Nobody comes
// into the default session of another by its name.
func (g *Gateway) sessionID(who identity.Principal, ref string) (string, error) {
	if session.IsID(ref) {
		return ref, nil
	}
	var others []*session.Session
	for _, s := range g.reg.Called(ref) {
		switch {
		case s.Owner == who.Name && mayUse(who, s.Owner, s.ID):
			return s.ID, nil
		case maySee(who, s.Owner, s.ID):
			others = append(others, s)
		}
	}
	switch {
	case len(others) == 0:
		return "", noSession(ref)
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

// usable finds an open session for somebody who wants to act in it.
func (g *Gateway) usable(ctx context.Context, who identity.Principal, id string) (*session.Session, error) {
	if s := g.reg.Get(id); s != nil {
		if mayUse(who, s.Owner, id) {
			return s, s.Expired()
		}
		if maySee(who, s.Owner, id) {
			return nil, access.Need(who, api.RoleOperator)
		}
		return nil, noSession(id)
	}
	was, ok, err := g.reg.Closed(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || !maySee(who, was.Owner, id) {
		return nil, g.missing(who, id)
	}
	return nil, ended(was)
}

// seen finds a session, open or closed, for somebody who wants to look at it.
// The session is nil when it is closed.
func (g *Gateway) seen(ctx context.Context, who identity.Principal, id string) (*session.Session, api.Session, error) {
	if s := g.reg.Get(id); s != nil {
		if !maySee(who, s.Owner, id) {
			return nil, api.Session{}, noSession(id)
		}
		return s, g.reg.Describe(s, true), nil
	}
	was, ok, err := g.reg.Closed(ctx, id)
	if err == nil && (!ok || !maySee(who, was.Owner, id)) {
		err = g.missing(who, id)
	}
	return nil, was, err
}

// session finds the session of a request without a client: the one its URL
// names, the one that its token is bound to, or the principal's default.
func (g *Gateway) session(ctx context.Context, who identity.Principal, d door) (*session.Session, error) {
	id := d.session
	if id == "" {
		if who.Session == "" {
			return g.reg.Default(ctx, who.Name)
		}
		id = who.Session
	}
	id, err := g.sessionID(who, id)
	if err != nil {
		return nil, err
	}
	s, err := g.usable(ctx, who, id)
	if err != nil {
		return nil, err
	}
	s.Touch()
	return s, nil
}

// ownNamed is the id of the session that ?session= means, an id or a name of the
// principal's; empty where there is none yet.
func (g *Gateway) ownNamed(who identity.Principal, ref string) string {
	if session.IsID(ref) {
		return ref
	}
	for _, s := range g.reg.Called(ref) {
		if s.Owner == who.Name {
			return s.ID
		}
	}
	return ""
}

// named finds or opens the principal's durable session of a name.
func (g *Gateway) named(ctx context.Context, who identity.Principal, name string) (*session.Session, error) {
	switch {
	case who.Session != "":
		return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden, Message: "this token is for one session; leave ?session= out"}
	case session.IsID(name):
		return g.usable(ctx, who, name)
	}
	return g.reg.Named(ctx, who.Name, name)
}

// catalogOf is the servers of a session that somebody may use, and otherwise
// those of the config: whoever asks is refused later.
func (g *Gateway) catalogOf(who identity.Principal, id string) *session.Catalog {
	if s := g.reg.Get(id); s != nil && mayUse(who, s.Owner, id) {
		return s.Catalog()
	}
	return g.reg.Catalog()
}
