package session

import (
	"context"
	"maps"
	"os"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// What a server remembers that several sessions use is part of the past of each that
// called it. Its loss damages them, and a rewind of one does not bring it back: an
// operator puts it back, or has the server begin anew.

// noteUsed writes down that the session called a server with a state that all share.
func (s *Session) noteUsed(server string) {
	s.mu.Lock()
	known := s.facts.Used[server]
	s.mu.Unlock()
	if known {
		return
	}
	err := s.change(s.r.life, func(f *facts) {
		f.Used = maps.Clone(f.Used)
		if f.Used == nil {
			f.Used = make(map[string]bool)
		}
		f.Used[server] = true
	})
	if err != nil {
		s.r.o.Log.Warn("first call of a shared server not recorded", "session", s.ID, "server", server, "err", err)
	}
}

// usersOf are the sessions that have used a state which several share.
func (r *Registry) usersOf(e *catalog.Entry, by owned) []*Session {
	if by.s != nil && by.origin == "" {
		return []*Session{by.s} // no fork uses it yet
	}
	r.mu.Lock()
	var users []*Session
	l := r.joints[jointKey(by.origin, e.ID)]
	for id, s := range r.sessions {
		if by.origin == "" || l != nil && l.users[id] {
			users = append(users, s)
		}
	}
	r.mu.Unlock()
	if by.origin != "" {
		return users
	}
	used := users[:0]
	for _, s := range users {
		s.mu.Lock()
		if s.facts.Used[e.ID] {
			used = append(used, s)
		}
		s.mu.Unlock()
	}
	return used
}

// takeAnew sees whether an operator asked for an empty state in the place of a shared
// one, and then removes what is left of that and marks the sessions that used it.
func (r *Registry) takeAnew(ctx context.Context, e *catalog.Entry, by owned, dir string) bool {
	if os.Remove(dir+driver.AnewSuffix) != nil {
		return false
	}
	r.o.Log.Warn("a server that several sessions share begins anew, as was asked for", "server", e.ID, "file", dir+driver.AnewSuffix)
	if by.origin == "" { // before anything is removed: it can't be seen afterwards
		r.noteAnew(ctx, e.ID)
	}
	for _, s := range r.usersOf(e, by) {
		r.damage(s, api.Damage{Server: e.ID, Why: begunAnew, Kept: api.KeptNothing}, true)
	}
	r.erase(ctx, e, dir)
	return true
}

const begunAnew = "an operator had the server begin anew"

// noteAnew writes down when a server that all sessions share began anew, for the
// sessions that are opened from earlier snapshots.
func (r *Registry) noteAnew(ctx context.Context, server string) {
	name, at := server+driver.AnewSuffix, time.Now().UTC().Format(time.RFC3339Nano)
	r.mu.Lock()
	r.sharedStates[name] = at
	r.mu.Unlock()
	if err := r.o.Local.PutSharedState(ctx, name, at); err != nil {
		r.o.Log.Warn("when a shared server began anew is not recorded", "server", server, "err", err)
	}
}

// missAnew marks a session that was made of a snapshot and lacks what a shared server
// knew when that was taken.
func (r *Registry) missAnew(s *Session, taken time.Time) {
	for server := range s.known().Used {
		r.mu.Lock()
		at, err := time.Parse(time.RFC3339Nano, r.sharedStates[server+driver.AnewSuffix])
		r.mu.Unlock()
		if err == nil && taken.Before(at) {
			r.damage(s, api.Damage{Server: server, Why: begunAnew, Kept: api.KeptNothing}, true)
		}
	}
}
