package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// JSONFile is a JSON file of another program, in which one member is changed.
// Everything else in the text stays byte for byte as it was.
type JSONFile struct {
	path string
	mark []byte // a byte order mark, which stays
	tree *tree  // its root is nil if the file has nothing in it
	jsonEditor
}

// ParseJSONFile reads the text of a file. Comments and trailing commas are mistakes
// unless the program that the file belongs to reads them.
func ParseJSONFile(path string, data []byte, comments bool) (*JSONFile, error) {
	f := &JSONFile{path: path, tree: &tree{}}
	text, _ := bytes.CutPrefix(data, byteOrderMark)
	f.mark = data[:len(data)-len(text)]
	err := checkText(text)
	if err == nil && len(bytes.Trim(text, " \t\r\n")) > 0 {
		f.tree, err = readJSON(text)
	}
	if err == nil && !comments {
		err = checkPlain(text)
	}
	var wrong *syntaxError
	switch {
	case errors.As(err, &wrong):
		return nil, f.at(wrong.pos, "%s", wrong.msg)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case f.tree.root != nil && f.tree.root.Shape != ShapeMap:
		return nil, f.at(f.tree.root.Pos, "the file has %s where an object belongs", jsonShape(f.tree.root))
	}
	f.jsonEditor = newJSONEditor(text, f.tree.root)
	return f, nil
}

// checkPlain finds the first comment or trailing comma.
func checkPlain(text []byte) error {
	plain := plainJSON(text)
	for i := range plain {
		if plain[i] == text[i] {
			continue
		}
		what := "a comment"
		if text[i] == ',' {
			what = "a trailing comma"
		}
		return &syntaxError{newLocator(text).at(i), what + ", which the program that reads this file does not understand; remove it"}
	}
	return nil
}

func (f *JSONFile) at(pos Pos, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if pos.Line == 0 {
		return fmt.Errorf("%s: %s", f.path, message)
	}
	return fmt.Errorf("%s:%d:%d: %s", f.path, pos.Line, pos.Col, message)
}

func jsonShape(n *Node) string {
	switch n.Shape {
	case ShapeNull:
		return "null"
	case ShapeMap:
		return "an object"
	}
	return n.Shape.String()
}

// find walks down objects as far as they are there: the last one, and how many
// members of the path it took. At is the index of the member in it that is wanted, or
// -1.
func (f *JSONFile) find(path []string) (object *Node, at, depth int, err error) {
	object = f.tree.root
	for object != nil {
		at = slices.IndexFunc(object.Pairs, func(p Pair) bool { return p.Key == path[depth] })
		if at < 0 {
			break
		}
		p := object.Pairs[at]
		if i := slices.IndexFunc(f.tree.dups, func(d duplicate) bool { return d.pos == p.KeyPos }); i >= 0 {
			return nil, 0, 0, f.at(p.KeyPos, "%q stands here and in line %d; remove one of them", p.Key, f.tree.dups[i].firstLine)
		}
		if depth == len(path)-1 {
			return object, at, depth, nil
		}
		if p.Value.Shape != ShapeMap {
			return nil, 0, 0, f.at(p.Value.Pos, "%s is %s where an object belongs", quoted(path[:depth+1]), jsonShape(p.Value))
		}
		object, depth = p.Value, depth+1
	}
	return object, -1, depth, nil
}

// quoted names a member, the innermost key first.
func quoted(path []string) string {
	var words []string
	for _, key := range slices.Backward(path) {
		words = append(words, strconv.Quote(key))
	}
	return strings.Join(words, " in ")
}

// Get returns the member at a path of keys, and its text as plain JSON; nil if it is
// not there.
func (f *JSONFile) Get(path ...string) (*Node, []byte, error) {
	object, at, _, err := f.find(path)
	if err != nil || at < 0 {
		return nil, nil, err
	}
	n := object.Pairs[at].Value
	return n, plainJSON(f.data)[n.start:n.end], nil
}

// Set returns the text of the file with a member at a path of keys. Objects on the way
// that are not there are added.
func (f *JSONFile) Set(value *Node, path ...string) ([]byte, error) {
	object, at, depth, err := f.find(path)
	if err != nil {
		return nil, err
	}
	if at >= 0 {
		return f.check(f.replace(object, at, value), value, path)
	}
	added := value
	for _, key := range slices.Backward(path[depth+1:]) {
		added = MapNode(Pair{Key: key, Value: added})
	}
	if object == nil {
		text := f.jsonText(MapNode(Pair{Key: path[depth], Value: added}), "", f.unit) + f.nl
		return f.check([]byte(text), value, path)
	}
	return f.check(f.insert(object, path[depth], added), value, path)
}

// Remove returns the text of the file without the member at a path of keys.
func (f *JSONFile) Remove(path ...string) ([]byte, error) {
	object, at, _, err := f.find(path)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		return slices.Concat(f.mark, f.data), nil
	}
	return f.check(f.remove(object, at), nil, path)
}

// check returns the new text, if it means what was wanted and nothing else.
func (f *JSONFile) check(text []byte, value *Node, path []string) ([]byte, error) {
	after, err := readJSON(text)
	if err != nil || !sameValue(changed(f.tree.root, value, path), after.root) || len(after.dups) != len(f.tree.dups) {
		return nil, fmt.Errorf("%s can't be changed by a command, because of the way that comments stand in it; change %s by hand", f.path, quoted(path))
	}
	return slices.Concat(f.mark, text), nil
}

// changed is an object with another value at a path, or without one.
func changed(object, value *Node, path []string) *Node {
	out := &Node{Shape: ShapeMap}
	if object != nil {
		out.Pairs = slices.Clone(object.Pairs)
	}
	old := out.Get(path[0])
	switch {
	case len(path) > 1:
		out.Set(path[0], changed(old, value, path[1:]))
	case value == nil:
		out.Remove(path[0])
	default:
		out.Set(path[0], value)
	}
	return out
}

// sameValue reports whether two values are the same, with keys in the same order.
func sameValue(a, b *Node) bool {
	return a.Shape == b.Shape && (!a.Scalar() || a.Text == b.Text) &&
		slices.EqualFunc(a.Items, b.Items, sameValue) &&
		slices.EqualFunc(a.Pairs, b.Pairs, func(x, y Pair) bool { return x.Key == y.Key && sameValue(x.Value, y.Value) })
}
