package config

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Value is what may stand behind a key.
type Value[V any] struct {
	About   About
	Read    func(o Object, key string, dst *V) bool
	Show    func(v V, at Place) *Node // nil where it is not shown
	Secrets func(v V, at Place, l SecretList)
	std     *V                     // what it is by default; nil where that depends, or is nothing
	same    func(a, b V) bool      // nil for equal ones, where empty and absent are alike
	fill    func(v *V, first bool) // the defaults of what it holds; nil where it holds none
	begins  bool                   // whether the default is there before the key is read
	always  bool                   // whether it is shown though it is empty
	written func(v V) string
}

// empty reports whether there is nothing: zero, or a list or map without an entry.
func (v Value[V]) empty(x V) bool {
	r := reflect.ValueOf(&x).Elem()
	switch r.Kind() {
	case reflect.Slice, reflect.Map:
		return r.Len() == 0
	}
	return r.IsZero()
}

// alike reports whether two mean the same.
func (v Value[V]) alike(a, b V) bool {
	if v.same != nil {
		return v.same(a, b)
	}
	return v.empty(a) && v.empty(b) || reflect.DeepEqual(a, b)
}

// Default is a value with a default that follows nothing else.
func (v Value[V]) Default(std V) Value[V] {
	v.std = &std
	v.About.Default = "`" + v.written(std) + "`"
	v.About.Schema = v.About.Schema.with("default", jsonDefault(std, v.written(std)))
	return v
}

// jsonDefault is a default as a schema has it.
func jsonDefault(v any, written string) any {
	switch v := v.(type) {
	case bool, int, int64, float64, []string:
		return v
	}
	return written
}

// Begin is Default for a value whose zero means something else: it is there before
// the key is read.
func (v Value[V]) Begin(std V) Value[V] {
	v = v.Default(std)
	v.begins = true
	return v
}

// Unless says in words what the default is, where it depends.
func (v Value[V]) Unless(words string) Value[V] {
	v.About.Default = words
	return v
}

// As says in words what may stand there.
func (v Value[V]) As(words string) Value[V] {
	v.About.Type = words
	return v
}

// Or takes something else as well, as far as the schema is concerned.
func (v Value[V]) Or(also Schema) Value[V] {
	v.About.Schema = Schema{"anyOf": []Schema{v.About.Schema, also}}
	return v
}

// In says in words what range it has.
func (v Value[V]) In(words string) Value[V] {
	v.About.Range = words
	return v
}

// Always has the value shown though it is empty.
func (v Value[V]) Always() Value[V] {
	v.always = true
	return v
}

// ShownIf has the value shown only where something holds.
func (v Value[V]) ShownIf(holds func(v V) bool) Value[V] {
	show := v.Show
	v.Show = func(v V, at Place) *Node {
		if !holds(v) {
			return nil
		}
		return show(v, at)
	}
	return v
}

// Inline has a map shown on one line.
func (v Value[V]) Inline() Value[V] {
	show := v.Show
	v.Show = func(v V, at Place) *Node {
		n := show(v, at)
		if n != nil {
			n.inline = true
		}
		return n
	}
	return v
}

// Open is a text that is no secret, wherever it came from.
func (v Value[V]) Open() Value[V] {
	show := v.Show
	v.Show = func(v V, at Place) *Node { return show(v, Place{}) }
	v.Secrets = nil
	return v
}

// Sparing has the value shown only where it is not empty.
func (v Value[V]) Sparing() Value[V] {
	v.always = false
	return v
}

// Then looks at a value that was read, and may complain or change it.
func (v Value[V]) Then(check func(o Object, key string, dst *V)) Value[V] {
	read := v.Read
	v.Read = func(o Object, key string, dst *V) bool {
		ok := read(o, key, dst)
		if ok {
			check(o, key, dst)
		}
		return ok
	}
	return v
}

// By reads the value in another way.
func (v Value[V]) By(read func(o Object, key string, dst *V) bool) Value[V] {
	v.Read = read
	return v
}

func text(v string) string { return v }

// hideText is what a single text may give away.
func hideText(v string, at Place, l SecretList) {
	if at.Hidden() {
		l.Add(v)
	}
	l.Text(v)
}

func showText(v string, at Place) *Node { return StringNode(at.Text(v)) }

// Text is a string.
func Text(example string) Value[string] {
	return Value[string]{
		About: About{Type: "string", Schema: Schema{"type": "string", "examples": []string{example}}},
		Read:  func(o Object, key string, dst *string) bool { return o.Text(key, dst, example) },
		Show:  showText, Secrets: hideText, written: text,
	}
}

// OneWord is a text without spaces that is no flag.
var OneWord = regexp.MustCompile(`^[^\s\x00-\x1f-][^\s\x00-\x1f]*$`)

// Word is a string without spaces that is no flag.
func Word(example string) Value[string] {
	return Text(example).Then(func(o Object, key string, dst *string) {
		if n := o.Get(key); !OneWord.MatchString(*dst) {
			o.Wrong(key, n, "%s is not one word; write it like %s", n.Shown(), example)
		}
	})
}

// InsidePath is a path in a container.
func InsidePath(example string) Value[string] {
	return Text(example).As("path in the container").Then(func(o Object, key string, dst *string) {
		if n := o.Get(key); !path.IsAbs(*dst) {
			o.Wrong(key, n, "%s is not a whole path in the container; write it like %s", n.Shown(), example)
			return
		}
		*dst = path.Clean(*dst)
	})
}

// URLPath is where below its address a server speaks MCP.
func URLPath() Value[string] {
	return Text("/mcp").As("path").Then(func(o Object, key string, dst *string) {
		if n := o.Get(key); *dst != "" && (!strings.HasPrefix(*dst, "/") || strings.ContainsAny(*dst, " \t?#")) {
			o.Wrong(key, n, "%s is not the path of a URL; write it like /mcp", n.Shown())
		}
	})
}

// FilePath is a path of this machine, which starts at the folder of the config.
func FilePath(example string) Value[string] {
	return Text(example).As("path").Then(func(o Object, _ string, dst *string) { *dst = o.Resolve(*dst) })
}

// OneOf is one of some words.
func OneOf(words ...string) Value[string] {
	return Value[string]{
		About:   About{Type: "`" + strings.Join(words, "`, `") + "`", Schema: Schema{"enum": words}.OrPlaceholder()},
		Read:    func(o Object, key string, dst *string) bool { return o.OneOf(key, dst, words...) },
		Show:    showText,
		Secrets: func(string, Place, SecretList) {}, // none of the words is
		written: text,
	}
}

// Bool is true or false.
func Bool() Value[bool] {
	return Value[bool]{
		About:   About{Type: "boolean", Form: FormBool, Schema: Schema{"type": "boolean"}.OrPlaceholder()},
		Read:    func(o Object, key string, dst *bool) bool { return o.Boolean(key, dst) },
		Show:    func(v bool, _ Place) *Node { return BoolNode(v) },
		always:  true,
		written: func(v bool) string { return fmt.Sprint(v) },
	}.Default(false)
}

// Int is a whole number.
func Int[V int | int64](least, most int) Value[V] {
	return Value[V]{
		About: About{
			Type: "number", Form: FormNumber, Range: fmt.Sprintf("%d to %d", least, most),
			Schema: Schema{"type": "integer", "minimum": least, "maximum": most}.OrPlaceholder(),
		},
		Read: func(o Object, key string, dst *V) bool {
			n := 0
			ok := o.Integer(key, &n, least, most)
			if ok {
				*dst = V(n)
			}
			return ok
		},
		Show:    func(v V, _ Place) *Node { return IntNode(int64(v)) },
		written: func(v V) string { return fmt.Sprint(v) },
	}
}

// Number is a number that may have a fraction.
func Number(least, most float64) Value[float64] {
	return Value[float64]{
		About: About{
			Type: "number", Form: FormNumber, Range: formatNumber(least) + " to " + formatNumber(most),
			Schema: Schema{"type": "number", "minimum": least, "maximum": most}.OrPlaceholder(),
		},
		Read:    func(o Object, key string, dst *float64) bool { return o.Number(key, dst, least, most) },
		Show:    func(v float64, _ Place) *Node { return NumberNode(v) },
		written: formatNumber,
	}
}

// Size is a number of bytes.
func Size[V int | int64](least, most int64) Value[V] {
	between := "`" + FormatSize(least) + "` to `" + FormatSize(most) + "`"
	if most == MaxBytes {
		between = "from `" + FormatSize(least) + "`"
	}
	return Value[V]{
		About: About{Type: "size", Range: between, Schema: sizeSchema},
		Read: func(o Object, key string, dst *V) bool {
			n := int64(0)
			ok := o.Size(key, &n, least, most)
			if ok {
				*dst = V(n)
			}
			return ok
		},
		Show:    func(v V, _ Place) *Node { return SizeNode(int64(v)) },
		written: func(v V) string { return FormatSize(int64(v)) },
	}
}

// Bound is a size that may be off.
func Bound() Value[int64] {
	v := Size[int64](1<<20, MaxBytes)
	v.About.Schema = Schema{"anyOf": []Schema{sizeSchema, {"const": noBound}}}
	v.Read = func(o Object, key string, dst *int64) bool { return o.bound(key, dst) }
	v.Show = func(v int64, _ Place) *Node { return boundNode(v) }
	return v.Always()
}

// Duration is a time with its unit.
func Duration(least, most time.Duration) Value[time.Duration] {
	between := "`" + Brief(least) + "` to `" + Brief(most) + "`"
	if least == 0 {
		between = "up to `" + Brief(most) + "`"
	}
	return Value[time.Duration]{
		About:   About{Type: "duration", Range: between, Schema: durationSchema},
		Read:    func(o Object, key string, dst *time.Duration) bool { return o.Duration(key, dst, least, most) },
		Show:    func(v time.Duration, _ Place) *Node { return DurationNode(v) },
		always:  true,
		written: Brief,
	}
}

// Texts is a list of strings.
func Texts(example string) Value[[]string] {
	return Value[[]string]{
		About: About{Type: "list", Form: FormList, Schema: textsSchema},
		Read:  func(o Object, key string, dst *[]string) bool { return o.Texts(key, dst, example) },
		Show:  func(v []string, at Place) *Node { return ShownList(v, at.rel, at.hidden) },
		Secrets: func(v []string, at Place, l SecretList) {
			for i, s := range v {
				if at.Below(itoa(i)).Hidden() {
					l.Add(s)
				}
				l.Text(s)
			}
		},
		written: func(v []string) string { return flow(ListNode(v...)) },
	}
}

// Words is a list of some words, each at most once.
func Words(words ...string) Value[[]string] {
	v := Texts("[" + strings.Join(words[:1], ", ") + "]").As("list of `" + strings.Join(words, "`, `") + "`")
	v.About.Schema = Schema{"type": "array", "items": Schema{"enum": words}.OrPlaceholder(), "uniqueItems": true}
	return v.Then(func(o Object, key string, _ *[]string) { o.words(key, words) })
}

// Patterns is a list of globs of some kind of name, or with one also the one that
// it holds.
func Patterns(example, what string, one bool) Value[[]string] {
	v := Texts(example).As("list of patterns of " + what)
	if one {
		v.About.Schema = v.About.Schema.orOne()
		v.Read = func(o Object, key string, dst *[]string) bool { return o.oneOrMore(key, dst, false, example) }
	}
	return v.Then(func(o Object, key string, _ *[]string) { o.patterns(key, what) })
}

// Line is a command line: a list, or a text with its words.
func Line(example string) Value[[]string] {
	v := Texts(example).As("list, or one line")
	v.About.Schema = v.About.Schema.orOne()
	read := v.Read
	v.Read = func(o Object, key string, dst *[]string) bool {
		o.split(key)
		return read(o, key, dst)
	}
	v.Show = func(v []string, at Place) *Node { return ListNode(ShownLine(v, at.rel, at.hidden)...) }
	v.Secrets = func(v []string, at Place, l SecretList) { l.args(v, ShownLine(v, at.rel, at.hidden)) }
	return v
}

// TextMap is a map of names to strings, of which a name may tell that its value is
// secret.
func TextMap(example string) Value[map[string]string] {
	return Value[map[string]string]{
		About: About{Type: "map", Form: FormNames, Schema: textMapSchema},
		Read:  func(o Object, key string, dst *map[string]string) bool { return o.TextMap(key, dst, example) },
		Show: func(v map[string]string, at Place) *Node {
			n := MapNode()
			for _, name := range slices.Sorted(maps.Keys(v)) {
				value := at.Below(name).Text(v[name])
				if v[name] != "" && secretName(name) {
					value = mask
				}
				n.Pairs = append(n.Pairs, Pair{Key: name, Value: StringNode(value)})
			}
			return n
		},
		Secrets: func(v map[string]string, at Place, l SecretList) {
			for name, s := range v {
				if at.Below(name).Hidden() {
					l.credential(s)
				}
				l.named(name, s)
			}
		},
		written: func(map[string]string) string { return "{}" },
	}
}

// Map is a map with keys of its own. Some words may stand in its place, which word
// takes.
func Map[V any](keys Table[V], word func(v *V, word string), words ...string) Value[V] {
	about := About{Type: "map", Keys: keys.About()}
	if len(words) > 0 {
		about.Type = "`" + strings.Join(words, "`, `") + "` or a map"
		about.Schema = Schema{"enum": words}
	}
	return Value[V]{
		About: about,
		Read: func(o Object, key string, dst *V) bool {
			c, given, ok := o.ChildOr(key, keys.Names(), words...)
			if given != "" {
				word(dst, given)
			}
			if ok {
				keys.Read(c, dst)
			}
			return ok
		},
		Show:    keys.showAny,
		Secrets: func(v V, at Place, l SecretList) { keys.secrets(&v, at, l) },
		same:    func(a, b V) bool { return keys.same(&a, &b) },
		fill:    keys.fill,
		always:  true,
	}
}

// List is a list of maps with the same keys, or of texts that stand for one.
func List[V any](keys Table[V], read func(o Object, key string, dst *[]V) bool, text string) Value[[]V] {
	about := About{Type: "list of `{" + strings.Join(keys.Names(), ", ") + "}`", Keys: keys.About(), List: true}
	if text != "" {
		about.Type += ", or of `" + text + "`"
		about.Schema = Schema{"type": "string"}
	}
	return Value[[]V]{
		About: about,
		Read:  read,
		Show: func(v []V, at Place) *Node {
			n := &Node{Shape: ShapeList}
			for i := range v {
				n.Items = append(n.Items, keys.show(&v[i], at.Below(itoa(i))))
			}
			return n
		},
		Secrets: func(v []V, at Place, l SecretList) {
			for i := range v {
				keys.secrets(&v[i], at.Below(itoa(i)), l)
			}
		},
		same: func(a, b []V) bool { return slices.EqualFunc(a, b, func(x, y V) bool { return keys.same(&x, &y) }) },
	}
}

// Maybe is a map that may not be there, which is something else than one without
// keys.
func Maybe[V any](keys Table[V], read func(o Object, key string, dst **V) bool) Value[*V] {
	return Value[*V]{
		About: About{Type: "map", Keys: keys.About()},
		Read:  read,
		Show:  func(v *V, at Place) *Node { return keys.show(v, at) },
		Secrets: func(v *V, at Place, l SecretList) {
			if v != nil {
				keys.secrets(v, at, l)
			}
		},
		same: func(a, b *V) bool { return a == nil && b == nil || a != nil && b != nil && keys.same(a, b) },
	}
}

// Set is a list whose order means nothing.
func Set(v Value[[]string]) Value[[]string] {
	v.same = sameSet
	return v
}

// Headers are headers of HTTP, whose values are never shown: credentials go here,
// under whatever name the server wants them.
func Headers() Value[map[string]string] {
	v := TextMap("").By(readHeaders)
	v.About.Form = FormSecret
	v.Show = func(v map[string]string, _ Place) *Node {
		n := MapNode()
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.Pairs = append(n.Pairs, Pair{Key: name, Value: StringNode(mask)})
		}
		return n
	}
	v.Secrets = func(v map[string]string, at Place, l SecretList) {
		for name, s := range v {
			if at.Below(name).Hidden() || !plainHeader.MatchString(name) {
				l.credential(s)
			}
		}
	}
	return v
}

// Secret is a text that is never shown.
func Secret(example string) Value[string] {
	v := Text(example)
	v.About.Form = FormSecret
	v.Show = func(string, Place) *Node { return StringNode(mask) }
	v.Secrets = func(v string, _ Place, l SecretList) { l.Add(v) }
	return v
}
