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
	"github.com/tine-mcp/tine/internal/driver"
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
	whyForked   = "it ended while the session was being forked"
	whyKilled   = "the gateway was killed, and what it had to do with the server ended with it"
)

// kept is what a server begins with when its instance has ended: what a fork that
// can't carry its memory has of it. Empty for a server that has nothing to lose:
// it remembers nothing, or is built in and keeps everything as it changes.
func (e *Entry) kept() string {
	switch {
	case e.Stateless || e.Builtin != "":
		return ""
	case len(e.State) > 0 || e.Workspace:
		return api.KeptFiles
	}
	if k := e.keeper(); k != nil && k.Carries(e.spec()) == driver.CarryFiles {
		return api.KeptFiles
	}
	return api.KeptNothing
}

// recalls reports whether what a server remembers is its memory, which forks carry
// and an end loses, though it may start anew on the files of the workspace. Where
// directories are declared, those are what counts.
func (e *Entry) recalls() bool {
	if len(e.State) > 0 || e.kept() == "" {
		return false
	}
	mode, _ := e.fork()
	return mode == config.ForkMemory
}

// loss is the damage that the end of the server's instance is.
func (e *Entry) loss(why, kept string) api.Damage {
	return api.Damage{Server: e.ID, Why: why, Kept: kept, Memory: kept == api.KeptFiles && e.recalls()}
}

// memory is what an Upstream of a server needs to know about losses.
func (r *Registry) memory(e *Entry, by owned) upstream.Memory {
	m := upstream.Memory{Kept: e.kept(), Several: by.s == nil || by.origin != "", Recalls: e.recalls(), Reached: e.URL != ""}
	mode, _ := e.fork()
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
	if e.shares() && e.hasState() {
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
			d := e.loss(l.Why, l.Kept)
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
	m.Told = func(id string) {
		if s := find(id); s != nil {
			_ = s.takeOwed(e.ID)
		}
	}
	return m
}

// losers are the sessions that a loss damages: the one that the instance belongs
// to, those that a session lent it to, or of a shared one those that called it.
func (r *Registry) losers(e *Entry, by owned, l upstream.Loss) []*Session {
	if by.s != nil && by.origin == "" {
		return []*Session{by.s}
	}
	ids := make(map[string]bool)
	for _, id := range l.Sessions {
		ids[id] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if lent := r.lent[lentKey(by.origin, e.ID)]; by.origin != "" && lent != nil {
		maps.Copy(ids, lent.users)
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
func (s *Session) usedShared() map[string]func(heirs []string) bool {
	out := make(map[string]func([]string) bool)
	for _, e := range s.Catalog().Entries {
		if !e.shares() {
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

// loseHandle reports the loss of an instance of an earlier gateway that nobody
// wants as it was started. Its server may be gone from the config.
func (r *Registry) loseHandle(h store.Handle) {
	said, err := upstream.ReadHello(h.Link)
	if err != nil || said.Uncalled {
		return
	}
	ids := append([]string{h.Session}, said.Callers...)
	if l := r.lent[lentKey(h.Session, h.Server)]; l != nil {
		ids = slices.AppendSeq(ids, maps.Keys(l.users))
	}
	for id := range r.sessions {
		if said.AllCalled && h.Session == "" {
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
		if e := s.Catalog().Entry(h.Server); e != nil {
			if d = e.loss(whyReloaded, e.kept()); s.fits(e) != h.SpecHash && (h.SpecHash == e.hash || strings.HasPrefix(h.SpecHash, e.hash+" ")) {
				continue // it worked on a state from before a rewind
			}
		}
		if d.Kept != "" {
			r.endedByUs(s, d)
		}
	}
}

// untold is a loss that a session has still to be told. It is frozen with the session,
// so that whoever begins with the snapshot is told too.
type untold struct {
	Why string    `json:"why"`
	At  time.Time `json:"at,omitzero"` // tells it from other losses of the server
}

// UnmarshalJSON reads a reason alone too, as earlier versions wrote it.
func (u *untold) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &u.Why)
	}
	type plain untold
	return json.Unmarshal(b, (*plain)(u))
}

// heard reports whether the session was told of this loss.
func (f *facts) heard(server string, u untold) bool {
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
			"the workspace of session %s: %s; this call was not made; the next call goes on with what is left, and the session is marked as damaged", s.ID, loss.Why)})
	}
	return upstream.Gone(&api.Error{Kind: api.KindLost, Server: server, Message: fmt.Sprintf(
		"server %q: %s; what it had in memory is lost, and this call was not made; the next call begins anew, and session %s is marked as damaged", server, api.WithoutWords(loss.Why), s.ID)})
}

// refuses is the error of every call in a session that is damaged where the config
// says so; nil where calls go on. What went on with its files is not refused, and a
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
		if waits && unfit || d.Kept == api.KeptFiles && !d.Memory {
			continue
		}
		mend := s.mend()
		if e := s.Catalog().Entry(d.Server); unfit {
			mend = "put back what has changed and call that server, " + mend
		} else if e != nil && e.shares() {
			mend = s.leave() + ": a rewind does not bring back what a shared server knew"
		}
		return &api.Error{Kind: api.KindLost, Server: d.Server, Message: fmt.Sprintf(
			"session %s is damaged and sessions.on_loss is refuse: %s; %s", s.ID, d.Bare().Text(), mend)}
	}
	return nil
}

// mend says what can be done about a session that is refused for its damage.
func (s *Session) mend() string { return "rewind it to a snapshot from before, or " + s.leave() }

// leave says what can be done where no rewind helps. A durable session is not to be
// closed for that: what its other servers remember would go with it.
func (s *Session) leave() string {
	switch s.Kind {
	case KindClient:
		return "connect anew"
	case KindDefault:
		return "set sessions.on_loss to tell, which goes on with what is left, or use another session (/mcp?session=NAME)"
	}
	return "close it"
}

// refusing reports whether a loss is the end of the session's calls.
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
		for server := range s.known().Called {
			e := s.Catalog().Entry(server)
			if e == nil || e.kept() == "" {
				continue
			}
			r.Damage(s, e.loss(whyKilled, e.kept()))
		}
	}
}
