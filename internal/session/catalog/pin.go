package catalog

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
	"strings"

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

// pinned are servers that a session or snapshot may be made with.
type pinned struct {
	servers []config.Server
	written json.RawMessage // as a catalog has them
}

// inline reports whether servers are among them that stand in no config.
func (p *pinned) inline() bool {
	return slices.ContainsFunc(p.servers, func(s config.Server) bool { return s.Inline })
}

// Pin returns the key of the servers of a catalog, which the store gets with the first
// that is made of them.
func (all *Catalogs) Pin(c *Catalog) (string, error) {
	if all.Written(c.key) != nil {
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
	all.keepFile(c.key, p.written)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.pins[c.key] = p
	return c.key, nil
}

// Written are the servers behind a key that was pinned or unpinned, as a catalog has
// them.
func (all *Catalogs) Written(key string) json.RawMessage {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.pins[key].written
}

// Unpin reads the servers behind a key.
func (all *Catalogs) Unpin(ctx context.Context, key string) ([]config.Server, error) {
	all.mu.Lock()
	p, ok := all.pins[key]
	all.mu.Unlock()
	if ok {
		return p.servers, nil
	}
	raw, stored, err := Find(ctx, all.o.Store, all.o.States, key)
	switch {
	case err != nil:
	case raw == nil && stored == noServers:
		err = ErrNotRecorded
	case raw == nil:
		err = &RecordError{"the database has other servers than it was made with, and the file besides is missing or has others too", File(all.o.States, key)}
	case stored != rightServers:
		err = all.o.Store.MendCatalog(ctx, key, raw)
	}
	if err != nil {
		return nil, err
	}
	if stored == OtherServers {
		all.WarnOther(key)
	}
	all.keepFile(key, raw)
	p.written = raw
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &RecordError{"the record can't be read: " + err.Error(), File(all.o.States, key)}
	}
	for _, b := range list {
		s, err := config.Unpin(b)
		if err != nil {
			return nil, &RecordError{"the record can't be read: " + err.Error(), File(all.o.States, key)}
		}
		p.servers = append(p.servers, s)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.pins[key] = p
	return p.servers, nil
}

// WarnOther says in the log that the store had other servers behind a key than the
// file.
func (all *Catalogs) WarnOther(key string) {
	all.o.Log.Error("the database had other servers of sessions than those of their hash, so some of its content has changed by itself; those of the file count",
		"catalog", key, "file", File(all.o.States, key))
}

// keepFile writes the servers behind a key to a file besides the store, where
// sessions that are newer than a backup find them.
func (all *Catalogs) keepFile(key string, servers []byte) {
	path := File(all.o.States, key)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, servers) {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = writeWhole(path, servers)
	}
	if err != nil {
		all.o.Log.Warn("the servers of a session are recorded in the database only", "catalog", key, "err", err)
	}
}

// writeWhole writes a file, whole or not at all. Several may write it at once.
func writeWhole(path string, data []byte) error {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partSuffix)
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		_ = os.Remove(part.Name())
	}
	return err
}

// Servers returns every server that there is or that a session was made with.
func (all *Catalogs) Servers() []config.Server {
	cur := all.Current()
	var out []config.Server
	for _, e := range cur.Entries {
		out = append(out, e.Server)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for key, p := range all.pins {
		if key != cur.key {
			out = append(out, p.servers...)
		}
	}
	return out
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

// Of reports whether the sessions of a catalog were made with the servers behind a key.
func (c *Catalog) Of(pin string) bool { return c.pin == pin }

// Key is that of the servers of a catalog, as Pin returns it.
func (c *Catalog) Key() string { return c.key }

// View makes the catalog of sessions that were made with certain servers. All
// of them have the same one, but for those with servers that stand in no config: these
// are each session's own, and have their governors in its home.
func (all *Catalogs) View(cur *Catalog, pin string, only []string, members map[string]Member, home *Home) *Catalog {
	key := viewKey(pin, only, members)
	all.mu.Lock()
	p, pinned := all.pins[pin]
	if p.inline() {
		key += home.suffix()
	}
	if v := all.views[key]; v != nil && v.of == cur {
		all.mu.Unlock()
		return v
	}
	full := len(all.views) >= max(mostViews, 2*all.viewsUsed)
	all.mu.Unlock()
	v := &Catalog{Config: cur.Config, byID: make(map[string]*Entry), pin: pin, of: cur}
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
		case s.Inline:
			add(all.newInline(s, home))
		case now != nil && (!now.Own() && s.Scope == config.ScopeShared || samePin(now.Server, s)):
			add(now)
		case s.Scope == config.ScopeSession:
			e := all.newEntry(s)
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
	v.key, v.Ahead = keyOf(v.Entries), copiedAhead(v.Entries)
	var used map[*Catalog]bool
	if full {
		used = all.o.InUse()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if other := all.views[key]; other != nil && other.of == cur {
		return other
	}
	if all.Current() == cur {
		if full {
			maps.DeleteFunc(all.views, func(_ string, v *Catalog) bool { return !used[v] })
			all.viewsUsed = len(all.views)
		}
		all.views[key] = v
	}
	return v
}

// DropViews forgets the catalogs that were made for one session alone: their entries have
// governors that are closed.
func (all *Catalogs) DropViews(home *Home) {
	all.mu.Lock()
	defer all.mu.Unlock()
	maps.DeleteFunc(all.views, func(key string, _ *Catalog) bool { return strings.HasSuffix(key, home.suffix()) })
}

// mostViews is how many catalogs of sessions are kept before unused ones are dropped.
const mostViews = 256
