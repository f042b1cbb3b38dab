package session

import (
	"context"
	"fmt"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// ring counts the calls of a session towards its next snapshot of itself.
type ring struct {
	mu    sync.Mutex
	count int
	ids   []string // of the snapshots there are, oldest first
}

// autosnapshot is what the session keeps to rewind to; the config's where it
// says nothing.
func (s *Session) autosnapshot() config.Autosnapshot {
	s.mu.Lock()
	own := s.facts.Auto
	s.mu.Unlock()
	if own != nil {
		return *own
	}
	return s.r.Catalog().Config.Sessions.Autosnapshot
}

// beforeCall makes the snapshot that is due before a call of a tool.
func (r *Registry) beforeCall(ctx context.Context, s *Session, server, tool string) error {
	a := s.autosnapshot()
	if a.Every <= 0 && len(a.Before) == 0 {
		return nil
	}
	if ctx.Value(ridesOn{&s.gate}) != nil {
		return nil // its caller's was made
	}
	base, _ := catalog.SplitMember(server)
	name := base + r.Catalog().Config.Separator + tool
	before := false
	for _, p := range a.Before {
		before = before || identity.Match(p, name)
	}
	s.auto.mu.Lock()
	due := before || a.Every > 0 && s.auto.count >= a.Every
	if due {
		s.auto.count = 0
	}
	s.auto.count++
	s.auto.mu.Unlock()
	if !due {
		return nil
	}
	snap, err := r.takeSnapshot(ctx, s, SnapshotOptions{}, true)
	if err == nil {
		r.trimRing(ctx, &s.auto, snap.ID, max(a.Keep, 1))
		if s.isClosed() { // meanwhile, and the ring with it
			r.trimRing(ctx, &s.auto, "", 0)
		}
		return nil
	}
	if before {
		return &api.Error{Kind: api.KindRefused, Server: server, Retryable: true, Message: fmt.Sprintf("the snapshot that is to be made before %s could not be: %v", name, err)}
	}
	r.o.Log.Warn("snapshot that was due not made", "session", s.ID, "err", err)
	return nil
}

// trimRing adds a snapshot to a ring, if it is one, and removes the oldest over
// so many.
func (r *Registry) trimRing(ctx context.Context, ring *ring, id string, keep int) {
	ring.mu.Lock()
	if id != "" {
		ring.ids = append(ring.ids, id)
	}
	over := max(0, len(ring.ids)-keep)
	gone := ring.ids[:over:over]
	ring.ids = ring.ids[over:]
	ring.mu.Unlock()
	for _, id := range gone {
		if err := r.DeleteSnapshot(context.WithoutCancel(ctx), id); err != nil {
			r.o.Log.Warn("old automatic snapshot not removed", "snapshot", id, "err", err)
		}
	}
}
