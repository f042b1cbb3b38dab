package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// A List says which servers a session has: some of the config, by their ids, and its
// own, which stand in no config.
type List struct {
	Servers []string
	Inline  []config.Server
}

// mostListed bounds the servers of a List.
const mostListed = 256

// A Composed is the servers of a session, put together from a List.
type Composed struct {
	Key     string
	Servers []config.Server
	Joined  []config.Server // of these, those that were not there before
	Gone    []config.Server // those that were there and are no longer
}

// Same reports whether nothing was to be done.
func (c *Composed) Same() bool { return len(c.Joined)+len(c.Gone) == 0 }

// Compose pins the servers of a List. Those that were there before stay as they were
// pinned, by name; others are pinned as the config has them now, or as they are given.
// The servers behind the key are kept until release.
func (all *Catalogs) Compose(cur *Catalog, before []config.Server, l List) (c *Composed, release func(), err error) {
	if n := len(l.Servers) + len(l.Inline); n > mostListed {
		return nil, nil, invalid("", "%d servers are too many; a session may name %d", n, mostListed)
	}
	c = &Composed{}
	seen := make(map[string]bool)
	was := func(id string, inline bool) int {
		return slices.IndexFunc(before, func(s config.Server) bool { return s.ID == id && s.Inline == inline })
	}
	add := func(s config.Server) {
		if i := was(s.ID, s.Inline); i >= 0 {
			s = before[i]
		} else {
			c.Joined = append(c.Joined, s)
		}
		c.Servers = append(c.Servers, s)
	}
	for _, e := range cur.Entries { // in the order of the config
		if slices.Contains(l.Servers, e.ID) {
			seen[e.ID] = true
			if !e.Controls() { // which all sessions reach
				add(e.Server)
			}
		}
	}
	for _, id := range l.Servers {
		if !seen[id] {
			return nil, nil, invalid(id, "there is no server %.64q in the config; `tine servers` lists them", id)
		}
	}
	inline := slices.Clone(l.Inline)
	slices.SortStableFunc(inline, func(a, b config.Server) int { return strings.Compare(a.ID, b.ID) })
	for _, s := range inline {
		switch {
		case cur.Entry(s.ID) != nil:
			return nil, nil, invalid(s.ID, "%s.%s: the config has a server %q; give this one another name, or reference that one", config.InlineKey, s.ID, s.ID)
		case seen[s.ID]:
			return nil, nil, invalid(s.ID, "%s.%s stands twice; keep one", config.InlineKey, s.ID)
		case !s.Inline:
			return nil, nil, fmt.Errorf("server %q is not a session's own", s.ID)
		}
		seen[s.ID] = true
		add(s)
	}
	for _, s := range before {
		if !slices.ContainsFunc(c.Servers, func(n config.Server) bool { return n.ID == s.ID && n.Inline == s.Inline }) {
			c.Gone = append(c.Gone, s)
		}
	}
	release, err = all.pinList(c)
	return c, release, err
}

func invalid(server, format string, args ...any) error {
	return &api.Error{Kind: api.KindInvalid, Server: server, Message: fmt.Sprintf(format, args...)}
}

// pinList pins the servers of a Composed.
func (all *Catalogs) pinList(c *Composed) (release func(), err error) {
	list := make([]json.RawMessage, 0, len(c.Servers))
	for _, s := range c.Servers {
		b, err := s.Pin()
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	p := pinned{servers: c.Servers}
	if p.written, err = json.Marshal(list); err != nil {
		return nil, err
	}
	c.Key = keyOfPins(list)
	release = all.Keep(c.Key)
	all.mu.Lock()
	_, known := all.pins[c.Key]
	if !known {
		all.pins[c.Key] = p
	}
	all.mu.Unlock()
	all.keepFile(c.Key, p.written)
	return release, nil
}

// Keep has the servers behind a key stay while something is made of them that is not
// known yet. release must be called once.
func (all *Catalogs) Keep(key string) (release func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.kept[key]++
	delete(all.dropping, key)
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.kept[key]--; all.kept[key] == 0 {
			delete(all.kept, key)
		}
	}
}

// Drop lets go of the servers behind a key that no session and no snapshot has, as used
// tells, and reports whether it did. Those of the config now stay.
func (all *Catalogs) Drop(key string, used func() bool) bool {
	all.mu.Lock()
	stays := all.stays(key)
	if !stays {
		all.dropping[key] = true
	}
	all.mu.Unlock()
	if stays {
		return false
	}
	taken := used()
	all.mu.Lock()
	defer all.mu.Unlock()
	dropping := all.dropping[key] // or something was made of them since
	delete(all.dropping, key)
	if taken || !dropping || all.stays(key) {
		return false
	}
	delete(all.pins, key)
	if err := os.Remove(File(all.o.States, key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		all.o.Log.Warn("servers that no session is made of any more are not forgotten", "catalog", key, "err", err)
	}
	return true
}

// stays reports whether the servers behind a key are needed by others than sessions and
// snapshots. all.mu is held.
func (all *Catalogs) stays(key string) bool {
	cur := all.current.Load()
	return key == "" || all.kept[key] > 0 || cur != nil && cur.key == key
}
