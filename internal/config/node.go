package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

type Shape uint8

const (
	ShapeNull Shape = iota
	ShapeBool
	ShapeInt
	ShapeFloat
	ShapeString
	ShapeList
	ShapeMap
)

func (k Shape) String() string {
	return [...]string{"nothing", "a boolean", "a number", "a number", "a string", "a list", "a map"}[k]
}

// Node is a value of a config file and its place. YAML and JSON are read into
// the same tree, so that everything above it knows one shape.
type Node struct {
	Shape Shape
	Pos   Pos
	Text  string // a string's value; other scalars as they were written
	Items []*Node
	Pairs []Pair

	// from is the text before placeholders were resolved; empty when there were
	// none. A value that came from one is never shown or quoted in a message.
	From string
	// missing is set when a placeholder had no value, which was reported; the
	// text means nothing.
	Missing bool
	// kept names the placeholders that stay until a server starts.
	Kept []string
	// inline has a map written on one line.
	inline bool
	// start and end are where it stands in a JSON text, in bytes.
	start, end int
}

type Pair struct {
	Key     string
	KeyPos  Pos
	keyAt   int // where it starts in a JSON text, in bytes
	Value   *Node
	comment []string // lines to write above the key
}

// duplicate is a key that stood twice in one map. The later one is kept.
type duplicate struct {
	key       string
	pos       Pos
	firstLine int
}

// tree is a file as read.
type tree struct {
	root *Node
	dups []duplicate
	json bool // the text was JSON
}

func (n *Node) Scalar() bool { return n.Shape != ShapeList && n.Shape != ShapeMap }

// Get returns the value of a key, or nil.
func (n *Node) Get(key string) *Node {
	for i := range n.Pairs {
		if n.Pairs[i].Key == key {
			return n.Pairs[i].Value
		}
	}
	return nil
}

// Set adds a key, or replaces its value.
func (n *Node) Set(key string, value *Node) {
	for i := range n.Pairs {
		if n.Pairs[i].Key == key {
			n.Pairs[i].Value = value
			return
		}
	}
	n.Pairs = append(n.Pairs, Pair{Key: key, KeyPos: value.Pos, Value: value})
}

// mapBuilder fills a map node and notes keys that stand twice.
type mapBuilder struct {
	n     *Node
	out   *tree
	index map[string]int
}

func (t *tree) newMap(at Pos) mapBuilder {
	return mapBuilder{n: &Node{Shape: ShapeMap, Pos: at}, out: t, index: map[string]int{}}
}

func (b mapBuilder) add(p Pair) {
	if i, ok := b.index[p.Key]; ok {
		b.out.dups = append(b.out.dups, duplicate{key: p.Key, pos: p.KeyPos, firstLine: b.n.Pairs[i].KeyPos.Line})
		b.n.Pairs[i] = p
		return
	}
	b.index[p.Key] = len(b.n.Pairs)
	b.n.Pairs = append(b.n.Pairs, p)
}

// Remove takes a key out.
func (n *Node) Remove(key string) {
	n.Pairs = slices.DeleteFunc(n.Pairs, func(p Pair) bool { return p.Key == key })
}

// Shown is the value as a message may quote it.
func (n *Node) Shown() string {
	switch {
	case !n.Scalar() || n.Shape == ShapeNull:
		return n.Shape.String()
	case n.From != "":
		return strconv.Quote(Clip(n.From))
	case n.Shape == ShapeString:
		return strconv.Quote(Clip(shownText(n.Text)))
	default:
		return Clip(n.Text)
	}
}

// TildeHint explains a home folder that YAML took for nothing.
func (n *Node) TildeHint() string {
	if n.Shape != ShapeNull || n.Text != "~" {
		return ""
	}
	return ` (which is what ~ means in YAML; for the home folder write "~" in quotes)`
}

func Clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// Value turns a node into plain Go values, for settings that are passed on.
func (n *Node) Value() any {
	switch n.Shape {
	case ShapeNull:
		return nil
	case ShapeBool:
		return strings.EqualFold(n.Text, "true")
	case ShapeInt:
		if i, err := parseInt(n.Text); err == nil {
			return i
		}
		if f, err := strconv.ParseFloat(n.Text, 64); err == nil {
			return f
		}
		return n.Text
	case ShapeFloat:
		return parseFloat(n.Text)
	case ShapeList:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = item.Value()
		}
		return list
	case ShapeMap:
		m := make(map[string]any, len(n.Pairs))
		for _, p := range n.Pairs {
			m[p.Key] = p.Value.Value()
		}
		return m
	default:
		return n.Text
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

func StringNode(s string) *Node { return &Node{Shape: ShapeString, Text: s} }
func BoolNode(b bool) *Node     { return &Node{Shape: ShapeBool, Text: strconv.FormatBool(b)} }
func IntNode(i int64) *Node     { return &Node{Shape: ShapeInt, Text: strconv.FormatInt(i, 10)} }
func NumberNode(f float64) *Node {
	return &Node{Shape: ShapeFloat, Text: formatNumber(f)}
}
func DurationNode(d time.Duration) *Node { return StringNode(Brief(d)) }

// SizeNode writes a size with its unit where that is exact.
func SizeNode(v int64) *Node {
	if s := FormatSize(v); strings.HasSuffix(s, "B") {
		return StringNode(s)
	}
	return IntNode(v)
}

func MapNode(pairs ...Pair) *Node {
	return &Node{Shape: ShapeMap, Pairs: pairs}
}

func ListNode(items ...string) *Node {
	n := &Node{Shape: ShapeList}
	for _, s := range items {
		n.Items = append(n.Items, StringNode(s))
	}
	return n
}
