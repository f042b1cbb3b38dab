package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// Catalog returns the servers as they are now.
func (r *Registry) Catalog() *catalog.Catalog { return r.catalogs.Current() }

// Apply takes a new config over. Servers that did not change keep their
// instances and their calls; the old instances of the others end when their
// calls have.
func (r *Registry) Apply(ctx context.Context, cfg *config.Config) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	if r.stopping() {
		return errStopping
	}
	overrides, err := r.o.Shared.Overrides(ctx)
	if err != nil {
		return err
	}
	r.swap(r.catalogs.Make(cfg, overrides))
	return nil
}

var errStopping = errors.New("the gateway is stopping")

func (r *Registry) stopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Change is what is to be different about a server until further notice.
type Change struct {
	Enabled *bool    // nil for as it is
	Set     []byte   // keys of the entry, as JSON, merged over what was set before
	Unset   []string // keys that go back to the config
	Reset   bool     // everything goes back to the config, before the rest
}

// Change changes a server at run time. It is kept over restarts.
func (r *Registry) Change(ctx context.Context, id string, c Change) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	if r.stopping() {
		return errStopping
	}
	cat := r.Catalog()
	var plain *config.Server
	for i := range cat.Config.Servers {
		if cat.Config.Servers[i].ID == id {
			plain = &cat.Config.Servers[i]
		}
	}
	if plain == nil {
		return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("there is no server %q", id), Server: id}
	}
	overrides, err := r.o.Shared.Overrides(ctx)
	if err != nil {
		return err
	}
	err = r.o.Shared.ChangeOverride(ctx, id, func(o store.Override) (store.Override, error) {
		next, err := c.over(o)
		if err == nil && len(next.Set) > 0 {
			_, _, err = plain.With(next.Set)
		}
		if err != nil {
			return o, &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf("server %q: %v", id, err)}
		}
		overrides[id] = next
		return next, nil
	})
	if err != nil {
		return err
	}
	r.swap(r.catalogs.Make(cat.Config, overrides))
	return nil
}

// over is the override that a change makes of what there was.
func (c Change) over(o store.Override) (store.Override, error) {
	if c.Reset {
		o = store.Override{}
	}
	if c.Enabled != nil {
		o.Enabled = c.Enabled
	}
	var err error
	if len(c.Unset) > 0 {
		if o.Set, err = config.UnsetKeys(o.Set, c.Unset); err != nil {
			return o, err
		}
	}
	if len(c.Set) > 0 {
		if o.Set, err = config.MergeSet(o.Set, c.Set); err != nil {
			return o, err
		}
	}
	if string(o.Set) == "{}" {
		o.Set = nil
	}
	return o, nil
}

// Retry has the holds on a server try again at once, where they wait after a
// failure: something was mended.
func (r *Registry) Retry(id string) {
	for _, up := range r.Upstreams(id) {
		up.Retry()
	}
	if e := r.Catalog().Entry(id); e != nil {
		r.relearn(e)
	}
}

// Forget drops what is kept of a server's lists and results: the gateway shows
// itself to it as another caller now.
func (r *Registry) Forget(id string) {
	if e := r.Catalog().Entry(id); e != nil {
		e.Governor.Policy.Forget()
	}
}

// swap puts a new catalog in place and retires what it no longer has.
func (r *Registry) swap(next *catalog.Catalog) {
	before := make(map[*Session]*catalog.Catalog)
	for _, s := range r.Sessions() {
		before[s] = s.Catalog()
	}
	r.limit(next.Config)
	r.mu.Lock()
	old := r.Catalog()
	r.catalogs.Set(next)
	stale := catalog.Stale(old, next)
	var retired []removedPart
	for id, p := range r.shared {
		if stale[id] {
			p.ended = make(chan struct{})
			r.ending[id] = append(slices.DeleteFunc(r.ending[id], isOver), p.ended)
			retired = append(retired, leaving(p, old, next))
			delete(r.shared, id)
		}
	}
	sessions := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
	}
	r.mu.Unlock()
	for _, s := range sessions {
		gone, was, now := stale, old, next
		if b := before[s]; b != nil && b != old {
			was, now = b, s.Catalog()
			gone = catalog.Stale(was, now)
		}
		for _, p := range s.retire(gone) {
			retired = append(retired, leaving(p, was, now))
		}
	}
	for _, e := range next.Entries {
		for _, up := range r.Upstreams(e.ID) {
			// The one thing of a connection that may change under it.
			up.SetTimeouts(e.ConnectTimeout, e.Timeout, e.Policy.MaxTimeout)
		}
	}
	for _, p := range retired {
		r.retiring.Go(func() {
			ctx, cancel := context.WithTimeout(r.life, drainTime)
			defer cancel()
			if p.suspends {
				p.up.DrainToRest(ctx, whyOff)
			} else {
				p.up.Drain(ctx, whyReloaded)
			}
			close(p.ended)
		})
	}
	for _, e := range next.Entries {
		if stale[e.ID] {
			e.Governor.Policy.Forget()
		}
	}
	r.dropGovernors(next)
	r.startEager(sessions)
	r.stock.update(next)
	r.dropLearners(next)
	r.learnAll(next)
	for _, s := range sessions {
		s.catalogChanged()
	}
}
