package identity

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// access is what the rules that match a principal give it. Rules are looked
// through once for each server, and patterns once for each tool; all who share
// the access share what came of it.
type access struct {
	separator string
	grants    []*rule
	rate      Rate
	servers   memo[*reach]
}

// reach is what an access gives of one server.
type reach struct {
	seen      bool
	unlimited bool
	prefix    string          // the server's name and the separator
	exact     map[string]bool // tools
	globs     []glob          // of prefix and tool
	tools     memo[bool]      // what came of the globs
}

// These two are never changed.
var (
	everything = &reach{seen: true, unlimited: true}
	nothing    = &reach{}
)

func (a *access) reach(server string) *reach { return a.servers.get(server, a.work) }

// work takes the union of what the rules give of a server.
func (a *access) work(server string) *reach {
	r := &reach{prefix: server + a.separator, exact: map[string]bool{}}
	for _, rule := range a.grants {
		if len(rule.servers) > 0 && !matchAny(rule.servers, server) {
			continue
		}
		if len(rule.tools) == 0 {
			return everything
		}
		for _, g := range rule.tools {
			some, all := g.after(r.prefix)
			switch {
			case all:
				return everything
			case some && g.literal:
				r.exact[strings.TrimPrefix(g.text, r.prefix)] = true
			case some:
				r.globs = append(r.globs, g)
			}
		}
	}
	if len(r.exact) == 0 && len(r.globs) == 0 {
		return nothing
	}
	r.seen = true
	return r
}

func (r *reach) gives(tool string) bool {
	if r.unlimited || r.exact[tool] {
		return true
	}
	return len(r.globs) > 0 && r.tools.get(tool, r.match)
}

func (r *reach) match(tool string) bool { return matchAny(r.globs, r.prefix+tool) }

func matchAny(globs []glob, name string) bool {
	return slices.ContainsFunc(globs, func(g glob) bool { return g.match(name) })
}

// These bound a memo, since the names of servers and tools come from callers:
// how many it remembers, and how long they may be.
const (
	maxMemo     = 512
	maxMemoName = 256
)

// A memo remembers what came of work that always gives the same for a name.
// When it is full, or for a longer name, the work is done each time.
type memo[V any] struct {
	known sync.Map
	size  atomic.Int32
}

func (m *memo[V]) get(name string, work func(string) V) V {
	if v, ok := m.known.Load(name); ok {
		return v.(V)
	}
	v := work(name)
	if len(name) <= maxMemoName && m.size.Load() < maxMemo {
		if _, loaded := m.known.LoadOrStore(strings.Clone(name), v); !loaded {
			m.size.Add(1)
		}
	}
	return v
}
