package config

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

func (o Object) Texts(key string, dst *[]string, example string) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape != ShapeList && n.Shape != ShapeNull {
		o.Wrong(key, n, "want a list of strings, got %s; write %s: %s", n.Shape, key, example)
		return false
	}
	list := make([]string, 0, len(n.Items))
	for i, item := range n.Items {
		at := Object{d: o.d, Path: join(o.Path, key) + fmt.Sprintf("[%d]", i), rel: join(o.rel, key), hidden: o.hidden}
		if item.Missing {
			list = append(list, "")
			continue
		}
		if item.Shape == ShapeNull || !item.Scalar() {
			o.d.fail(item.Pos, "%s: want a string, got %s%s", at.Path, item.Shape, item.TildeHint())
			continue
		}
		if strings.ContainsRune(item.Text, 0) {
			o.d.fail(item.Pos, "%s: contains a NUL character", at.Path)
			continue
		}
		at.note(strconv.Itoa(i), item)
		list = append(list, item.Text)
	}
	*dst = list
	return true
}

// oneOrMore is texts for a list that may be written as the one string it holds,
// or with split as its words.
func (o Object) oneOrMore(key string, dst *[]string, split bool, example string) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape != ShapeString {
		return o.Texts(key, dst, example)
	}
	if strings.ContainsRune(n.Text, 0) {
		o.Wrong(key, n, "contains a NUL character")
		return false
	}
	list := []string{n.Text}
	if split {
		list = strings.Fields(n.Text)
	}
	for i := range list {
		o.note(join(key, strconv.Itoa(i)), n)
	}
	*dst = list
	return true
}

// Item is one entry of a list of strings.
type Item struct {
	Text  string
	Shown string // as a message may quote it
	Path  string
	Pos   Pos
	Index int // in the list, of which others may be missing
}

// Items are the entries of a list that texts or oneOrMore read, without those
// that were complained about.
func (o Object) Items(key string, split bool) []Item {
	n, ok := o.Lookup(key)
	if !ok {
		return nil
	}
	at := join(o.Path, key)
	var list []Item
	switch {
	case n.Shape == ShapeString && split:
		for _, word := range strings.Fields(n.Text) {
			shown := n.Shown()
			if n.From == "" {
				shown = strconv.Quote(Clip(word))
			}
			list = append(list, Item{word, shown, at, n.Pos, len(list)})
		}
	case n.Shape == ShapeString:
		list = []Item{{n.Text, n.Shown(), at, n.Pos, 0}}
	}
	for i, it := range n.Items {
		if it.Scalar() && it.Shape != ShapeNull && !it.Missing && !strings.ContainsRune(it.Text, 0) {
			list = append(list, Item{it.Text, it.Shown(), fmt.Sprintf("%s[%d]", at, i), it.Pos, i})
		}
	}
	return list
}

// words checks a list whose items come from a fixed set.
func (o Object) words(key string, allowed []string) {
	seen := map[string]bool{}
	for _, it := range o.Items(key, false) {
		switch {
		case !slices.Contains(allowed, it.Text):
			o.d.fail(it.Pos, "%s: got %s, want %s", it.Path, it.Shown, OrList(allowed))
		case seen[it.Text]:
			o.d.fail(it.Pos, "%s: %s stands twice", it.Path, it.Shown)
		}
		seen[it.Text] = true
	}
}

// patterns checks a list of globs of some kind of name. They are read in the
// syntax of path.Match, with a slash that is a character like any other.
func (o Object) patterns(key, what string) {
	for _, it := range o.Items(key, false) {
		if _, err := path.Match(it.Text, ""); err != nil || it.Text == "" {
			o.d.fail(it.Pos, "%s: %s is not a pattern; write %s, with * for any characters", it.Path, it.Shown, what)
		}
	}
}

// EmptyList complains about a list that is there and holds nothing.
func (o Object) EmptyList(key, format string, args ...any) bool {
	n, ok := o.Lookup(key)
	if !ok || n.Shape != ShapeNull && (n.Shape != ShapeList || len(n.Items) > 0) {
		return false
	}
	o.Wrong(key, n, format, args...)
	return true
}

func (o Object) TextMap(key string, dst *map[string]string, example string) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape != ShapeMap && n.Shape != ShapeNull {
		o.Wrong(key, n, "want a map, got %s; write %s: %s", n.Shape, key, example)
		return false
	}
	m := make(map[string]string, len(n.Pairs))
	in := Object{d: o.d, Path: join(o.Path, key), rel: join(o.rel, key), hidden: o.hidden}
	for _, p := range n.Pairs {
		if v, ok := in.Written(p.Key, p.Value, "a string"); ok {
			m[p.Key] = v
		} else if p.Value.Missing {
			m[p.Key] = ""
		}
	}
	*dst = m
	return true
}

// over lays a map over another, which stays as it is.
func over(base, top map[string]string) map[string]string {
	if base == nil {
		return top
	}
	out := make(map[string]string, len(base)+len(top))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range top {
		out[k] = v
	}
	return out
}

// Spot is where an entry of a list stands, which may be among the flags.
func (o Object) Spot(key string, i int) (Pos, string) {
	if n := o.n.Get(key); n != nil && i < len(n.Items) {
		return n.Items[i].Pos, join(o.Path, key) + "[" + itoa(i) + "]"
	}
	if n := o.n.Get("run_args"); n != nil {
		return n.Pos, join(o.Path, "run_args")
	}
	return o.KeyPos(key), join(o.Path, key)
}

// SayPos is where a key stands, or the flags that say the same.
func (o Object) SayPos(key string) Pos {
	if o.n.Get(key) == nil && o.n.Get("run_args") != nil {
		return o.n.Get("run_args").Pos
	}
	return o.KeyPos(key)
}
