package config

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

func (o object) texts(key string, dst *[]string, example string) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	if n.kind != kindList && n.kind != kindNull {
		o.wrong(key, n, "want a list of strings, got %s; write %s: %s", n.kind, key, example)
		return false
	}
	list := make([]string, 0, len(n.items))
	for i, item := range n.items {
		at := object{d: o.d, path: join(o.path, key) + fmt.Sprintf("[%d]", i), rel: join(o.rel, key), hidden: o.hidden}
		if item.missing {
			list = append(list, "")
			continue
		}
		if item.kind == kindNull || !item.scalar() {
			o.d.fail(item.pos, "%s: want a string, got %s%s", at.path, item.kind, item.tildeHint())
			continue
		}
		if strings.ContainsRune(item.text, 0) {
			o.d.fail(item.pos, "%s: contains a NUL character", at.path)
			continue
		}
		at.note(strconv.Itoa(i), item)
		list = append(list, item.text)
	}
	*dst = list
	return true
}

// oneOrMore is texts for a list that may be written as the one string it holds,
// or with split as its words.
func (o object) oneOrMore(key string, dst *[]string, split bool, example string) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	if n.kind != kindString {
		return o.texts(key, dst, example)
	}
	if strings.ContainsRune(n.text, 0) {
		o.wrong(key, n, "contains a NUL character")
		return false
	}
	list := []string{n.text}
	if split {
		list = strings.Fields(n.text)
	}
	for i := range list {
		o.note(join(key, strconv.Itoa(i)), n)
	}
	*dst = list
	return true
}

// item is one entry of a list of strings.
type item struct {
	text  string
	shown string // as a message may quote it
	path  string
	pos   pos
	index int // in the list, of which others may be missing
}

// items are the entries of a list that texts or oneOrMore read, without those
// that were complained about.
func (o object) items(key string, split bool) []item {
	n, ok := o.lookup(key)
	if !ok {
		return nil
	}
	at := join(o.path, key)
	var list []item
	switch {
	case n.kind == kindString && split:
		for _, word := range strings.Fields(n.text) {
			shown := n.shown()
			if n.from == "" {
				shown = strconv.Quote(clip(word))
			}
			list = append(list, item{word, shown, at, n.pos, len(list)})
		}
	case n.kind == kindString:
		list = []item{{n.text, n.shown(), at, n.pos, 0}}
	}
	for i, it := range n.items {
		if it.scalar() && it.kind != kindNull && !it.missing && !strings.ContainsRune(it.text, 0) {
			list = append(list, item{it.text, it.shown(), fmt.Sprintf("%s[%d]", at, i), it.pos, i})
		}
	}
	return list
}

// words checks a list whose items come from a fixed set.
func (o object) words(key string, allowed []string) {
	seen := map[string]bool{}
	for _, it := range o.items(key, false) {
		switch {
		case !slices.Contains(allowed, it.text):
			o.d.fail(it.pos, "%s: got %s, want %s", it.path, it.shown, orList(allowed))
		case seen[it.text]:
			o.d.fail(it.pos, "%s: %s stands twice", it.path, it.shown)
		}
		seen[it.text] = true
	}
}

// patterns checks a list of globs of some kind of name. They are read in the
// syntax of path.Match, with a slash that is a character like any other.
func (o object) patterns(key, what string) {
	for _, it := range o.items(key, false) {
		if _, err := path.Match(it.text, ""); err != nil || it.text == "" {
			o.d.fail(it.pos, "%s: %s is not a pattern; write %s, with * for any characters", it.path, it.shown, what)
		}
	}
}

// emptyList complains about a list that is there and holds nothing.
func (o object) emptyList(key, format string, args ...any) bool {
	n, ok := o.lookup(key)
	if !ok || n.kind != kindNull && (n.kind != kindList || len(n.items) > 0) {
		return false
	}
	o.wrong(key, n, format, args...)
	return true
}

func (o object) textMap(key string, dst *map[string]string, example string) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	if n.kind != kindMap && n.kind != kindNull {
		o.wrong(key, n, "want a map, got %s; write %s: %s", n.kind, key, example)
		return false
	}
	m := make(map[string]string, len(n.pairs))
	in := object{d: o.d, path: join(o.path, key), rel: join(o.rel, key), hidden: o.hidden}
	for _, p := range n.pairs {
		if v, ok := in.written(p.key, p.value, "a string"); ok {
			m[p.key] = v
		} else if p.value.missing {
			m[p.key] = ""
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
