package session

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// Describe is a session as the API shows it, without its URL.
func (r *Registry) Describe(s *Session, members bool) api.Session {
	f := s.known()
	out := api.Session{
		ID: s.ID, Kind: shownKind(s.Kind, f.Name), Name: s.Name(), Owner: s.Owner, Labels: f.Labels, Parent: s.Parent, From: f.From, Depth: f.Depth,
		Created: s.Created, Used: s.Used().UTC(), Expires: f.Expires, Damaged: f.Damaged,
		Calls: s.calls.Load(), InFlight: s.gate.calls(),
	}
	out.Lease = f.Lease.ID
	if idle := r.idleOf(s, &f); idle > 0 {
		out.Idle = idle.String()
	}
	if !members {
		return out
	}
	for _, e := range s.Catalog().Entries {
		if e.Controls() {
			continue // it acts on sessions and is in none
		}
		m := api.Member{Server: e.ID, Ordinal: e.Ordinal, Driver: e.Driver, Scope: e.Scope, State: api.StateIdle}
		if on, why := e.On(); !on {
			m.State, m.Reason = api.StateDisabled, why
		}
		if e.Runner != nil {
			m.Fork, m.Why = e.ForkMode()
		}
		if why := s.borrowedFrom(e); why != "" {
			m.Fork, m.Why = config.ForkRefuse, why
		}
		if up := s.Peek(e.ID); up != nil {
			st := up.Status()
			m.State, m.Reason, m.Words, m.Own, m.Instance, m.Process = st.State, st.Reason, st.Words, st.Own, st.Instance, st.Process
		}
		out.Members = append(out.Members, m)
	}
	if at := slices.IndexFunc(s.members(), func(e *catalog.Entry) bool { return e.Workspace && !s.borrows(e) }); at >= 0 {
		e := s.members()[at]
		w := &api.Workspace{Kind: "tree", Path: e.Spec().WorkspacePath}
		if s.needsFolder(0) {
			w.Kind = "folder"
		}
		if open := s.spaces.at(0).open.Load(); open != nil {
			w.Path = s.shownPath(open)
		} else if w.Kind == "folder" {
			w.Path = ""
		}
		out.Workspace = w
	}
	return out
}

// ended is a closed session as the API shows it.
func ended(rec store.Session) api.Session {
	f, _ := factsOf(rec)
	return api.Session{
		ID: rec.ID, Kind: shownKind(rec.Kind, f.Name), Name: nameOf(rec.Kind, f.Name), Owner: rec.Owner, Labels: f.Labels, Parent: rec.Parent, From: f.From, Depth: f.Depth,
		Created: rec.Created, Used: rec.Used, Expires: f.Expires, Closed: rec.Closed, Reason: f.Reason, Damaged: f.Damaged, Lease: f.Lease.ID,
	}
}

// describeRecord is a recorded session, open or not.
func (r *Registry) describeRecord(rec store.Session) api.Session {
	if s := r.Get(rec.ID); s != nil {
		return r.Describe(s, false)
	}
	out := ended(rec)
	if u, ok := r.Unserved(rec.ID); ok {
		out.Reason = "not served: " + u.Why
	}
	return out
}

// Find returns sessions, the newest first, closed ones too where the filter says
// so, without their URLs, and whether there may be more than the filter's limit.
func (r *Registry) Find(ctx context.Context, f store.SessionFilter) (_ []api.Session, more bool, err error) {
	recs, err := r.o.Shared.FindSessions(ctx, f)
	if err != nil {
		return nil, false, err
	}
	out := make([]api.Session, 0, len(recs))
	for _, rec := range recs {
		// One whose end is not written down yet is open for the store alone.
		if f.Closed || !r.isEnding(rec.ID) {
			out = append(out, r.describeRecord(rec))
		}
	}
	return out, len(recs) == f.Limit, nil
}

// isEnding reports whether a session is closed without the store knowing of it.
func (r *Registry) isEnding(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unrecorded[id] != nil
}

// Closed describes a session that has ended; ok is false when there was none.
func (r *Registry) Closed(ctx context.Context, id string) (s api.Session, ok bool, err error) {
	rec, ok, err := r.o.Shared.Session(ctx, id)
	if err != nil || !ok || rec.Closed.IsZero() {
		return api.Session{}, false, err
	}
	return ended(rec), true, nil
}

// NewToken gives an opened session another token, and returns how to undo that. The old
// token is no longer valid.
func (r *Registry) NewToken(ctx context.Context, s *Session) (token string, undo func(context.Context) error, err error) {
	if s.Kind != KindOpened {
		return "", nil, &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("session %s came by itself and has no token; open one with `tine session open`", s.ID)}
	}
	token, hash := newToken()
	was, err := r.setToken(ctx, s, hash)
	return token, func(ctx context.Context) error {
		_, err := r.setToken(ctx, s, was)
		return err
	}, err
}

// setToken has the token with this hash let in to a session, and returns the hash of the
// one that did before.
func (r *Registry) setToken(ctx context.Context, s *Session, hash string) (was string, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.isClosed() {
		return "", s.gone()
	}
	f := s.known()
	f.Rev++ // the old token must not come back with an older database
	rec, err := s.record(f)
	if err == nil {
		rec.Token = hash
		err = r.o.Shared.PutSessions(context.WithoutCancel(ctx), rec)
	}
	if err != nil {
		return "", fmt.Errorf("recording the session: %w", err)
	}
	s.recordInFolder(rec)
	s.mu.Lock()
	s.facts.Rev = f.Rev
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	was = s.token
	delete(r.tokens, was)
	s.token = hash
	if r.sessions[s.ID] == s {
		r.tokens[hash] = tokenHolder{s: s}
	}
	return was, nil
}

// Amend changes what a session is called and how long it lasts; nil stays, and a
// duration that is negative is for ever.
func (r *Registry) Amend(ctx context.Context, s *Session, labels map[string]string, ttl, idle *time.Duration) error {
	return s.change(ctx, func(f *facts) {
		if labels != nil {
			f.Labels = maps.Clone(labels)
		}
		if ttl != nil {
			f.Expires = time.Time{}
			if *ttl > 0 {
				f.Expires = time.Now().Add(*ttl).UTC()
			}
		}
		if idle != nil {
			f.Idle = *idle
		}
	})
}

// maxFamily bounds a family that is shown.
const maxFamily = 10_000

// Family returns the family of a session, closed ones too, without URLs.
func (r *Registry) Family(ctx context.Context, id string) (api.Tree, error) {
	line, err := r.line(ctx, id)
	if err != nil {
		return api.Tree{}, err
	}
	left := maxFamily
	return r.descend(ctx, line[0], &left)
}

// descend is a session with all that were forked from it. Depth is bounded by
// the number of sessions, and the number by left.
func (r *Registry) descend(ctx context.Context, rec store.Session, left *int) (api.Tree, error) {
	t := api.Tree{Session: r.describeRecord(rec)}
	f := store.SessionFilter{Parent: rec.ID, Closed: true, Limit: 1000}
	for *left > 0 {
		children, err := r.o.Shared.FindSessions(ctx, f)
		if err != nil {
			return t, err
		}
		for _, c := range children {
			if *left--; *left < 0 {
				return t, nil
			}
			child, err := r.descend(ctx, c, left)
			if err != nil {
				return t, err
			}
			t.Children = append(t.Children, child)
		}
		if len(children) < f.Limit {
			break
		}
		f.Before = children[len(children)-1].ID
	}
	slices.Reverse(t.Children) // the oldest first
	return t, nil
}

// line returns a session and its ancestors, the first ancestor first.
func (r *Registry) line(ctx context.Context, id string) ([]store.Session, error) {
	var line []store.Session
	for next := id; next != ""; {
		rec, ok, err := r.o.Shared.Session(ctx, next)
		if err != nil {
			return nil, err
		}
		if !ok {
			if len(line) == 0 {
				return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: fmt.Sprintf("there is no session %s", id)}
			}
			break // so old that its record is gone
		}
		line = append(line, rec)
		next = rec.Parent
	}
	slices.Reverse(line)
	return line, nil
}
