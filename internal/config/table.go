package config

import (
	"reflect"
	"slices"
	"strings"
)

// A Table describes the keys of one map of the config, each once: how its value is
// read, shown and kept secret, what it is by default, and what the reference and the
// JSON Schema say of it. T is what the map is read into.
type Table[T any] []Key[T]

// A Key is one key of a Table; Put makes one.
type Key[T any] struct {
	About
	read    func(o Object, t *T)
	show    func(t *T, at Place) *Node
	secrets func(t *T, at Place, l SecretList)
	fill    func(t *T, first bool)
	tidy    func(t *T)
	same    func(a, b *T) bool
	clear   func(t *T)
	beside  []string // the keys of which one must stand beside it; none for any
}

// About is what people are told of a key.
type About struct {
	Name    string
	Type    string // in Markdown: size, `a`, `b`
	Default string // in Markdown; empty for none
	Range   string // in Markdown; empty for none
	Meaning string // in Markdown
	Goes    string // what it goes with, in Markdown; empty for anything
	// Schema is what may stand there; beside a map with Keys, or a list of such maps,
	// what may stand in the place of one. Nil for nothing else.
	Schema Schema
	Keys   []About
	List   bool
	Form   Form // what a command line gives for it
}

// A Form is how a value is written where there is only text.
type Form int

// The forms of values.
const (
	FormText   Form = iota // also times and sizes
	FormNumber             // whole or not
	FormBool
	FormList
	FormNames  // names of the user's own, each with a text
	FormSecret // never on a command line
)

// Place is where a value stands in its server or config, and what of that is hidden.
type Place struct {
	rel    string
	hidden map[string]bool
}

func (p Place) Below(key string) Place { return Place{join(p.rel, key), p.hidden} }

// Hidden reports whether the value came from a placeholder.
func (p Place) Hidden() bool { return p.hidden[p.rel] }

// Text is a value as it may be shown.
func (p Place) Text(v string) string {
	if p.Hidden() && v != "" {
		return mask
	}
	return shownText(v)
}

// List is a list as it may be shown.
func (p Place) List(v []string) *Node { return ShownList(v, p.rel, p.hidden) }

// Put is a key whose value goes to a field.
func Put[T, V any](name string, field func(*T) *V, v Value[V], meaning string) Key[T] {
	about := v.About
	about.Name, about.Meaning = name, meaning
	return Key[T]{
		About: about,
		read:  func(o Object, t *T) { v.Read(o, name, field(t)) },
		show: func(t *T, at Place) *Node {
			if v.Show == nil || !v.always && v.empty(*field(t)) {
				return nil
			}
			return v.Show(*field(t), at.Below(name))
		},
		secrets: func(t *T, at Place, l SecretList) {
			if v.Secrets != nil {
				v.Secrets(*field(t), at.Below(name), l)
			}
		},
		fill: func(t *T, first bool) {
			f := field(t)
			if v.fill != nil {
				v.fill(f, first)
			}
			if v.std != nil && v.begins == first && v.empty(*f) {
				*f = *v.std
			}
		},
		tidy: func(t *T) {
			if f := field(t); v.empty(*f) {
				var zero V
				*f = zero
			}
		},
		same: func(a, b *T) bool { return v.alike(*field(a), *field(b)) },
		clear: func(t *T) {
			var zero V
			*field(t) = zero
		},
	}
}

// With is a key that makes sense only beside one of some others.
func (k Key[T]) With(keys ...string) Key[T] {
	k.beside = keys
	return k.For("`" + strings.Join(keys, "`, `") + "`")
}

// For says in words what a key goes with, where that is checked elsewhere.
func (k Key[T]) For(words string) Key[T] {
	k.Goes = words
	return k
}

// Of is a key with keys of its own below it.
func (k Key[T]) Of(keys []About) Key[T] {
	k.Keys = keys
	return k
}

// Told is a key that is read elsewhere, and described here.
func Told[T any](name, kind, std string, schema Schema, meaning string) Key[T] {
	return Key[T]{About: About{Name: name, Type: kind, Default: std, Schema: schema, Meaning: meaning}}
}

// Names are the keys, in the order of the table.
func (t Table[T]) Names() []string {
	names := make([]string, len(t))
	for i, k := range t {
		names[i] = k.Name
	}
	return names
}

// About describes the keys, for the reference and the schema.
func (t Table[T]) About() []About {
	list := make([]About, len(t))
	for i, k := range t {
		list[i] = k.About
	}
	return list
}

// Read reads the keys that a map has, over what there is: all of them, or some.
func (t Table[T]) Read(o Object, to *T, only ...string) {
	for _, k := range t {
		if k.read != nil && (len(only) == 0 || slices.Contains(only, k.Name)) {
			k.read(o, to)
		}
	}
}

// Begin sets the defaults that must be there before the keys are read.
func (t Table[T]) Begin(to *T) { t.fill(to, true) }

// Fill sets the defaults of what is empty.
func (t Table[T]) Fill(to *T) { t.fill(to, false) }

func (t Table[T]) fill(to *T, first bool) {
	for _, k := range t {
		if k.fill != nil {
			k.fill(to, first)
		}
	}
}

// Tidy makes what is empty absent, so that two that mean the same are the same.
func (t Table[T]) Tidy(to *T) {
	for _, k := range t {
		if k.tidy != nil {
			k.tidy(to)
		}
	}
}

// show is the map as people may see it.
func (t Table[T]) show(of *T, at Place) *Node {
	n := MapNode()
	for _, k := range t {
		if k.show == nil {
			continue
		}
		if v := k.show(of, at); v != nil {
			n.Pairs = append(n.Pairs, Pair{Key: k.Name, Value: v})
		}
	}
	return n
}

// showAny is show for a value; nil where none of its keys is shown.
func (t Table[T]) showAny(v T, at Place) *Node {
	if n := t.show(&v, at); len(n.Pairs) > 0 {
		return n
	}
	return nil
}

// same reports whether two mean the same.
func (t Table[T]) same(a, b *T) bool { return len(t.changed(a, b)) == 0 }

// sameRest compares what no key of the table says, as two copies have it.
func (t Table[T]) sameRest(a, b T) bool {
	for _, k := range t {
		if k.clear != nil {
			k.clear(&a)
			k.clear(&b)
		}
	}
	return reflect.DeepEqual(a, b)
}

// changed are the keys that mean something else.
func (t Table[T]) changed(a, b *T) []string {
	var keys []string
	for _, k := range t {
		if k.same != nil && !k.same(a, b) {
			keys = append(keys, k.Name)
		}
	}
	return keys
}

// secrets adds what the map holds that must not be shown.
func (t Table[T]) secrets(of *T, at Place, l SecretList) {
	for _, k := range t {
		if k.secrets != nil {
			k.secrets(of, at, l)
		}
	}
}
