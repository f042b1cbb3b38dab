package blueprint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// A Tree is a value as JSON has it, whose texts may have placeholders. Its keys have none.
// The zero Tree is nothing.
type Tree struct {
	text   *Text
	list   []Tree
	fields map[string]Tree
	value  any // true, false, a number; nil for null
	kind   treeKind
}

type treeKind uint8

const (
	treeNone treeKind = iota
	treeText
	treeList
	treeMap
	treeScalar
)

// treeOf takes a node apart. known says what may stand in its texts.
func treeOf(o config.Object, n *config.Node, path string, k kind) Tree {
	switch n.Shape {
	case config.ShapeString:
		t := textOf(o, n, n.Text, path, k)
		return Tree{kind: treeText, text: &t}
	case config.ShapeList:
		tree := Tree{kind: treeList}
		for i, item := range n.Items {
			tree.list = append(tree.list, treeOf(o, item, fmt.Sprintf("%s[%d]", path, i), k))
		}
		return tree
	case config.ShapeMap:
		tree := Tree{kind: treeMap, fields: map[string]Tree{}}
		for _, p := range n.Pairs {
			noPlaceholderKey(o, p, path)
			tree.fields[p.Key] = treeOf(o, p.Value, path+"."+p.Key, k)
		}
		return tree
	default:
		v := n.Value()
		if _, err := json.Marshal(v); err != nil {
			o.Fail(n.Pos, "%s: can't be written as JSON; use plain numbers", path)
		}
		return Tree{kind: treeScalar, value: v}
	}
}

// noPlaceholderKey complains about a placeholder in a name.
func noPlaceholderKey(o config.Object, p config.Pair, path string) {
	if strings.Contains(p.Key, "${") {
		o.Fail(p.KeyPos, "%s: the name %q has a placeholder, and only values may have one", path, config.Clip(p.Key))
	}
}

// each calls f with every text below a tree.
func (t Tree) each(f func(Text)) {
	if t.text != nil {
		f(*t.text)
	}
	for _, item := range t.list {
		item.each(f)
	}
	for _, key := range slices.Sorted(maps.Keys(t.fields)) {
		t.fields[key].each(f)
	}
}

// Get is the value of a key; the zero Tree where there is none.
func (t Tree) Get(key string) Tree { return t.fields[key] }

// with is a map with one more value.
func (t Tree) with(key string, v Tree) Tree {
	fields := maps.Clone(t.fields)
	if fields == nil {
		fields = map[string]Tree{}
	}
	fields[key] = v
	return Tree{kind: treeMap, fields: fields}
}

// Source is the value as a blueprint has it.
func (t Tree) Source() any { return t.plain(Text.Source) }

// literal is the value of a tree without placeholders.
func (t Tree) literal() any { return t.plain(Text.literal) }

// plain is the value of a tree whose texts are what say makes of them.
func (t Tree) plain(say func(Text) string) any {
	switch t.kind {
	case treeText:
		return say(*t.text)
	case treeList:
		list := make([]any, len(t.list))
		for i, item := range t.list {
			list[i] = item.plain(say)
		}
		return list
	case treeMap:
		m := make(map[string]any, len(t.fields))
		for key, v := range t.fields {
			m[key] = v.plain(say)
		}
		return m
	}
	return t.value
}

// A PendingTree is to a Tree what a Pending is to a Text. One of its fields is set, or
// none for nothing.
type PendingTree struct {
	Text *Pending               `json:"text,omitzero"`
	List []PendingTree          `json:"list,omitzero"`
	Map  map[string]PendingTree `json:"map,omitzero"`
	// Value is anything that is no text of the blueprint: a number, or a parameter with its
	// type. Nothing is filled in below it.
	Value json.RawMessage `json:"value,omitzero"`
}

// fill is the tree with the runner's values, as encoding/json has it for any.
func (t PendingTree) fill(r *runnerFiller, path string) any {
	switch {
	case t.Text != nil:
		return r.text(*t.Text, path)
	case t.List != nil:
		list := make([]any, len(t.List))
		for i, item := range t.List {
			list[i] = item.fill(r, fmt.Sprintf("%s[%d]", path, i))
		}
		return list
	case t.Map != nil:
		m := make(map[string]any, len(t.Map))
		for _, key := range slices.Sorted(maps.Keys(t.Map)) {
			m[key] = t.Map[key].fill(r, join(path, key))
		}
		return m
	case t.Value != nil:
		var v any
		dec := json.NewDecoder(bytes.NewReader(t.Value))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			r.fail(path, "is no JSON: %v", err)
		}
		return v
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
