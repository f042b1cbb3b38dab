package identity

import (
	"path"
	"strings"
)

// A glob is a pattern in the syntax of path.Match. Unlike there a slash is a
// character like any other: principals, groups and tools have slashes in their
// names, and `github__*` means every tool of github.
type glob struct {
	text    string   // as it was written
	pattern string   // with the slashes disguised
	literal bool     // there is nothing to match, only to compare
	tokens  []string // pieces of pattern that take one character each, and "*"
}

// slash stands for / in patterns and names while path.Match looks at them.
const slash = "\x00"

func disguise(s string) string { return strings.ReplaceAll(s, "/", slash) }

// Match reports whether a pattern of the config matches the name of a tool, a
// server or a principal: in the syntax of path.Match, except that a slash is a
// character like any other. A malformed pattern matches nothing.
func Match(pattern, name string) bool {
	ok, err := path.Match(disguise(pattern), disguise(name))
	return ok && err == nil
}

// ValidPattern reports whether a pattern is well-formed.
func ValidPattern(pattern string) bool {
	_, valid := newGlob(pattern)
	return valid
}

// newGlob never fails: a malformed pattern matches nothing, which is the safe
// reading of a list of permissions.
func newGlob(text string) (g glob, valid bool) {
	g = glob{text: text, pattern: disguise(text)}
	if _, err := path.Match(g.pattern, ""); err != nil {
		return glob{text: text}, false
	}
	g.literal = !strings.ContainsAny(text, `*?[\`)
	for rest := g.pattern; rest != ""; {
		n := tokenLen(rest)
		g.tokens = append(g.tokens, rest[:n])
		rest = rest[n:]
	}
	return g, true
}

// tokenLen is the length of the first piece of a valid pattern.
func tokenLen(p string) int {
	switch p[0] {
	case '\\':
		return 1 + runeLen(p[1:])
	case '[':
		for i := 1; i < len(p); i++ {
			switch p[i] {
			case '\\':
				i++
			case ']':
				return i + 1
			}
		}
		return len(p)
	}
	return runeLen(p)
}

func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

func (g glob) match(name string) bool {
	if g.literal {
		return g.text == name
	}
	if g.tokens == nil {
		return false
	}
	ok, _ := path.Match(g.pattern, disguise(name))
	return ok
}

// after reports, for the names that begin with prefix and are longer, whether the
// glob matches some of them, and whether it certainly matches all. It follows at
// once every way in which the pattern can match the prefix.
func (g glob) after(prefix string) (some, all bool) {
	at := make([]bool, len(g.tokens)+1)
	g.arrive(at, 0)
	for _, c := range disguise(prefix) {
		next := make([]bool, len(at))
		for i, token := range g.tokens {
			if !at[i] {
				continue
			}
			if token == "*" {
				g.arrive(next, i)
			} else if ok, _ := path.Match(token, string(c)); ok {
				g.arrive(next, i+1)
			}
		}
		at = next
	}
	for i, stars := len(g.tokens)-1, true; i >= 0; i-- {
		stars = stars && g.tokens[i] == "*"
		some = some || at[i]
		all = all || at[i] && stars // only stars are left
	}
	return some, all
}

// arrive marks a place in the pattern, and those behind stars that take nothing.
func (g glob) arrive(at []bool, i int) {
	at[i] = true
	for ; i < len(g.tokens) && g.tokens[i] == "*"; i++ {
		at[i+1] = true
	}
}
