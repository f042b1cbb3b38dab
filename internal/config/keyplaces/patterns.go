package keyplaces

import (
	"path"
	"slices"
	"strings"
)

// patterns are those of names, sorted by how they are compared: a search compares very
// many names with very many patterns, most of which have no mark, or one at the front.
type patterns struct {
	names map[string]bool
	ends  []string // what follows a * at the front
	other []string
}

func compile(list []string) patterns {
	all := patterns{names: map[string]bool{}}
	for _, p := range list {
		end, front := strings.CutPrefix(p, "*")
		switch {
		case !marked(p):
			all.names[p] = true
		case front && !marked(end):
			all.ends = append(all.ends, end)
		default:
			all.other = append(all.other, p)
		}
	}
	return all
}

func marked(p string) bool { return strings.ContainsAny(p, `*?[\`) }

// match reports whether a name matches one of the patterns.
func (all patterns) match(name string) bool {
	return all.names[name] ||
		slices.ContainsFunc(all.ends, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		slices.ContainsFunc(all.other, func(p string) bool {
			ok, _ := path.Match(p, name)
			return ok
		})
}
