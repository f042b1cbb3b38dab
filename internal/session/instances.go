package session

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
)

func (r *Registry) isShared(up *upstream.Upstream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.shared[up.Server()]
	return p != nil && p.up == up
}

// sharedUpstream returns the one connection that all sessions use.
func (r *Registry) sharedUpstream(e *catalog.Entry) (*upstream.Upstream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errStopping
	}
	if p := r.shared[e.ID]; p != nil {
		return p.up, nil
	}
	p := &part{up: r.newUpstream(e, owned{}, nil)}
	r.shared[e.ID] = p
	return p.up, nil
}

// owned says whose an instance is: a session's, that of a session and its forks,
// which stays with the origin, or, when it is zero, shared by all.
type owned struct {
	s      *Session
	origin string
	user   *Session // one that uses what stays with an origin, where s is nil
}

// newUpstream makes the hold on a server.
func (r *Registry) newUpstream(e *catalog.Entry, by owned, adopt *store.Handle) *upstream.Upstream {
	spec, s := e.Spec(), by.s
	key := strings.ReplaceAll(e.ID, "~", ".") + "-" + newID()[len("ses_"):]
	if adopt != nil {
		key = adopt.Key
	}
	spec.Dir = filepath.Join(r.o.Dir, key)
	spec.Log = r.o.Log
	mode, _ := e.ForkMode()
	spec.Shared = mode == config.ForkShare
	var caps []byte
	switch {
	case by.origin != "":
		spec.Session = by.origin
	case s != nil:
		spec.Session = s.ID
		caps = s.caps
	}
	o := r.upstreamOptions(e, spec, caps)
	o.Eager = e.Eager && (s == nil || s.starts(e.ID))
	o.Prepare, o.Conn.Shared = r.prepare(e, by), s == nil
	o.Room = r.roomFor(e, by, adopt != nil)
	o.Memory = r.memory(e, by)
	o.Ready = func() {
		r.checkGiven(e, s)
		r.relearn(e)
	}
	if !e.Shares() { // which is asked itself
		o.Unanswered = func(method string) *api.Error { return r.unlisted(e, method) }
	}
	if e.Runner.Info().Adopts {
		created := time.Now()
		o.Keep = func(h driver.Handle, hello json.RawMessage) error {
			return r.putHandle(context.Background(), store.Handle{
				Key: key, Driver: h.Driver, Server: e.ID, Session: h.Session, Dir: h.Dir,
				Data: h.Data, SpecHash: s.fits(e), Link: hello, Created: created,
			})
		}
		o.Drop = func() {
			if err := r.dropHandle(context.Background(), key); err != nil {
				r.o.Log.Warn("handle not forgotten", "server", e.ID, "err", err)
			}
		}
		o.Unended = r.stopLater
		if adopt != nil {
			o.Adopt = &upstream.Adoption{
				Handle: driver.Handle{Driver: adopt.Driver, Server: e.Base(), Session: adopt.Session, Dir: adopt.Dir, Data: adopt.Data},
				Hello:  adopt.Link,
			}
		}
	}
	return r.govern(e, s, o)
}

// upstreamOptions are those of every hold on a server, for a client with these
// capabilities; nil for no client in particular.
func (r *Registry) upstreamOptions(e *catalog.Entry, spec driver.Spec, caps []byte) upstream.Options {
	return upstream.Options{
		Spec: spec, Member: e.ID, Driver: e.Runner, Front: e.Fronter, Startup: e.StartupCall(), OnFork: e.OnFork,
		ConnectTimeout: e.ConnectTimeout, CallTimeout: e.Timeout, MaxTimeout: e.Policy.MaxTimeout, Log: r.o.Log, Health: e.Governor.Health,
		FetchTime: func() time.Duration { return r.Catalog().Config.Limits.Fetch },
		Conn: upstream.ConnOptions{
			Server: e.ID, Protocol: e.Protocol, Limit: int(r.Catalog().Config.Limits.Message),
			Claims: upstream.Claims(caps, e.ClientCapabilities), Allowed: e.ClientCapabilities, Log: r.o.Log,
			Mask:   r.o.Record.Redact.Text,
			Listed: func(who, tool string) bool { return r.listed(e, caps, who, tool) },
			Hidden: func(tool, why string) { r.hidden(e, tool, why) },
		},
	}
}

// startEager starts what is to run from the beginning: eager shared servers,
// and the eager ones of the given sessions.
func (r *Registry) startEager(sessions []*Session) {
	for _, e := range r.Catalog().Entries {
		if on, _ := e.On(); !on || !e.Eager {
			continue
		}
		if e.Shares() {
			if _, err := r.sharedUpstream(e); err != nil {
				r.o.Log.Warn("server not started", "server", e.ID, "err", err)
			}
			continue
		}
		for _, s := range sessions {
			s.joinAll(e.ID)
		}
		if sessions == nil && e.Scope == config.ScopeShared {
			// Reached over HTTP, by each session for itself: the default one shows
			// whether it can be.
			if s, err := r.Default(r.life, ""); err == nil {
				_, _, _ = s.Upstream(e.ID)
			}
		}
	}
	for _, s := range sessions {
		s.joinEager(func(e *catalog.Entry) bool { return e.Inline })
	}
}

// joinEager makes the session's holds on those of its eager servers that are chosen,
// which start them.
func (s *Session) joinEager(choose func(*catalog.Entry) bool) {
	for _, e := range s.Catalog().Entries {
		if on, _ := e.On(); on && e.Eager && choose(e) && s.starts(e.ID) {
			_, _, _ = s.Upstream(e.ID)
		}
	}
}
