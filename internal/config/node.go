package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"nothing", "a boolean", "a number", "a number", "a string", "a list", "a map"}[k]
}

// node is a value of a config file and its place. YAML and JSON are read into
// the same tree, so that everything above it knows one shape.
type node struct {
	kind  kind
	pos   pos
	text  string // a string's value; other scalars as they were written
	items []*node
	pairs []pair

	// from is the text before placeholders were resolved; empty when there were
	// none. A value that came from one is never shown or quoted in a message.
	from string
	// missing is set when a placeholder had no value. Whoever resolved it has
	// said so; the text means nothing.
	missing bool
	// kept names the placeholders that stay until a server starts.
	kept []string
	// inline has a map written on one line.
	inline bool
	// start and end are where it stands in a JSON text, in bytes.
	start, end int
}

type pair struct {
	key     string
	keyPos  pos
	keyAt   int // where it starts in a JSON text, in bytes
	value   *node
	comment []string // lines to write above the key
}

// duplicate is a key that stood twice in one map. The later one is kept.
type duplicate struct {
	key       string
	pos       pos
	firstLine int
}

// tree is a file as read.
type tree struct {
	root *node
	dups []duplicate
	json bool // the text was JSON
}

func (n *node) scalar() bool { return n.kind != kindList && n.kind != kindMap }

// get returns the value of a key, or nil.
func (n *node) get(key string) *node {
	for i := range n.pairs {
		if n.pairs[i].key == key {
			return n.pairs[i].value
		}
	}
	return nil
}

// set adds a key, or replaces its value.
func (n *node) set(key string, value *node) {
	for i := range n.pairs {
		if n.pairs[i].key == key {
			n.pairs[i].value = value
			return
		}
	}
	n.pairs = append(n.pairs, pair{key: key, keyPos: value.pos, value: value})
}

// mapBuilder fills a map node and notes keys that stand twice.
type mapBuilder struct {
	n     *node
	out   *tree
	index map[string]int
}

func (t *tree) newMap(at pos) mapBuilder {
	return mapBuilder{n: &node{kind: kindMap, pos: at}, out: t, index: map[string]int{}}
}

func (b mapBuilder) add(p pair) {
	if i, ok := b.index[p.key]; ok {
		b.out.dups = append(b.out.dups, duplicate{key: p.key, pos: p.keyPos, firstLine: b.n.pairs[i].keyPos.line})
		b.n.pairs[i] = p
		return
	}
	b.index[p.key] = len(b.n.pairs)
	b.n.pairs = append(b.n.pairs, p)
}

// shown is the value as a message may quote it.
func (n *node) shown() string {
	switch {
	case !n.scalar() || n.kind == kindNull:
		return n.kind.String()
	case n.from != "":
		return strconv.Quote(clip(n.from))
	case n.kind == kindString:
		return strconv.Quote(clip(n.text))
	default:
		return clip(n.text)
	}
}

// tildeHint explains a home folder that YAML took for nothing.
func (n *node) tildeHint() string {
	if n.kind != kindNull || n.text != "~" {
		return ""
	}
	return ` (which is what ~ means in YAML; for the home folder write "~" in quotes)`
}

func clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// value turns a node into plain Go values, for settings that are passed on.
func (n *node) value() any {
	switch n.kind {
	case kindNull:
		return nil
	case kindBool:
		return strings.EqualFold(n.text, "true")
	case kindInt:
		if i, err := parseInt(n.text); err == nil {
			return i
		}
		if f, err := strconv.ParseFloat(n.text, 64); err == nil {
			return f
		}
		return n.text
	case kindFloat:
		return parseFloat(n.text)
	case kindList:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.value()
		}
		return list
	case kindMap:
		m := make(map[string]any, len(n.pairs))
		for _, p := range n.pairs {
			m[p.key] = p.value.value()
		}
		return m
	default:
		return n.text
	}
}

// parseInt reads an integer as YAML writes it: 10, -3, 1_000, 0x1f, 0o17.
func parseInt(s string) (int64, error) {
	return strconv.ParseInt(strings.TrimPrefix(s, "+"), 0, 64)
}

func parseFloat(s string) any {
	switch strings.ToLower(strings.TrimPrefix(s, "+")) {
	case ".inf":
		return math.Inf(1)
	case "-.inf":
		return math.Inf(-1)
	case ".nan":
		return math.NaN()
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil {
		return s
	}
	return f
}

// The rest makes nodes for trees that are written and not read.

func stringNode(s string) *node { return &node{kind: kindString, text: s} }
func boolNode(b bool) *node     { return &node{kind: kindBool, text: strconv.FormatBool(b)} }
func intNode(i int64) *node     { return &node{kind: kindInt, text: strconv.FormatInt(i, 10)} }
func numberNode(f float64) *node {
	return &node{kind: kindFloat, text: formatNumber(f)}
}
func durationNode(d time.Duration) *node { return stringNode(Brief(d)) }

// sizeNode writes a size with its unit where that is exact.
func sizeNode(v int64) *node {
	if s := formatSize(v); strings.HasSuffix(s, "B") {
		return stringNode(s)
	}
	return intNode(v)
}

func mapNode(pairs ...pair) *node {
	return &node{kind: kindMap, pairs: pairs}
}

func listNode(items ...string) *node {
	n := &node{kind: kindList}
	for _, s := range items {
		n.items = append(n.items, stringNode(s))
	}
	return n
}
