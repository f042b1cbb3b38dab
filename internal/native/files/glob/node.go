package glob

import "slices"

// A node is a part of a segment. step goes backward: from the positions of the
// name at which it may end it returns those at which it may begin.
//
// There are two sets of ends. The first is where what comes after the node may
// begin here; the second leaves out that a group around it may be repeated,
// which !(...) must not count on. Neither is changed.
type node interface {
	step(m *matcher, ends, final []bool) []bool
}

type (
	char  rune     // itself
	any1  struct{} // one character
	star  struct{} // any characters
	never struct{} // nothing
)

func (c char) step(m *matcher, ends, _ []bool) []bool {
	return one(m, ends, func(r rune) bool { return r == rune(c) })
}

func (any1) step(m *matcher, ends, _ []bool) []bool {
	return one(m, ends, func(rune) bool { return true })
}

func (c *class) step(m *matcher, ends, _ []bool) []bool { return one(m, ends, c.has) }

func (never) step(m *matcher, _, _ []bool) []bool { return m.none() }

func (star) step(_ *matcher, ends, _ []bool) []bool { return downward(ends) }

func one(m *matcher, ends []bool, fits func(rune) bool) []bool {
	out := m.none()
	for i, r := range m.name {
		out[i] = ends[i+1] && fits(r)
	}
	return out
}

// downward adds all positions before one that is in the set.
func downward(set []bool) []bool {
	out := slices.Clone(set)
	for i := len(out) - 2; i >= 0; i-- {
		out[i] = out[i] || out[i+1]
	}
	return out
}

// A choice is @(a|b), or ?(), +(), *() of it.
type choice struct {
	alternatives [][]node
	none, many   bool // may be left out; may be repeated
}

func (c *choice) step(m *matcher, ends, final []bool) []bool {
	out := m.none()
	for fresh := ends; ; {
		again := m.none()
		grown := false
		for _, a := range c.alternatives {
			for i, ok := range m.run(a, fresh, final) {
				if ok && !out[i] {
					out[i], again[i], grown = true, true, true
				}
			}
		}
		if fresh = again; !c.many || !grown || m.tired() {
			break
		}
	}
	if c.none {
		for i, ok := range ends {
			out[i] = out[i] || ok
		}
	}
	return out
}

// not is !(a|b): any characters, unless an alternative and what comes after the
// parenthesis would match the rest of the name. So !(a)* does not match ab.
type not struct {
	alternatives [][]node
	something    bool // anything but the empty text, whatever the alternatives say
}

func (n *not) step(m *matcher, ends, final []bool) []bool {
	out := downward(ends)
	if n.something {
		return append(out[1:], false)
	}
	for _, a := range n.alternatives {
		for i, ok := range m.run(a, final, final) {
			out[i] = out[i] && !ok
		}
	}
	return out
}
