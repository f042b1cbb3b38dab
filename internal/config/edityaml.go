package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A YAML file is changed by whole lines. Where blocks begin is known from the
// tree; a block ends with its last line that is neither blank nor a comment of
// what follows. Anything that is written otherwise is noticed when the new text is
// read, and is left alone.

// yamlKey is the line of a key without a value below it, or with an empty one.
var yamlKey = regexp.MustCompile(`^(\s*[^\s:]+\s*:)\s*(?:\{\s*\}|null|~)?(\s*(?:#.*)?)$`)

func (e *edit) addYAML(id string, entry *Node) ([]byte, error) {
	if e.parent != e.t.root {
		return nil, e.byHand("its servers are not at the top")
	}
	lines := e.lines()
	p := e.place()
	if p == nil {
		if len(e.t.root.Pairs) > 0 && e.flowAt(lines, e.t.root.Pos) {
			return nil, e.byHand("it is written in braces; add this: " + flow(MapNode(Pair{Key: e.key, Value: MapNode(Pair{Key: id, Value: entry})})))
		}
		head := []string{e.key + ":"}
		if len(lines) > 0 {
			head = []string{"", head[0]}
		}
		return e.joined(lines, len(lines), append(head, e.written(id, entry, 2)...)), nil
	}
	if !begins(lines, *p) {
		return nil, e.byHand(e.key + " does not begin a line")
	}
	line, below, indent := p.KeyPos.Line, e.nextKey(p.KeyPos.Line), p.KeyPos.Col+1
	switch {
	case len(e.servers.Pairs) == 0:
		ending := lineEnd(lines[line-1])
		m := yamlKey.FindStringSubmatch(strings.TrimSuffix(lines[line-1], ending))
		if m == nil {
			return nil, e.byHand("the value of " + e.key + " is not one that can be added to")
		}
		lines[line-1] = m[1] + m[2] + ending
	case e.flowAt(lines, e.servers.Pos):
		return nil, e.byHand(fmt.Sprintf("%s is written in braces; add this to it: %s", e.key, flow(MapNode(Pair{Key: id, Value: entry}))))
	default:
		indent = e.servers.Pairs[0].KeyPos.Col - 1
	}
	return e.joined(lines, lastLine(lines, line, below, p.KeyPos.Col-1), e.written(id, entry, indent)), nil
}

func (e *edit) removeYAML(at int) ([]byte, error) {
	lines := e.lines()
	p := e.place()
	if p == nil || e.parent != e.t.root || e.flowAt(lines, e.servers.Pos) {
		return nil, e.byHand(e.key + " is written in braces, or not at the top")
	}
	gone := e.servers.Pairs[at]
	from, indent, below := gone.KeyPos.Line, gone.KeyPos.Col-1, e.nextKey(p.KeyPos.Line)
	for _, other := range e.servers.Pairs {
		if l := other.KeyPos.Line; l > from && l < below {
			below = l
		}
	}
	if !begins(lines, *p) || !begins(lines, gone) {
		return nil, e.byHand("the server does not begin a line")
	}
	to := lastLine(lines, from, below, indent)
	return []byte(strings.Join(slices.Delete(lines, from-1, to), "")), nil
}

// place is the key that holds the servers; nil without one.
func (e *edit) place() *Pair {
	i := slices.IndexFunc(e.t.root.Pairs, func(p Pair) bool { return p.Key == e.key })
	if i < 0 {
		return nil
	}
	return &e.t.root.Pairs[i]
}

// begins reports whether a key is the first thing on its line.
func begins(lines []string, p Pair) bool {
	if p.KeyPos.Line < 1 || p.KeyPos.Line > len(lines) {
		return false
	}
	line := lines[p.KeyPos.Line-1]
	text := strings.TrimLeft(line, ` `)
	return len(line)-len(text) == p.KeyPos.Col-1 && strings.HasPrefix(strings.TrimLeft(text, `"'`), p.Key)
}

// nextKey is the line of the next key at the top after a line, or one after the
// last line.
func (e *edit) nextKey(line int) int {
	next := len(e.lines()) + 1
	for _, p := range e.t.root.Pairs {
		if l := p.KeyPos.Line; l > line && l < next {
			next = l
		}
	}
	return next
}

// lines are those of the text, with their ends.
func (e *edit) lines() []string {
	lines := strings.SplitAfter(string(e.data), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func lineEnd(line string) string { return line[len(strings.TrimRight(line, "\r\n")):] }

// lastLine is the last line of a block that begins on one line and ends before
// another. Blank lines, and comments that are not indented deeper than its key, are
// of what follows it.
func lastLine(lines []string, from, below, indent int) int {
	last := below - 1
	for ; last > from; last-- {
		text := strings.TrimLeft(lines[last-1], " ")
		comment := strings.HasPrefix(text, "#") && len(lines[last-1])-len(text) <= indent
		if strings.TrimSpace(text) != "" && !comment && strings.TrimSpace(text) != "..." {
			break
		}
	}
	return last
}

// flowAt reports whether a brace stands at a place.
func (e *edit) flowAt(lines []string, at Pos) bool {
	if at.Line < 1 || at.Line > len(lines) {
		return false
	}
	line := []rune(lines[at.Line-1])
	return at.Col >= 1 && at.Col <= len(line) && line[at.Col-1] == '{'
}

// written is an entry as lines.
func (e *edit) written(id string, entry *Node, indent int) []string {
	var b strings.Builder
	writeYAML(&b, MapNode(Pair{Key: id, Value: entry}), 0)
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.Repeat(" ", indent)+strings.TrimRight(line, "\n"))
	}
	return lines
}

// joined is the text with more lines after one of its lines.
func (e *edit) joined(lines []string, after int, more []string) []byte {
	var b bytes.Buffer
	for _, line := range lines[:after] {
		b.WriteString(line)
	}
	if after > 0 && lineEnd(lines[after-1]) == "" {
		b.WriteString(e.nl)
	}
	for _, line := range more {
		b.WriteString(line + e.nl)
	}
	for _, line := range lines[after:] {
		b.WriteString(line)
	}
	return b.Bytes()
}
