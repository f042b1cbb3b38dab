package session

import (
	"context"
	"slices"
	"sync"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// listOf returns the servers behind a key, or only those of them; none for no key.
func (r *Registry) listOf(ctx context.Context, key string, only []string) ([]config.Server, error) {
	if key == "" {
		return nil, nil
	}
	all, err := r.catalogs.Unpin(ctx, key)
	if err != nil || len(only) == 0 {
		return all, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(s config.Server) bool { return !slices.Contains(only, s.ID) }), nil
}

// dropServers lets go of the servers behind a key where nothing is made of them any
// more. Sessions with servers of their own make such keys without end.
func (r *Registry) dropServers(ctx context.Context, key string) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	r.catalogs.Drop(key, func() bool {
		if r.usesServers(key) {
			return true
		}
		// The store knows of sessions that are not served.
		if err := r.o.Shared.DropCatalogs(ctx); err != nil {
			r.o.Log.Warn("servers that no session is made of any more are not forgotten", "catalog", key, "err", err)
			return true
		}
		_, known, err := r.o.Shared.Catalog(ctx, key)
		return known || err != nil
	})
}

// usesServers reports whether a session or a snapshot has the servers behind a key.
func (r *Registry) usesServers(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.pinned() == key {
			return true
		}
	}
	for _, s := range r.unrecorded {
		if s.pinned() == key {
			return true
		}
	}
	for _, snap := range r.snapshots {
		if snap.Catalog == key {
			return true
		}
	}
	return false
}

// mostPast is how many sessions that are over are remembered for what is still heard of
// their own servers.
const mostPast = 256

// pastHomes are the homes of sessions that are over: connections of their servers are
// heard of a moment after the end.
type pastHomes struct {
	mu    sync.Mutex
	of    map[string]*catalog.Home
	order []string // oldest first
}

// add closes the home of a session that is over.
func (p *pastHomes) add(s *Session) {
	if !s.own.Close() {
		return
	}
	s.r.catalogs.DropViews(s.own)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]*catalog.Home)
	}
	p.of[s.ID] = s.own
	if p.order = append(p.order, s.ID); len(p.order) > mostPast {
		delete(p.of, p.order[0])
		p.order = slices.Delete(p.order, 0, 1)
	}
}

// governor returns the governor of a server of such a session; nil for none.
func (p *pastHomes) governor(session, server string) *catalog.Governor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.of[session]; h != nil {
		return h.Governor(server)
	}
	return nil
}
