package node

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var mergeable = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Merge makes one source of several. Their tools are named server__tool, with the
// server's name in brackets before the description. Names that would make this
// ambiguous are refused: those with "__" in them, or an underscore at the end.
func Merge(sources map[string]Source) (Source, error) {
	m := &merged{names: slices.Sorted(maps.Keys(sources)), sources: maps.Clone(sources), nodes: map[string]renamed{}}
	for _, name := range m.names {
		switch {
		case !mergeable.MatchString(name):
			return nil, fmt.Errorf("server name %q is not valid; use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first", name)
		case strings.Contains(name, "__") || strings.HasSuffix(name, "_"):
			return nil, fmt.Errorf("server name %q: \"__\" separates server and tool; leave out double underscores and one at the end", name)
		case missing(sources[name]):
			return nil, fmt.Errorf("source %q is nil", name)
		}
	}
	return m, nil
}

// missing reports whether there is no source, as after a Connect that failed.
func missing(s Source) bool {
	switch s := s.(type) {
	case nil:
		return true
	case *Server:
		return s == nil
	case *Node:
		return s == nil
	}
	return false
}

type merged struct {
	names   []string
	sources map[string]Source

	mu    sync.Mutex
	nodes map[string]renamed
}

type renamed struct{ from, to *Node }

func (m *merged) Nodes() []*Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*Node
	known := map[string]renamed{}
	for _, name := range m.names {
		for _, n := range m.sources[name].Nodes() {
			full := name + "__" + n.tool.Name
			r := m.nodes[full]
			if r.from != n {
				to, err := n.renamed(full, "["+name+"] ")
				if err != nil {
					continue // not JSON, so no server listed it
				}
				r = renamed{n, to}
			}
			known[full] = r
			all = append(all, r.to)
		}
	}
	m.nodes = known
	return all
}

func (m *merged) onChange(f func()) (stop func()) {
	var stops []func()
	for _, s := range m.sources {
		if s, ok := s.(live); ok {
			stops = append(stops, s.onChange(f))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
