package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A server with fork: share has one instance for a session and all that were
// forked from it. It stays with the session it was first used in, the origin,
// until the last of them is closed, and its state lies in the origin's home.

// A joint is such an instance.
type joint struct {
	up    *upstream.Upstream // nil until it is used
	users map[string]bool    // sessions
}

func jointKey(origin, server string) string { return origin + "/" + server }

// shareWith makes servers of the session ones that its forks use too, and returns
// whose they are. From now on the end of the session is not theirs.
func (s *Session) shareWith(ctx context.Context, servers []string, forks []*Session) (map[string]string, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, s.gone()
	}
	before, shares := s.facts.Shares, maps.Clone(s.facts.Shares)
	if shares == nil {
		shares = make(map[string]string)
	}
	s.r.mu.Lock()
	for _, id := range servers {
		if shares[id] == "" {
			shares[id] = s.ID
		}
		l := s.r.joint(shares[id], id, s.ID)
		if p := s.parts[id]; p != nil && l.up == nil {
			l.up = p.up
		}
		for _, f := range forks {
			l.users[f.ID] = true
		}
	}
	s.r.mu.Unlock()
	s.facts.Shares = shares
	if len(shares) == len(before) {
		s.mu.Unlock()
		return shares, nil
	}
	s.facts.Rev++
	s.mu.Unlock()
	rec, err := s.record(s.known())
	if err == nil {
		err = s.r.o.Shared.PutSessions(ctx, rec)
	}
	if err == nil {
		s.recordInFolder(rec)
		return shares, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.facts.Shares = before
	for _, id := range servers {
		for _, f := range forks {
			delete(s.r.joints[jointKey(shares[id], id)].users, f.ID)
		}
		if before[id] == "" {
			delete(s.r.joints, jointKey(s.ID, id))
		}
	}
	return nil, fmt.Errorf("recording what the session shares: %w", err)
}

// jointStates are the notes of the states that a session shares, as a fork of it has
// them: the state may outlast the session that made it.
func (s *Session) jointStates(shares map[string]string) map[string]string {
	notes := make(map[string]string)
	for server, origin := range shares {
		if mark, made := s.r.noted(s, filepath.Join(s.r.home(origin), server)); made {
			notes[jointKey(origin, server)] = mark
		}
	}
	return notes
}

// joint returns an instance that several sessions use, with one more of them.
// r.mu is held.
func (r *Registry) joint(origin, server, user string) *joint {
	key := jointKey(origin, server)
	l := r.joints[key]
	if l == nil {
		l = &joint{users: make(map[string]bool)}
		r.joints[key] = l
	}
	l.users[user] = true
	return l
}

// useJoint returns the hold on a server that several sessions use. The session's
// lock is held.
func (r *Registry) useJoint(origin string, e *catalog.Entry, s *Session) (*upstream.Upstream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errStopping
	}
	l := r.joint(origin, e.ID, s.ID)
	if l.up == nil {
		l.up = r.newUpstream(e, owned{origin: origin, s: s}, nil)
	}
	return l.up, nil
}

// isJoint reports whether other sessions may use an upstream too.
func (r *Registry) isJoint(up *upstream.Upstream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.joints[jointKey(up.Session(), up.Server())]
	return l != nil && l.up == up
}

// leaveJoint ends a session's use of a server; the last one ends the server.
func (r *Registry) leaveJoint(ctx context.Context, origin string, e *catalog.Entry, session string) {
	r.mu.Lock()
	l := r.joints[jointKey(origin, e.ID)]
	if l == nil {
		r.mu.Unlock()
		return
	}
	delete(l.users, session)
	last := len(l.users) == 0
	if last {
		delete(r.joints, jointKey(origin, e.ID))
	}
	r.mu.Unlock()
	if !last {
		return
	}
	if l.up != nil {
		l.up.Close()
	}
	if e.Keeper() != nil {
		r.erase(ctx, e, filepath.Join(r.home(origin), e.ID))
	}
	if r.Get(origin) != nil {
		return
	}
	if err := recordOfSession(r.o.States, origin).clear(); err != nil {
		r.o.Log.Debug("a session's folder stays", "session", origin, "err", err)
	}
}

// clearHome removes the home of a session that is over, with what was left by
// servers that it no longer has; without what sessions that were forked from it
// still use.
func (r *Registry) clearHome(id string) {
	home, rec := r.home(id), recordOfSession(r.o.States, id)
	inside, err := os.ReadDir(home)
	left := 0
	for _, in := range inside {
		if rec.owns(in.Name()) {
			continue // last, and only with the rest
		}
		r.mu.Lock()
		used := r.joints[jointKey(id, strings.TrimSuffix(in.Name(), wholeMark))] != nil
		r.mu.Unlock()
		if used {
			left++
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(home, in.Name())))
	}
	if left == 0 && err == nil {
		err = rec.clear()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.o.Log.Warn("the folder of a session is not removed", "session", id, "err", err)
	}
}
