package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
)

// restore brings back what an earlier gateway left. Sessions come back as they
// were. An instance is adopted where its session is still there and its server
// is still configured the same way; every other one is ended, recorded or not.
func (r *Registry) restore(ctx context.Context) error {
	if err := os.MkdirAll(r.o.Dir, 0o700); err != nil {
		return fmt.Errorf("making the folder for instances: %w", err)
	}
	sessions, err := r.o.Store.Sessions(ctx)
	if err != nil {
		return err
	}
	idle := r.Catalog().Config.Limits.Idle
	for _, rec := range sessions {
		if time.Since(rec.Used) > idle {
			if err := r.o.Store.DeleteSession(ctx, rec.ID); err != nil {
				return err
			}
			continue
		}
		s := r.newSession(rec.ID, rec.Owner, rec.Kind, rec.Created, rec.Data)
		r.sessions[s.ID] = s
		if s.Kind == KindDefault {
			r.defaults[s.Owner] = s
		}
	}
	handles, err := r.o.Store.Handles(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	var stay []store.Handle
	for _, h := range handles {
		if r.wanted(h) {
			known[h.Dir] = true
			stay = append(stay, h)
			continue
		}
		if err := r.endInstance(ctx, h); err != nil {
			r.o.Log.Warn("instance of an earlier gateway not ended", "server", h.Server, "err", err)
			continue
		}
		if err := r.o.Store.DeleteHandle(ctx, h.Key); err != nil {
			return err
		}
	}
	for name, d := range r.o.Drivers {
		sw, ok := d.(driver.Sweeper)
		if !ok {
			continue
		}
		gone, err := sw.Sweep(ctx, r.o.Dir, known)
		if err != nil {
			return fmt.Errorf("sweeping leftovers of driver %s: %w", name, err)
		}
		if len(gone) > 0 {
			r.o.Log.Info("ended what an earlier gateway left", "driver", name, "instances", len(gone))
		}
	}
	for _, h := range stay {
		e := r.Catalog().Entry(h.Server)
		if h.Session == "" {
			r.shared[e.ID] = &part{up: r.newUpstream(e, nil, &h)}
			continue
		}
		s := r.sessions[h.Session]
		s.parts[e.ID] = &part{up: r.newUpstream(e, s, &h)}
	}
	return nil
}

// wanted reports whether a recorded instance is to be adopted.
func (r *Registry) wanted(h store.Handle) bool {
	e := r.Catalog().Entry(h.Server)
	if e == nil || e.hash == "" || e.hash != h.SpecHash || e.Driver != h.Driver || e.driver == nil || len(h.Link) == 0 {
		return false
	}
	if on, _ := e.On(); !on {
		return false
	}
	if h.Session == "" {
		return e.shares() && r.shared[e.ID] == nil
	}
	s := r.sessions[h.Session]
	return s != nil && !e.shares()
}

func (r *Registry) endInstance(ctx context.Context, h store.Handle) error {
	d := r.o.Drivers[h.Driver]
	if d == nil {
		return fmt.Errorf("there is no driver %q here", h.Driver)
	}
	inst, err := d.Adopt(ctx, driver.Handle{Driver: h.Driver, Server: h.Server, Session: h.Session, Dir: h.Dir, Data: h.Data}, r.o.Log)
	if errors.Is(err, driver.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return inst.Stop(ctx)
}

// reap closes sessions that nobody uses and keeps the record of use, now and
// then, so that neither grows with calls.
func (r *Registry) reap() {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case <-tick.C:
		}
		r.touch(r.life)
		idle := r.Catalog().Config.Limits.Idle
		for _, s := range r.Sessions() {
			if !s.watched() && time.Since(s.Used()) > idle {
				r.o.Log.Info("idle session closed", "session", s.ID)
				r.CloseSession(r.life, s)
			}
		}
	}
}

func (s *Session) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

func (r *Registry) touch(ctx context.Context) {
	used := make(map[string]time.Time)
	for _, s := range r.Sessions() {
		used[s.ID] = s.Used()
	}
	if len(used) == 0 {
		return
	}
	if err := r.o.Store.TouchSessions(context.WithoutCancel(ctx), used); err != nil {
		r.o.Log.Warn("use of sessions not recorded", "err", err)
	}
}
