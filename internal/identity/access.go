package identity

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// access is what the rules that match a principal give it. Rules are evaluated once
// for each server, and patterns once for each tool; principals that share the
// access share the results.
type access struct {
	separator string
	grants    []*rule
	rate      Rate
	open      bool // there are no rules
	servers   memo[*reach]
}

// reach is what an access gives of one server.
type reach struct {
	seen      bool
	unlimited bool
	tools     names
	prompts   names
	resources bool
}

// These two are never changed.
var (
	everything = &reach{seen: true, unlimited: true, tools: names{all: true}, prompts: names{all: true}, resources: true}
	nothing    = &reach{}
)

func (a *access) reach(server string) *reach { return a.servers.get(server, a.work) }

// work is the union of what the rules give of a server.
func (a *access) work(server string) *reach {
	r := &reach{}
	r.tools.prefix, r.prompts.prefix = server+a.separator, server+a.separator
	for _, rule := range a.grants {
		if len(rule.servers) > 0 && !matchAny(rule.servers, server) {
			continue
		}
		if rule.whole() {
			return everything
		}
		r.tools.add(rule.tools)
		r.prompts.add(rule.prompts)
		r.resources = r.resources || matchAny(rule.resources, server)
	}
	if r.tools.none() && r.prompts.none() && !r.resources {
		return nothing
	}
	r.seen = true
	return r
}

// names are the tools or the prompts of a server that an access gives.
type names struct {
	all    bool
	prefix string          // the server's name and the separator
	exact  map[string]bool // names
	globs  []glob          // of prefix and name
	known  memo[bool]      // results of the globs
}

// add adds what patterns give of the server.
func (n *names) add(patterns []glob) {
	for _, g := range patterns {
		some, all := g.after(n.prefix)
		switch {
		case all:
			n.all = true
		case some && g.literal:
			if n.exact == nil {
				n.exact = make(map[string]bool)
			}
			n.exact[strings.TrimPrefix(g.text, n.prefix)] = true
		case some:
			n.globs = append(n.globs, g)
		}
	}
}

func (n *names) none() bool { return !n.all && len(n.exact) == 0 && len(n.globs) == 0 }

func (n *names) gives(name string) bool {
	if n.all || n.exact[name] {
		return true
	}
	return len(n.globs) > 0 && n.known.get(name, n.match)
}

func (n *names) match(name string) bool { return matchAny(n.globs, n.prefix+name) }

func matchAny(globs []glob, name string) bool {
	return slices.ContainsFunc(globs, func(g glob) bool { return g.match(name) })
}

// These bound a memo, since the names of servers and tools come from callers:
// how many it remembers, and how long they may be.
const (
	maxMemo     = 512
	maxMemoName = 256
)

// A memo remembers the results of work that always gives the same for a name. When
// it is full, or for a longer name, the work is done each time.
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
