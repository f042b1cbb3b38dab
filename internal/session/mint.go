package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// A session has one token of its own, and may have further ones, each made for something
// such as a run, and limited. The session's own token is in the session's record, further
// ones are records of their own. They are gone when the session closes, and no fork has
// them.

// MintOptions say what a further token of a session is for.
type MintOptions struct {
	Run     string
	Servers []string // that it reaches; nil for all, empty for none
	Allow   []string // rights of package api
	TTL     time.Duration
}

// maxMinted is how many further tokens a session may have.
const maxMinted = 1000

// A minted token is a further token of a session.
type minted struct {
	s     *Session
	rec   store.SessionToken
	limit *identity.Limit
}

func newMinted(s *Session, rec store.SessionToken) *minted {
	servers := slices.Clone(rec.Servers)
	slices.Sort(servers)
	return &minted{s, rec, &identity.Limit{Token: rec.ID, Run: rec.Run, Servers: servers, Allow: rec.Allow, Expires: rec.Expires}}
}

// over reports whether the token's time is over.
func (m *minted) over(now time.Time) bool {
	return !m.rec.Expires.IsZero() && !now.Before(m.rec.Expires)
}

// tokenHolder is what a token lets in to.
type tokenHolder struct {
	s     *Session
	limit *identity.Limit // nil for the session's own token
}

// ByToken finds the session that has a token with this hash (sha256 in hex), with its
// owner, and the limit of a further token; the session is nil when there is none.
func (r *Registry) ByToken(hash string) (*Session, Owner, *identity.Limit) {
	r.mu.Lock()
	h := r.tokens[hash]
	r.mu.Unlock()
	if h.s == nil {
		return nil, Owner{}, nil
	}
	return h.s, Owner{Name: h.s.Owner, Pinned: h.s.pinnedOwner}, h.limit
}

// MintToken makes a further token of an opened session.
func (r *Registry) MintToken(ctx context.Context, s *Session, o MintOptions) (store.SessionToken, string, error) {
	var none store.SessionToken
	if s.Kind != KindOpened {
		return none, "", &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("session %s came by itself and has no tokens; open one with `tine session open`", s.ID)}
	}
	token, hash := newToken()
	var id [6]byte
	_, _ = rand.Read(id[:])
	now := time.Now().UTC()
	rec := store.SessionToken{
		ID: "tok_" + hex.EncodeToString(id[:]), Session: s.ID, Hash: hash, Run: o.Run, Servers: o.Servers, Allow: o.Allow, Created: now,
	}
	if o.TTL > 0 {
		rec.Expires = now.Add(o.TTL)
	}
	s.changing.Lock() // the end of the session is written down before, or after
	defer s.changing.Unlock()
	if s.isClosed() {
		return none, "", s.gone()
	}
	r.mu.Lock()
	n := 0
	for _, m := range s.minted {
		if !m.over(now) {
			n++
		}
	}
	r.mu.Unlock()
	if n >= maxMinted {
		return none, "", quota(fmt.Sprintf("session %s has %d further tokens and may have %d; revoke some, or wait until they expire", s.ID, n, maxMinted))
	}
	if err := r.o.Shared.PutSessionToken(context.WithoutCancel(ctx), rec); err != nil {
		return none, "", fmt.Errorf("recording the token: %w", err)
	}
	if !r.addMinted(newMinted(s, rec)) {
		return none, "", s.gone()
	}
	return rec, token, nil
}

// addMinted has a further token let in, unless its session is closed.
func (r *Registry) addMinted(m *minted) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[m.s.ID] != m.s {
		return false
	}
	if m.s.minted == nil {
		m.s.minted = make(map[string]*minted)
	}
	m.s.minted[m.rec.ID] = m
	r.tokens[m.rec.Hash] = tokenHolder{m.s, m.limit}
	return true
}

// Minted returns the further tokens of a session that have not expired, the oldest first.
func (r *Registry) Minted(s *Session) []store.SessionToken {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]store.SessionToken, 0, len(s.minted))
	for _, m := range s.minted {
		if !m.over(now) {
			all = append(all, m.rec)
		}
	}
	slices.SortFunc(all, func(a, b store.SessionToken) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// RevokeTokens revokes the further tokens of a session that are chosen, and returns how
// many there were. A token that has expired counts as one that is not there.
func (r *Registry) RevokeTokens(ctx context.Context, s *Session, choose func(store.SessionToken) bool) (int, error) {
	s.changing.Lock() // so that a token that is being made is among them
	defer s.changing.Unlock()
	var ids []string
	for _, t := range r.Minted(s) {
		if choose(t) {
			ids = append(ids, t.ID)
		}
	}
	return len(ids), r.dropMinted(ctx, s, ids)
}

// dropMinted revokes further tokens of a session. It is written down first: a token that
// was refused once is not back after a restart. The session's changing is held.
func (r *Registry) dropMinted(ctx context.Context, s *Session, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := r.o.Shared.DeleteSessionTokens(context.WithoutCancel(ctx), ids...); err != nil {
		return fmt.Errorf("recording that tokens are revoked: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if m := s.minted[id]; m != nil {
			delete(r.tokens, m.rec.Hash)
			delete(s.minted, id)
		}
	}
	return nil
}

// sweepMinted forgets further tokens that have expired.
func (r *Registry) sweepMinted(ctx context.Context, now time.Time) {
	old := make(map[*Session][]string)
	r.mu.Lock()
	for _, s := range r.sessions {
		for id, m := range s.minted {
			if m.over(now) {
				old[s] = append(old[s], id)
			}
		}
	}
	r.mu.Unlock()
	for s, ids := range old {
		s.changing.Lock()
		err := r.dropMinted(ctx, s, ids)
		s.changing.Unlock()
		if err != nil {
			r.o.Log.Warn("expired tokens of a session not forgotten", "session", s.ID, "err", err)
		}
	}
}

// restoreMinted brings the further tokens of the sessions back that are served. Those of
// a session that is not served stay recorded, as it does.
func (r *Registry) restoreMinted(ctx context.Context) error {
	all, err := r.o.Shared.SessionTokens(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	var old []string
	for _, rec := range all {
		s := r.Get(rec.Session)
		if s == nil {
			continue
		}
		m := newMinted(s, rec)
		if m.over(now) {
			old = append(old, rec.ID)
			continue
		}
		r.addMinted(m)
	}
	return r.o.Shared.DeleteSessionTokens(ctx, old...)
}

// noToken is the answer for a further token that a session does not have.
func noToken(s *Session, id string) error {
	return &api.Error{
		Kind: api.KindInvalid, Status: http.StatusNotFound,
		Message: fmt.Sprintf("session %s has no token %s; it may have expired: `tine session token %s --list` lists them", s.ID, clipped(id), s.ID),
	}
}

// RevokeToken revokes one further token of a session.
func (r *Registry) RevokeToken(ctx context.Context, s *Session, id string) error {
	n, err := r.RevokeTokens(ctx, s, func(t store.SessionToken) bool { return t.ID == id })
	if err == nil && n == 0 {
		err = noToken(s, id)
	}
	return err
}
