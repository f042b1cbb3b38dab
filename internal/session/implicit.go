package session

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A client that connects without naming a session has programs of its own, in a
// session that ends with the connection, as if it had started them itself. What the
// built-in servers remember is not for one connection: it is in the durable session
// of the principal, which all connections of the principal use.

// borrows reports whether the session uses the principal's default session's part of
// a server.
func (s *Session) borrows(e *catalog.Entry) bool {
	if s.Kind != KindClient || e == nil || e.Builtin == "" || !e.Own() {
		return false
	}
	k, ok := e.Runner.(driver.Rememberer)
	return e.Workspace || ok && k.Remembers(e.Spec())
}

// World returns the session that a connection means where it names none: its own, or the
// default one where that has all that the connection's remembers.
func (s *Session) World() (*Session, error) {
	borrows := false
	for _, e := range s.Catalog().Entries {
		if on, _ := e.On(); !on || !e.Own() || e.Builtin != "" && !s.borrows(e) {
			continue
		}
		if !s.borrows(e) {
			return s, nil
		}
		borrows = true
	}
	if !borrows {
		return s, nil
	}
	return s.r.Default(s.r.life, s.Owner)
}

// In returns the session that has the part of a server which this one uses: itself, or
// the principal's default session.
func (s *Session) In(server string) (*Session, error) {
	if !s.borrows(s.Catalog().Entry(server)) {
		return s, nil
	}
	return s.r.Default(s.r.life, s.Owner)
}

// borrow returns the default session's hold on a server, and has the session hear what
// the server says. The default session may have been closed, or its hold retired, since
// the last time.
func (s *Session) borrow(e *catalog.Entry) (*upstream.Upstream, *catalog.Entry, error) {
	lender, err := s.r.Default(s.r.life, s.Owner)
	if err != nil {
		return nil, e, err
	}
	up, _, err := lender.Upstream(e.ID)
	if err != nil {
		return nil, e, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, e, s.gone()
	}
	p := s.parts[e.ID]
	if p != nil && p.up == up {
		return up, e, nil
	}
	if p != nil && p.unhear != nil {
		p.unhear()
	}
	p = &part{up: up, borrowed: true}
	if len(s.watchers) > 0 {
		p.unhear = up.Watch(&ear{s: s, server: e.ID})
	}
	s.parts[e.ID] = p
	return up, e, nil
}

// UsesOf reports whether the session has used another one's part of a server.
func (s *Session) UsesOf(lender *Session) bool {
	if s.Kind != KindClient || s.Owner != lender.Owner || lender.Kind != KindDefault || lender.name != "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.borrowed {
			return true
		}
	}
	return false
}

// notItsOwn says why a session of one connection can't be frozen: what its built-in servers
// remember is another session's.
func (s *Session) notItsOwn(to act) error {
	for _, e := range s.Catalog().Entries {
		if on, _ := e.On(); on && s.borrows(e) {
			lender, err := s.r.Default(s.r.life, s.Owner)
			if err != nil {
				return err
			}
			return &api.Error{
				Kind: api.KindRefused, Server: e.ID, Status: http.StatusConflict,
				Message: fmt.Sprintf("session %s is one connection's, and server %q keeps its state in session %s; %s that one, or connect to a named session with /mcp?session=NAME", s.ID, e.ID, lender.ID, to.verb),
			}
		}
	}
	return nil
}

// borrowedFrom says whose part of a server the session uses; empty where it is its own.
func (s *Session) borrowedFrom(e *catalog.Entry) string {
	if !s.borrows(e) {
		return ""
	}
	s.r.mu.Lock()
	lender := s.r.defaults[s.Owner]
	s.r.mu.Unlock()
	id := ""
	if lender != nil {
		id = " " + lender.ID
	}
	return fmt.Sprintf("it keeps its state in the default session%s", id)
}

// mostNames bounds the sessions of a name that one principal has.
const mostNames = 100

// DefaultName is what the default session of a principal is called.
const DefaultName = "default"

var sessionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Name is what a durable session is called; empty for others.
func (s *Session) Name() string { return nameOf(s.Kind, s.name) }

func nameOf(kind, name string) string {
	if kind == KindDefault {
		return cmp.Or(name, DefaultName)
	}
	return ""
}

// shownKind is the kind of a session for the API, which tells those of a name apart.
func shownKind(kind, name string) string {
	if kind == KindDefault && name != "" {
		return api.SessionNamed
	}
	return kind
}

// Called returns the durable sessions of a name, which may be of several principals.
func (r *Registry) Called(name string) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Session
	for _, s := range r.defaults {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

// Named returns the durable session of a principal that has a name, made at its first
// use.
func (r *Registry) Named(ctx context.Context, owner, name string) (*Session, error) {
	switch {
	case name == DefaultName:
		return r.Default(ctx, owner)
	case IsID(name):
		return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusBadRequest, Message: "the name of a session must not begin with ses_, as ids do"}
	case !sessionName.MatchString(name):
		return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusBadRequest, Message: "session must be a name of 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or a digit"}
	}
	r.mu.Lock()
	s := r.defaults[defaultKey(owner, name)]
	n := 0
	for _, other := range r.defaults {
		if other.Owner == owner && other.name != "" {
			n++
		}
	}
	r.mu.Unlock()
	switch {
	case s != nil:
		s.Touch()
		return s, nil
	case n >= mostNames:
		return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusTooManyRequests, Message: fmt.Sprintf("there are %d sessions with names already; close one with: tine session close ID", mostNames)}
	}
	return r.open(ctx, owner, KindDefault, name, nil)
}

// defaultKey is what a durable session is found by; the one without a name is the
// principal's default.
func defaultKey(owner, name string) string {
	if name == "" {
		return owner
	}
	return owner + "\x00" + name
}

// Shared reports whether several connections may be in the session.
func (s *Session) Shared() bool { return s.Kind == KindDefault }
