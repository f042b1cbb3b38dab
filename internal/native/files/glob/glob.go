// Package glob matches slash-separated paths against patterns as the npm package
// minimatch reads them with its option dot: *, ?, **, [classes], {a,b} and
// {1..3}, +(a|b) and its kin, a leading ! for "all but", a leading # for nothing.
//
// No pattern takes forever: sets of positions are carried along instead of
// trying one after the other, and what is still too much is an error.
//
// It differs from minimatch where that reads half of a character: here ? and
// classes mean whole ones, and [[:print:]] means what can be printed.
package glob

import (
	"errors"
	"slices"
	"strings"
)

// maxPattern is how many bytes a pattern may have.
const maxPattern = 4096

var (
	errLong = errors.New("the pattern is longer than 4096 bytes")
	errHard = errors.New("the pattern takes too long to match; nest less in parentheses")
	errMany = errors.New("the pattern has too many alternatives in braces")
)

// A Glob is a pattern ready to match. It may be used by several at once.
type Glob struct {
	sets   [][]segment // of which one must match
	negate bool
}

// Compile reads a pattern. What can't be read as magic is taken literally, so
// only size is an error.
func Compile(pattern string) (*Glob, error) {
	if len(pattern) > maxPattern {
		return nil, errLong
	}
	g := &Glob{}
	// A name has no NUL, and the empty pattern matches the empty path alone.
	if pattern == "" || pattern[0] == '#' || strings.IndexByte(pattern, 0) >= 0 {
		return g, nil
	}
	rest := strings.TrimLeft(pattern, "!")
	g.negate = (len(pattern)-len(rest))%2 == 1
	if rest == "" {
		return g, nil
	}
	alternatives, err := braces(rest)
	if err != nil {
		return nil, err
	}
	for _, a := range alternatives {
		set := []segment{}
		for _, part := range portions(a) {
			set = append(set, parse(part))
		}
		g.sets = append(g.sets, set)
	}
	return g, nil
}

// portions cuts a pattern at its slashes. A ** beside another says nothing, and
// ".." takes back the portion before it.
func portions(pattern string) []string {
	var out []string
	cut := strings.Split(pattern, "/")
	for i, p := range cut {
		if p == "" && i > 0 && i < len(cut)-1 {
			continue // of several slashes in a row
		}
		prev := ""
		if len(out) > 0 {
			prev = out[len(out)-1]
		}
		switch {
		case p == "**" && prev == "**":
		case p == ".." && prev != "" && prev != ".." && prev != "." && prev != "**":
			out = out[:len(out)-1]
		default:
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// Match reports whether a path, relative and clean, matches. Only a pattern that
// takes too long is an error.
func (g *Glob) Match(path string) (bool, error) {
	names := strings.Split(path, "/")
	for _, set := range g.sets {
		hit, err := matchSegments(set, names)
		if err != nil {
			return false, err
		}
		if hit {
			return !g.negate, nil
		}
	}
	return g.negate, nil
}

// matchSegments carries along at how many names the pattern so far may end.
func matchSegments(set []segment, names []string) (bool, error) {
	if !slices.ContainsFunc(set, segment.isGlobstar) {
		if len(set) != len(names) {
			return false, nil
		}
		for i, s := range set {
			if hit, err := s.match(names[i]); err != nil || !hit {
				return false, err
			}
		}
		return true, nil
	}
	at := make([]bool, len(names)+1)
	at[0] = true
	for i, s := range set {
		if s.isGlobstar() {
			if i == len(set)-1 {
				// At the end it stands for something: a/** is not a.
				return slices.Contains(at[:len(names)], true), nil
			}
			for j := slices.Index(at, true); j >= 0 && j < len(at); j++ {
				at[j] = true
			}
			continue
		}
		for j := len(names) - 1; j >= 0; j-- {
			hit := at[j]
			if hit {
				var err error
				if hit, err = s.match(names[j]); err != nil {
					return false, err
				}
			}
			at[j+1] = hit
		}
		at[0] = false
	}
	return at[len(names)], nil
}
