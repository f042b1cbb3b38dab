package glob

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A segment matches one name of a path.
type segment struct {
	kind   kind
	text   string // of literal and suffix
	length int    // of exact
	nodes  []node
}

type kind int

const (
	literal  kind = iota // the text itself
	globstar             // any number of names
	suffix               // anything that ends in the text
	exact                // length characters, ending in the text
	dotted               // anything with a dot in it
	general              // what nodes say
)

func (s segment) isGlobstar() bool { return s.kind == globstar }

func (s segment) match(name string) (bool, error) {
	switch s.kind {
	case literal:
		return name == s.text, nil
	case suffix:
		return strings.HasSuffix(name, s.text), nil
	case exact:
		return utf8.RuneCountInString(name) == s.length && strings.HasSuffix(name, s.text), nil
	case dotted:
		return strings.Contains(name, "."), nil
	}
	return matchNodes(s.nodes, []rune(name))
}

// parse reads what is between two slashes. The most common shapes need no
// machinery, and minimatch takes a backslash in those literally.
func parse(part string) segment {
	const magic = "+@!?*[("
	stars := strings.TrimLeft(part, "*")
	marks := strings.TrimLeft(part, "?")
	switch {
	case part == "**":
		return segment{kind: globstar}
	case part == "":
		return segment{kind: literal}
	case len(stars) < len(part) && !strings.ContainsAny(stars, magic):
		return segment{kind: suffix, text: stars}
	case len(marks) < len(part) && !strings.ContainsAny(marks, magic):
		return segment{kind: exact, text: marks, length: utf8.RuneCountInString(part)}
	case len(stars) < len(part) && stars[0] == '.' && len(stars) > 1 && strings.Trim(stars[1:], "*") == "":
		return segment{kind: dotted}
	}
	p := parser{src: []rune(part)}
	nodes := p.sequence(0)
	if text, ok := plain(nodes); ok {
		return segment{kind: literal, text: text}
	}
	return segment{kind: general, nodes: nodes}
}

// plain returns the text of nodes that are characters only.
func plain(nodes []node) (string, bool) {
	var b strings.Builder
	for _, n := range nodes {
		c, ok := n.(char)
		if !ok {
			return "", false
		}
		b.WriteRune(rune(c))
	}
	return b.String(), true
}

// maxSteps bounds the work on one name: groups in groups can make it grow beyond
// any patience.
const maxSteps = 1 << 20

// matchNodes reports whether the nodes match a whole name.
func matchNodes(nodes []node, name []rune) (bool, error) {
	m := &matcher{name: name}
	ends := m.none()
	ends[len(name)] = true
	hit := m.run(nodes, ends, ends)[0]
	if m.tired() {
		return false, errHard
	}
	return hit, nil
}

// A matcher goes through a name from its end, carrying along the positions from
// which what was matched so far reaches the end.
type matcher struct {
	name  []rune
	steps int
}

func (m *matcher) none() []bool { return make([]bool, len(m.name)+1) }

func (m *matcher) tired() bool { return m.steps > maxSteps }

// run takes a sequence of nodes backward; see [node] for the two sets.
func (m *matcher) run(nodes []node, ends, final []bool) []bool {
	alike := &ends[0] == &final[0]
	for _, n := range slices.Backward(nodes) {
		if m.steps++; m.tired() {
			return m.none()
		}
		next := n.step(m, ends, final)
		if alike {
			ends, final = next, next
			continue
		}
		ends, final = next, n.step(m, final, final)
	}
	return ends
}
