package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tine-mcp/tine/internal/config"
)

// A session that was opened keeps the servers it was opened with: a reload is
// for new ones. What it shares with others follows the config as it is, and what
// the config or an operator takes away is gone here too.

// keyOf tells catalogs of different servers apart.
func keyOf(entries []*Entry) string {
	pins := make([]json.RawMessage, 0, len(entries))
	for _, e := range entries {
		b, err := e.Pin()
		if err != nil {
			b = []byte(e.ID + err.Error())
		}
		pins = append(pins, b)
	}
	return keyOfPins(pins)
}

// keyOfPins is the hash of servers that are written down.
func keyOfPins(pins []json.RawMessage) string {
	h := sha256.New()
	for _, b := range pins {
		fmt.Fprintf(h, "%d:", len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// pinned are servers that somebody may be made with.
type pinned struct {
	servers []config.Server
	written json.RawMessage // as a catalog has them
}

// pin returns the key of the servers of a catalog, which the store gets with the first
// that is made of them.
func (r *Registry) pin(c *Catalog) (string, error) {
	if r.written(c.key) != nil {
		return c.key, nil
	}
	var p pinned
	list := make([]json.RawMessage, 0, len(c.Entries))
	for _, e := range c.Entries {
		b, err := e.Pin()
		if err != nil {
			return "", err
		}
		list = append(list, b)
		p.servers = append(p.servers, e.Server)
	}
	var err error
	if p.written, err = json.Marshal(list); err != nil {
		return "", err
	}
	r.keepCatalog(c.key, p.written)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pins[c.key] = p
	return c.key, nil
}

// written are the servers behind a key that was pinned or unpinned, as a catalog has
// them.
func (r *Registry) written(key string) json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pins[key].written
}

// unpin reads the servers behind a key.
func (r *Registry) unpin(ctx context.Context, key string) ([]config.Server, error) {
	r.mu.Lock()
	p, ok := r.pins[key]
	r.mu.Unlock()
	if ok {
		return p.servers, nil
	}
	raw, stored, err := findCatalog(ctx, r.o.Shared, r.o.States, key)
	switch {
	case err != nil:
	case raw == nil && stored == noServers:
		err = errNotRecorded
	case raw == nil:
		err = &catalogError{"the database has other servers than it was made with, and the file besides is missing or has others too", catalogFile(r.o.States, key)}
	case stored != rightServers:
		err = r.o.Shared.MendCatalog(ctx, key, raw)
	}
	if err != nil {
		return nil, err
	}
	if stored == otherServers {
		r.warnCatalog(key)
	}
	r.keepCatalog(key, raw)
	p.written = raw
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &catalogError{"the record can't be read: " + err.Error(), catalogFile(r.o.States, key)}
	}
	for _, b := range list {
		s, err := config.Unpin(b)
		if err != nil {
			return nil, &catalogError{"the record can't be read: " + err.Error(), catalogFile(r.o.States, key)}
		}
		p.servers = append(p.servers, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pins[key] = p
	return p.servers, nil
}

func (r *Registry) warnCatalog(key string) {
	r.o.Log.Error("the database had other servers of sessions than those of their hash, so some of its content has changed by itself; those of the file count",
		"catalog", key, "file", catalogFile(r.o.States, key))
}

// keepPin sees to it that the servers behind a key are known besides the store.
func (r *Registry) keepPin(ctx context.Context, key string) {
	if key == "" {
		return
	}
	if _, err := r.unpin(ctx, key); err != nil {
		r.o.Log.Warn("the servers of a snapshot are not known", "catalog", key, "err", err)
	}
}

// keepCatalog writes the servers behind a key to a file besides the store, where
// sessions that are newer than a backup find them.
func (r *Registry) keepCatalog(key string, servers []byte) {
	path := catalogFile(r.o.States, key)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, servers) {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path+partMark, servers, 0o600)
	}
	if err == nil {
		err = os.Rename(path+partMark, path)
	}
	if err != nil {
		r.o.Log.Warn("the servers of a session are recorded in the database only", "catalog", key, "err", err)
	}
}

// Servers returns every server that there is or that a session was made with.
func (r *Registry) Servers() []config.Server {
	cur := r.Catalog()
	var all []config.Server
	for _, e := range cur.Entries {
		all = append(all, e.Server)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.pins {
		if key != cur.key {
			all = append(all, p.servers...)
		}
	}
	return all
}

// errNotRecorded reports servers that nobody knows any more.
var errNotRecorded = errors.New("the servers it was made with are not recorded any more")

// Catalog returns the servers as this session sees them now.
func (s *Session) Catalog() *Catalog {
	cur := s.r.Catalog()
	if s.pin == "" && len(s.servers) == 0 && len(s.said) == 0 {
		return cur
	}
	if v := s.view.Load(); v != nil && v.of == cur {
		return v
	}
	v := s.r.viewOf(cur, s.pin, s.servers, s.said)
	s.view.Store(v)
	return v
}

// samePin reports whether two entries are the same in everything.
func samePin(a, b config.Server) bool {
	x, errA := a.Pin()
	y, errB := b.Pin()
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// Current reports whether a catalog was made while another one is the current
// one.
func (c *Catalog) Current(cur *Catalog) bool { return c.of == cur }

// viewOf makes the catalog of sessions that were made with certain servers. All
// of them have the same one.
func (r *Registry) viewOf(cur *Catalog, pin string, only []string, members map[string]Member) *Catalog {
	key := viewKey(pin, only, members)
	r.mu.Lock()
	if v := r.views[key]; v != nil && v.of == cur {
		r.mu.Unlock()
		return v
	}
	p, pinned := r.pins[pin]
	r.mu.Unlock()
	v := &Catalog{Config: cur.Config, byID: make(map[string]*Entry), of: cur}
	add := func(e *Entry) {
		if e.Controls() || len(only) > 0 && !slices.Contains(only, e.ID) {
			return
		}
		for _, e := range e.instances(members[e.ID]) {
			v.Entries = append(v.Entries, e)
			v.byID[e.ID] = e
		}
	}
	if !pinned {
		for _, e := range cur.Entries {
			add(e)
		}
	}
	for _, s := range p.servers {
		now := cur.Entry(s.ID)
		switch {
		case now != nil && (!now.own() && s.Scope == config.ScopeShared || samePin(now.Server, s)):
			add(now)
		case s.Scope == config.ScopeSession:
			e := r.newEntry(s)
			if now != nil {
				e.Override = now.Override
			}
			e.taken = takenBy(now)
			add(e)
		}
	}
	// What acts on sessions is in none, and can be reached from all.
	for _, e := range cur.Entries {
		if e.Controls() {
			v.Entries = append(v.Entries, e)
			v.byID[e.ID] = e
		}
	}
	v.key, v.ahead = keyOf(v.Entries), copiedAhead(v.Entries)
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.views[key]; other != nil && other.of == cur {
		return other
	}
	if r.catalog.Load() == cur {
		if len(r.views) >= max(mostViews, 2*r.viewsUsed) {
			r.dropViews()
		}
		r.views[key] = v
	}
	return v
}

// mostViews is how many catalogs of sessions are kept before it is looked which
// of them are still somebody's.
const mostViews = 256

// dropViews forgets those that no session has. r.mu is held.
func (r *Registry) dropViews() {
	used := make(map[*Catalog]bool)
	for _, s := range r.sessions {
		used[s.view.Load()] = true
	}
	maps.DeleteFunc(r.views, func(_ string, v *Catalog) bool { return !used[v] })
	r.viewsUsed = len(r.views)
}
