package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A server that ends with what it had in memory damages the sessions that called
// it. Each of them is marked and has the first call to the server after that fail
// with lost: what it is owed is one of its facts until it was told, so that
// neither a reload nor a restart of the gateway forgets it.

// Why the gateway itself ends an instance.
const (
	whyStopped  = "the gateway was stopped"
	whyIdle     = "the session was not used, and the gateway ended its servers"
	whyReloaded = "the config of the server was changed, or it was removed"
	whyOff      = "the server was switched off"
	whyTaken    = "the server was taken out of the session"
	whyForked   = "it ended while the session was being forked"
	whyKilled   = "the gateway was killed, and what it had to do with the server ended with it"
)

// lossOf is the damage that the end of the server's instance is.
func lossOf(e *catalog.Entry, why, kept string) api.Damage {
	return api.Damage{Server: e.ID, Why: why, Kept: kept, Memory: kept == api.KeptFiles && e.Recalls()}
}

// memory is what an Upstream of a server needs to know about losses.
func (r *Registry) memory(e *catalog.Entry, by owned) upstream.Memory {
	m := upstream.Memory{Kept: e.Kept(), Several: by.s == nil || by.origin != "", Recalls: e.Recalls(), Reached: e.URL != ""}
	mode, _ := e.ForkMode()
	m.Alone = !m.Several && mode != config.ForkShare
	find := func(id string) *Session {
		if !m.Several {
			return by.s
		}
		if id == "" {
			return nil
		}
		return r.Get(id)
	}
	m.Owed = func(id string) error {
		s := find(id)
		if s == nil {
			return nil
		}
		if e.Workspace {
			if err := s.takeOwed(""); err != nil {
				return err
			}
		}
		return s.takeOwed(e.ID)
	}
	if e.Shares() && e.HasState() {
		m.Uses = func(id string) {
			if s := find(id); s != nil {
				s.noteUsed(e.ID)
			}
		}
	}
	if m.Kept == "" {
		return m
	}
	m.Lost = func(l upstream.Loss) {
		sessions := r.losers(e, by, l)
		for _, s := range sessions {
			name := ""
			if m.Several {
				name = s.ID
			}
			if l.Unfit {
				s.unfit(e, l.Why)
				continue
			}
			d := lossOf(e, l.Why, l.Kept)
			d.Words = l.Words
			if l.Ours {
				r.endedByUs(s, d)
				continue
			}
			r.damage(s, d, l.Tell && !l.Told[name])
		}
	}
	m.Unfit = func(id, why string) error {
		if s := find(id); s != nil {
			return s.tellUnfit(e, why)
		}
		return nil
	}
	m.Fits = func(anew bool) {
		for _, s := range r.losers(e, by, upstream.Loss{All: true}) {
			s.fitsAgain(e.ID, anew)
		}
	}
	m.Called = func(id string) {
		if s := find(id); s != nil {
			s.noteCalled(e.ID)
		}
	}
	m.Follows = func(id string) string {
		if s := find(id); s != nil {
			return s.follows(e.ID, "begins anew")
		}
		return ""
	}
	m.Told = func(id string) {
		if s := find(id); s != nil {
			_ = s.takeOwed(e.ID)
		}
	}
	return m
}

// losers are the sessions that a loss damages: the one that the instance belongs
// to, those that use it together, or of a shared one those that called it.
func (r *Registry) losers(e *catalog.Entry, by owned, l upstream.Loss) []*Session {
	if by.s != nil && by.origin == "" {
		return []*Session{by.s}
	}
	ids := make(map[string]bool)
	for _, id := range l.Sessions {
		ids[id] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.joints[jointKey(by.origin, e.ID)]; by.origin != "" && j != nil {
		maps.Copy(ids, j.users)
	}
	var out []*Session
	for id, s := range r.sessions {
		if l.All && by.origin == "" || ids[id] {
			out = append(out, s)
		}
	}
	return out
}

// usedShared finds the shared servers that the session has called: forks of it
// have that in their past, and the end of such a server is their loss too.
func (s *Session) usedShared() map[string]func(forks []string) bool {
	out := make(map[string]func([]string) bool)
	for _, e := range s.Catalog().Entries {
		if !e.Shares() {
			continue
		}
		s.r.mu.Lock()
		p := s.r.shared[e.ID]
		s.r.mu.Unlock()
		if p == nil {
			continue
		}
		if inherit := p.up.UsedBy(s.ID); inherit != nil {
			out[e.ID] = inherit
		}
	}
	return out
}

// loseHandle reports the loss of an instance of an earlier gateway that no
// session has in its config as it was started. Its server may be gone from the
// config.
func (r *Registry) loseHandle(h store.Handle) {
	hello, err := upstream.ReadHello(h.Link)
	if err != nil || hello.Uncalled {
		return
	}
	ids := append([]string{h.Session}, hello.Callers...)
	if l := r.joints[jointKey(h.Session, h.Server)]; l != nil {
		ids = slices.AppendSeq(ids, maps.Keys(l.users))
	}
	for id := range r.sessions {
		if hello.AllCalled && h.Session == "" {
			ids = append(ids, id)
		}
	}
	seen := make(map[string]bool)
	for _, id := range ids {
		s := r.sessions[id]
		if s == nil || seen[id] {
			continue
		}
		seen[id] = true
		d := api.Damage{Server: h.Server, Why: whyReloaded, Kept: api.KeptNothing}
		if e := s.everEntry(h.Server); e != nil {
			if d = lossOf(e, whyReloaded, e.Kept()); s.fits(e) != h.SpecHash && (h.SpecHash == e.Hash || strings.HasPrefix(h.SpecHash, e.Hash+" ")) {
				continue // it worked on a state from before a rewind
			}
		}
		if d.Kept != "" {
			r.endedByUs(s, d)
		}
	}
}

// pendingLoss is a loss that no call of the session was told of yet. It is frozen with
// the session, so that sessions which begin with the snapshot are told too.
type pendingLoss struct {
	Why string    `json:"why"`
	At  time.Time `json:"at,omitzero"` // tells it from other losses of the server
}

// UnmarshalJSON reads a reason alone too, as earlier versions wrote it.
func (u *pendingLoss) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &u.Why)
	}
	type plain pendingLoss
	return json.Unmarshal(b, (*plain)(u))
}

// heard reports whether the session was told of this loss.
func (f *facts) heard(server string, u pendingLoss) bool {
	return !u.At.IsZero() && f.Told[server].Equal(u.At)
}

// takeOwed returns what the session has to be told about a server, or without a name
// about the workspace, once; nil for nothing.
func (s *Session) takeOwed(server string) error {
	s.mu.Lock()
	_, owed := s.facts.Owed[server]
	s.mu.Unlock()
	if !owed {
		return nil
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	loss, owed := s.facts.Owed[server]
	if !owed {
		s.mu.Unlock()
		return nil // another call was told
	}
	s.facts.Owed = maps.Clone(s.facts.Owed)
	delete(s.facts.Owed, server)
	s.facts.Told = maps.Clone(s.facts.Told)
	if s.facts.Told == nil {
		s.facts.Told = make(map[string]time.Time)
	}
	s.facts.Told[server] = loss.At
	s.facts.Rev++
	ended := !s.ended.IsZero()
	s.mu.Unlock()
	if !ended {
		s.saveDamage(context.WithoutCancel(s.r.life))
	}
	if server == "" {
		return upstream.Gone(&api.Error{Kind: api.KindLost, Message: fmt.Sprintf(
			"the workspace of session %s: %s; this call was not made; %s", s.ID, loss.Why, s.follows("", "goes on with what is left"))})
	}
	return upstream.Gone(&api.Error{Kind: api.KindLost, Server: server, Message: fmt.Sprintf(
		"server %q: %s; what it had in memory is lost, and this call was not made; %s", server, api.WithoutWords(loss.Why), s.follows(server, "begins anew"))})
}

// follows says what a loss of a server, or without a name of the workspace, means for the
// calls after the one that is told; next is what the next call does where losses are only
// told.
func (s *Session) follows(server, next string) string {
	if !s.refusing() {
		return fmt.Sprintf("the next call %s, and session %s is marked as damaged", next, s.ID)
	}
	what := "further calls in it are refused"
	switch {
	case s.Kind != KindOpened && server == "":
		what = "further calls of servers that see the workspace are refused in it"
	case s.Kind != KindOpened:
		what = fmt.Sprintf("further calls of server %q are refused in it", server)
	}
	return fmt.Sprintf("session %s is damaged and sessions.on_loss is refuse: %s%s; %s", s.ID, what, s.others(), s.mend(server))
}

// others says what a refusal means for the servers that it does not concern; nothing where
// it concerns all.
func (s *Session) others() string {
	if s.Kind == KindOpened {
		return ""
	}
	return "; its other servers go on"
}

// refuses is the error of every call that a damage of the session concerns, where the
// config says so; nil where calls go on. What went on with its files is not refused, and a
// server whose memory does not fit is tried: its memory may be back, and so may that of
// others, which wait to be tried.
func (s *Session) refuses(server string) error {
	if !s.refusing() {
		return nil
	}
	_, waits := s.unfitOf(server)
	for _, d := range s.Damaged() {
		u, unfit := s.unfitOf(d.Server)
		unfit = unfit && d == u.Damage
		if waits && unfit || !counts(d) || !s.concerns(d, server) {
			continue
		}
		mend := s.mend(d.Server)
		if unfit {
			mend = "put back what has changed and call that server, " + s.orMend(d.Server)
		}
		return &api.Error{Kind: api.KindLost, Server: d.Server, Message: fmt.Sprintf(
			"session %s is damaged and sessions.on_loss is refuse: %s%s; %s", s.ID, d.Bare().Text(), s.others(), mend)}
	}
	return nil
}

// counts reports whether a damage has calls refused: a restart on files has not.
func counts(d api.Damage) bool { return d.Kept != api.KeptFiles || d.Memory }

// concerns reports whether calls of a server are refused for a damage. A session that was
// opened is one world, worth nothing without a part of it. An implicit one is where servers
// that have nothing to do with each other are together: only the server that lost something
// is refused, or those that see the workspace.
func (s *Session) concerns(d api.Damage, server string) bool {
	if s.Kind == KindOpened || d.Server == server {
		return true
	}
	e := s.Catalog().Entry(server)
	return d.Server == "" && e != nil && e.Workspace
}

// mend says what can be done about calls that are refused since a server, or without a name
// the workspace, lost something. A rewind is advised where there is a snapshot that brings
// back what was lost. A durable session is not to be closed for a loss: what its other
// servers remember would go with it.
func (s *Session) mend(server string) string {
	leave := "close it and open another"
	switch s.Kind {
	case KindClient:
		leave = "connect anew"
	case KindDefault:
		leave = "set sessions.on_loss to tell, which goes on with what is left, or use another session (/mcp?session=NAME)"
	}
	if e := s.Catalog().Entry(server); e != nil && e.Shares() {
		return leave + ": a rewind does not bring back what a shared server knew"
	}
	if id := s.whole(); id != "" {
		return fmt.Sprintf("rewind it to snapshot %s from before, or %s", id, leave)
	}
	return leave
}

// orMend is mend as what else can be done.
func (s *Session) orMend(server string) string {
	if mend := s.mend(server); strings.HasPrefix(mend, "rewind") {
		return mend
	}
	return "or " + s.mend(server)
}

// whole is the id of the newest snapshot of the session without a damage that counts; empty
// where there is none.
func (s *Session) whole() string {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	var newest *snapshot
	for _, snap := range s.r.snapshots {
		if snap.Session == s.ID && !snap.gone && !slices.ContainsFunc(snap.Damaged, counts) && (newest == nil || snap.Created.After(newest.Created)) {
			newest = snap
		}
	}
	if newest == nil {
		return ""
	}
	return newest.ID
}

// refusing reports whether calls are refused after a loss.
func (s *Session) refusing() bool { return s.r.Catalog().Config.Sessions.OnLoss == config.LossRefuse }

// noteCalled writes down that the session called an instance that ends with the
// gateway, however that ends.
func (s *Session) noteCalled(server string) {
	err := s.change(s.r.life, func(f *facts) {
		called := maps.Clone(f.Called)
		if called == nil {
			called = make(map[string]bool)
		}
		called[server] = true
		f.Called = called
	})
	if err != nil {
		s.r.o.Log.Warn("first call of a server not recorded", "session", s.ID, "server", server, "err", err)
	}
}

// loseCalled reports what a gateway that was killed took along.
func (r *Registry) loseCalled() {
	for _, s := range r.sessions {
		f := s.known()
		for server := range f.everCalled() {
			e := s.everEntry(server)
			if e == nil || e.Kept() == "" {
				continue
			}
			r.Damage(s, lossOf(e, whyKilled, e.Kept()))
		}
	}
}
