package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxArgument bounds a file or standard input that is read for a call.
const maxArgument = 64 << 20

// pair is one key=value of a command line, split but not yet interpreted.
type pair struct {
	key   string
	value string
	raw   bool // key:=JSON
	file  bool // key=@file: value is the file's name
}

// parsePair splits key=value, key:=JSON, key=@file or key:=@file. The first = ends
// the key, so values may hold any.
func parsePair(arg string) (pair, error) {
	if !utf8.ValidString(arg) {
		return pair{}, usagef("argument %q is not UTF-8 text; put it into a file in some encoding that the tool knows", arg)
	}
	key, value, ok := strings.Cut(arg, "=")
	if !ok {
		return pair{}, usagef("argument %q is not key=value; strings are key=value, other JSON is key:=JSON, a file's content is key=@file", arg)
	}
	p := pair{key: key, value: value}
	if k, ok := strings.CutSuffix(key, ":"); ok {
		p.key, p.raw = k, true
	}
	if p.key == "" {
		return pair{}, usagef("argument %q has no key before the =", arg)
	}
	if name, ok := strings.CutPrefix(value, "@"); ok {
		if name == "" {
			return pair{}, usagef(`argument %q names no file after the @; a string that starts with @ is written %s:='"@..."'`, arg, p.key)
		}
		p.value, p.file = name, true
	}
	return p, nil
}

// member is one key of a JSON object with its value's bytes.
type member struct {
	key   string
	value json.RawMessage
}

// splitObject splits a JSON object without decoding its values, so that numbers and
// the order of keys survive.
func splitObject(raw []byte) ([]member, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not UTF-8 text")
	}
	if err := validJSON(raw); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	var members []member
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: t.(string)} // keys of valid JSON are strings
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

// joinObject is the inverse of splitObject.
func joinObject(members []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(m.key))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// quote makes a JSON string of text that is UTF-8.
func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// validJSON says where text stops being one JSON value.
func validJSON(raw []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(raw, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("it is not JSON: %w at byte %d", err, syntax.Offset)
	}
	return err
}

// arguments builds the arguments of a call from --args and pairs. Pairs come on
// top: they replace keys that --args has, or follow them.
func arguments(base []byte, pairs []pair, schema toolSchema, open func(name string) ([]byte, error)) (json.RawMessage, error) {
	members := []member{}
	if len(base) > 0 {
		var err error
		if members, err = splitObject(base); err != nil {
			return nil, usagef("--args: %w", err)
		}
		if len(pairs) == 0 {
			return base, nil
		}
	}
	given := map[string]bool{}
	for _, p := range pairs {
		if given[p.key] {
			return nil, usagef("argument %q is given twice; a list is written %s:='[...]'", p.key, p.key)
		}
		given[p.key] = true
		value, err := p.resolve(schema, open)
		if err != nil {
			return nil, err
		}
		found := false
		for i := range members {
			if members[i].key == p.key {
				members[i].value, found = value, true
			}
		}
		if !found {
			members = append(members, member{p.key, value})
		}
	}
	return joinObject(members), nil
}

// resolve makes the JSON value of a pair.
func (p pair) resolve(schema toolSchema, open func(string) ([]byte, error)) (json.RawMessage, error) {
	text := p.value
	if p.file {
		raw, err := open(p.value)
		if err != nil {
			return nil, usagef("argument %q: %w", p.key, err)
		}
		if !utf8.Valid(raw) {
			return nil, usagef("argument %q: %s is not UTF-8 text, and JSON holds no other; encode it as the tool wants it, base64 perhaps", p.key, p.value)
		}
		text = string(raw)
	}
	if p.raw {
		if err := validJSON([]byte(text)); err != nil {
			return nil, usagef("argument %q: %w; a string is written %s=TEXT", p.key, err, p.key)
		}
		return json.RawMessage(strings.TrimSpace(text)), nil
	}
	return schema.coerce(p.key, text)
}

// openArgument reads a file that a call's arguments name; - is standard input,
// which can be read once.
func (c *cli) openArgument() func(name string) ([]byte, error) {
	read := false
	return func(name string) ([]byte, error) {
		if name != "-" {
			return readFile(name, maxArgument)
		}
		if read {
			return nil, errors.New("standard input is named twice and can be read once")
		}
		read = true
		if c.stdin == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return readAll(c.stdin, "standard input", maxArgument)
	}
}

// coerce makes the JSON value of a text by the schema of the argument. The text of
// numbers is kept, so that big ones survive. If a string is allowed, the text is a
// string.
func (s toolSchema) coerce(key, text string) (json.RawMessage, error) {
	if remark, forbidden := s.undeclared(key); forbidden {
		return nil, usagef("%s", remark)
	}
	w := s.property(key)
	if v := matchEnum(w.enum, text); v != nil {
		return v, nil
	}
	trimmed := strings.TrimSpace(text)
	if w.closed {
		if slices.Contains(w.types, "null") && trimmed == "null" {
			return json.RawMessage(trimmed), nil
		}
		return nil, usagef("argument %q: %q is not one of %s", key, clip(text), enumText(w.enum))
	}
	if len(w.types) == 0 || slices.Contains(w.types, "string") {
		return quote(text), nil
	}
	for _, t := range w.types {
		if isType(t, trimmed) {
			return json.RawMessage(trimmed), nil
		}
	}
	return nil, usagef("argument %q wants %s, got %q; to send something else write %s:=JSON", key, typesText(w.types), clip(text), key)
}

// integerText matches texts that every reader takes for an integer: 1e3 is one to
// some and not to others.
var (
	integerText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

func isType(t, text string) bool {
	switch t {
	case "boolean":
		return text == "true" || text == "false"
	case "null":
		return text == "null"
	case "integer":
		return integerText.MatchString(text)
	case "number":
		return numberText.MatchString(text)
	case "array":
		return strings.HasPrefix(text, "[") && json.Valid([]byte(text))
	case "object":
		return strings.HasPrefix(text, "{") && json.Valid([]byte(text))
	}
	return false
}

// matchEnum finds the member of an enumeration that a text stands for. Strings
// come first: in ["1", 1] the text 1 is the string.
func matchEnum(enum []json.RawMessage, text string) json.RawMessage {
	for _, e := range enum {
		var s string
		if len(e) > 0 && e[0] == '"' && json.Unmarshal(e, &s) == nil && s == text {
			return e
		}
	}
	for _, e := range enum {
		if len(e) > 0 && e[0] != '"' && string(e) == strings.TrimSpace(text) {
			return e
		}
	}
	return nil
}

func enumText(enum []json.RawMessage) string {
	const most = 20
	var words []string
	for _, e := range enum[:min(most, len(enum))] {
		words = append(words, string(e))
	}
	if len(enum) > most {
		words = append(words, "...")
	}
	return strings.Join(words, ", ")
}

func typesText(types []string) string {
	var words []string
	for _, t := range types {
		switch t {
		case "array", "object":
			words = append(words, "a JSON "+t)
		case "integer":
			words = append(words, "an integer")
		case "boolean":
			words = append(words, "true or false")
		case "null":
			words = append(words, "null")
		default:
			words = append(words, "a "+t)
		}
	}
	return strings.Join(words, " or ")
}

// clip shortens a text that a message repeats.
func clip(s string) string { return cut(s, 60) }
