package glob

import (
	"slices"
	"strings"
)

// A parser reads one segment.
type parser struct {
	src []rune
	pos int
}

// maxParens is how deep +(...) and its kin may be nested; below, they are text.
const maxParens = 2

// merged names the operators that may directly hold which others at no depth of
// their own, since the two come to one.
var merged = map[rune]string{'!': "?@", '?': "?@", '@': "?@", '*': "*+?@", '+': "+@?*"}

// sequence reads to the end of the source.
func (p *parser) sequence(depth int) []node {
	var nodes []node
	var text []rune
	scan := scanner{}
	for p.pos < len(p.src) {
		if scan.plain(p) && p.opens() && depth <= maxParens {
			whole := len(nodes) == 0 && len(text) == 0
			nodes = append(nodes, simple(text)...)
			text = nil
			nodes = append(nodes, p.parens(depth+1, whole)...)
			continue
		}
		text = append(text, p.src[p.pos])
		p.pos++
	}
	return append(nodes, simple(text)...)
}

// opens reports whether an operator and its parenthesis begin here.
func (p *parser) opens() bool {
	return strings.ContainsRune("!?+*@", p.src[p.pos]) && p.pos+1 < len(p.src) && p.src[p.pos+1] == '('
}

// parens reads an operator and what it holds. One that is never closed is text
// to the end. whole says that nothing comes before it.
func (p *parser) parens(depth int, whole bool) []node {
	start, op := p.pos, p.src[p.pos]
	p.pos += 2
	var alternatives [][]node
	var current []node
	var text []rune
	scan := scanner{}
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		switch {
		case !scan.plain(p):
		case p.opens() && (depth <= maxParens || strings.ContainsRune(merged[op], c)):
			deeper := depth + 1
			if strings.ContainsRune(merged[op], c) {
				deeper = depth
			}
			current = append(current, simple(text)...)
			text = nil
			current = append(current, p.parens(deeper, false)...)
			continue
		case c == '|':
			alternatives = append(alternatives, append(current, simple(text)...))
			current, text = nil, nil
			p.pos++
			continue
		case c == ')':
			bare := len(text) == 0
			alternatives = append(alternatives, append(current, simple(text)...))
			p.pos++
			if whole && op != '!' && p.pos == len(p.src) && allEmpty(alternatives) {
				return simple(escaped(p.src[start:p.pos]))
			}
			return []node{operator(op, alternatives, bare)}
		}
		text = append(text, c)
		p.pos++
	}
	return simple(p.src[start:])
}

func operator(op rune, alternatives [][]node, bare bool) node {
	if op != '!' {
		return &choice{alternatives: alternatives, none: op == '?' || op == '*', many: op == '+' || op == '*'}
	}
	// !(!(a)) is @(a).
	if len(alternatives) == 1 && len(alternatives[0]) == 1 {
		if inner, ok := alternatives[0][0].(*not); ok {
			return &choice{alternatives: inner.alternatives}
		}
	}
	return &not{alternatives: alternatives, something: bare}
}

func allEmpty(alternatives [][]node) bool {
	return !slices.ContainsFunc(alternatives, func(a []node) bool { return len(a) > 0 })
}

func escaped(text []rune) []rune {
	var out []rune
	for _, r := range text {
		out = append(out, '\\', r)
	}
	return out
}

// A scanner knows whether the character at hand may begin something: it does not
// after a backslash or in a class.
type scanner struct {
	escaped bool
	class   int // where the class at hand began, plus one
	negated bool
}

func (s *scanner) plain(p *parser) bool {
	c := p.src[p.pos]
	switch {
	case s.escaped || c == '\\':
		s.escaped = !s.escaped
	case s.class > 0 && p.pos == s.class:
		s.negated = c == '^' || c == '!'
	case s.class > 0:
		if c == ']' && !(p.pos == s.class+1 && s.negated) {
			s.class = 0
		}
	case c == '[':
		s.class, s.negated = p.pos+1, false
	default:
		return true
	}
	return false
}

// simple reads text without parentheses.
func simple(text []rune) []node {
	var nodes []node
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '*':
			for i+1 < len(text) && text[i+1] == '*' {
				i++
			}
			nodes = append(nodes, star{})
		case '?':
			nodes = append(nodes, any1{})
		case '\\':
			if i+1 < len(text) {
				i++
			}
			nodes = append(nodes, char(text[i]))
		case '[':
			n, used := parseClass(text[i:])
			if used == 0 {
				nodes = append(nodes, char(c))
				continue
			}
			nodes = append(nodes, n)
			i += used - 1
		default:
			nodes = append(nodes, char(c))
		}
	}
	return nodes
}
