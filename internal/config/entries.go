package config

import (
	"regexp"
	"slices"
	"strings"
)

// entries are a map of names to things of one kind, which the Config has as a list.
type entries[T any] struct {
	what    string // one of them, with its article
	example string // of such a map, with its key
	table   Table[T]
	name    func(*T) *string
	pattern *regexp.Regexp // of a name
	rule    string         // what a name is, for people
	most    int            // how many there may be; zero for any number
	// read reads one of them. Its name is there.
	read func(o Object, p Pair, to *T)
}

func (e entries[T]) value() Value[[]T] {
	return Value[[]T]{
		About: About{
			Type: "map", Default: "none",
			Schema: Schema{
				"type": []string{"object", "null"}, "propertyNames": Schema{"pattern": e.pattern.String()}, "additionalProperties": mapSchema(e.table.About()),
			},
		},
		Read: e.readAll,
		Show: func(v []T, at Place) *Node {
			n := MapNode()
			for i := range v {
				name := *e.name(&v[i])
				n.Pairs = append(n.Pairs, Pair{Key: name, Value: e.table.show(&v[i], at.Below(name))})
			}
			return n
		},
		Secrets: func(v []T, at Place, l SecretList) {
			for i := range v {
				e.table.secrets(&v[i], at.Below(*e.name(&v[i])), l)
			}
		},
		same: func(a, b []T) bool {
			return slices.EqualFunc(a, b, func(x, y T) bool { return *e.name(&x) == *e.name(&y) && e.table.same(&x, &y) })
		},
	}
}

func (e entries[T]) readAll(o Object, key string, to *[]T) bool {
	n, ok := o.Lookup(key)
	if !ok || n.Shape == ShapeNull {
		return false
	}
	if n.Shape != ShapeMap {
		o.Wrong(key, n, "want a map of a name to %s, got %s; write %s", e.what, n.Shown(), e.example)
		return false
	}
	if e.most > 0 {
		o.atMost(key, len(n.Pairs), e.most)
	}
	for _, p := range n.Pairs {
		path := join(o.Path, key)
		if !e.pattern.MatchString(p.Key) {
			_, kind, _ := strings.Cut(e.what, " ")
			o.d.fail(p.KeyPos, "%s: %s %q is not a name; %s", path, kind, Clip(p.Key), e.rule)
			continue
		}
		below, ok := o.d.object(p.Value, join(path, p.Key), o.hidden, e.table.Names())
		if !ok {
			continue
		}
		below.rel = join(join(o.rel, key), p.Key)
		var one T
		*e.name(&one) = p.Key
		e.read(below, p, &one)
		*to = append(*to, one)
	}
	return true
}
