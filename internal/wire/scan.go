package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that a hostile message can't exhaust the stack.
const maxDepth = 500

var errTruncated = errors.New("unexpected end of JSON")

// A Span is a part of a byte slice: [Start, End). The zero Span is absent.
type Span struct{ Start, End int }

// Ok reports whether the span is there.
func (s Span) Ok() bool { return s.End > s.Start }

// Of returns the span's bytes in b, nil when it is absent.
func (s Span) Of(b []byte) []byte {
	if !s.Ok() {
		return nil
	}
	return b[s.Start:s.End]
}

func syntaxError(b []byte, i int, want string) error {
	if i >= len(b) {
		return errTruncated
	}
	return fmt.Errorf("invalid JSON at byte %d: found %q, want %s", i, b[i], want)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// skipValue returns the index after the value that starts at i, checking its
// syntax on the way: what passes here means the same to every JSON parser.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return 0, errTruncated
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipObject(b, i, depth+1)
	case c == '[':
		return skipArray(b, i, depth+1)
	case c == '-' || c >= '0' && c <= '9':
		return skipNumber(b, i)
	case c == 't':
		return skipLiteral(b, i, "true")
	case c == 'f':
		return skipLiteral(b, i, "false")
	case c == 'n':
		return skipLiteral(b, i, "null")
	}
	return 0, syntaxError(b, i, "a value")
}

func skipLiteral(b []byte, i int, lit string) (int, error) {
	if len(b)-i < len(lit) || string(b[i:i+len(lit)]) != lit {
		return 0, syntaxError(b, i, lit)
	}
	return i + len(lit), nil
}

func skipNumber(b []byte, i int) (int, error) {
	digits := func() bool {
		start := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case !digits():
		return 0, syntaxError(b, i, "a digit")
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return 0, syntaxError(b, i, "a digit")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0, syntaxError(b, i, "a digit")
		}
	}
	return i, nil
}

func skipString(b []byte, i int) (int, error) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c < 0x20:
			return 0, syntaxError(b, i, "no control character in a string")
		case c == '\\':
			i++
			if i >= len(b) {
				return 0, errTruncated
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for k := 1; k <= 4; k++ {
					if i+k >= len(b) {
						return 0, errTruncated
					}
					if !isHex(b[i+k]) {
						return 0, syntaxError(b, i+k, "a hexadecimal digit")
					}
				}
				i += 4
			default:
				return 0, syntaxError(b, i, "an escape")
			}
		}
	}
	return 0, errTruncated
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipArray(b []byte, i, depth int) (int, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("JSON is nested deeper than %d", maxDepth)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = skipValue(b, i, depth); err != nil {
			return 0, err
		}
		i = skipSpace(b, i)
		switch {
		case i >= len(b):
			return 0, errTruncated
		case b[i] == ']':
			return i + 1, nil
		case b[i] != ',':
			return 0, syntaxError(b, i, "a comma or ]")
		}
		i = skipSpace(b, i+1)
	}
}

func skipObject(b []byte, i, depth int) (int, error) {
	m := members{b: b, i: i, depth: depth}
	for m.next() {
	}
	return m.i, m.err
}

// members walks the members of an object. It allocates nothing.
//
//	m := members{b: b, i: start}
//	for m.next() { use m.key and m.val }
//	if m.err != nil { ... }   // m.i is behind the object otherwise
type members struct {
	b     []byte
	i     int // at '{' before the first next
	depth int
	// strict makes a key that differs from a wanted one only in case an error.
	strict bool

	key     Span // without the quotes
	val     Span
	err     error
	started bool
}

func (m *members) fail(err error) bool { m.err = err; return false }

func (m *members) next() bool {
	b, i := m.b, m.i
	if !m.started {
		m.started = true
		if m.depth > maxDepth {
			return m.fail(fmt.Errorf("JSON is nested deeper than %d", maxDepth))
		}
		if i >= len(b) || b[i] != '{' {
			return m.fail(syntaxError(b, i, "an object"))
		}
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == '}' {
			m.i = i + 1
			return false
		}
	} else {
		i = skipSpace(b, i)
		switch {
		case i >= len(b):
			return m.fail(errTruncated)
		case b[i] == '}':
			m.i = i + 1
			return false
		case b[i] != ',':
			return m.fail(syntaxError(b, i, "a comma or }"))
		}
		i = skipSpace(b, i+1)
	}
	if i >= len(b) || b[i] != '"' {
		return m.fail(syntaxError(b, i, "a key"))
	}
	end, err := skipString(b, i)
	if err != nil {
		return m.fail(err)
	}
	m.key = Span{i + 1, end - 1}
	i = skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		return m.fail(syntaxError(b, i, "a colon"))
	}
	i = skipSpace(b, i+1)
	if end, err = skipValue(b, i, m.depth); err != nil {
		return m.fail(err)
	}
	m.val = Span{i, end}
	m.i = end
	return true
}

// is reports whether the current key is name, however it is escaped.
func (m *members) is(name string) bool {
	k := m.b[m.key.Start:m.key.End]
	if string(k) == name {
		return true
	}
	plain := true
	for _, c := range k {
		if c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		if m.strict && len(k) == len(name) && strings.EqualFold(string(k), name) {
			m.err = caseError(string(k), name)
		}
		return false
	}
	s, ok := Unquote(m.b[m.key.Start-1 : m.key.End+1])
	if ok && m.strict && s != name && strings.EqualFold(s, name) {
		m.err = caseError(s, name)
	}
	return ok && s == name
}

func caseError(key, name string) error {
	return fmt.Errorf("key %q is %q to some servers and not to others", key, name)
}

// set stores the current value in s, and fails when the key came before: two
// parsers may disagree on which of two equal keys counts.
func (m *members) set(s *Span, name string) bool {
	if s.Ok() {
		m.err = fmt.Errorf("key %q stands twice", name)
		return false
	}
	*s = m.val
	return true
}

// Unquote decodes a JSON string, quotes included.
func Unquote(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return "", false
	}
	in := b[1 : len(b)-1]
	plain := true
	for _, c := range in {
		if c == '\\' || c == '"' || c < 0x20 || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		return string(in), true
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return "", false
	}
	return s, true
}

// Quote encodes s as a JSON string, leaving <, > and & as they are.
func Quote(s string) []byte { return AppendQuote(nil, s) }

// AppendQuote appends s to dst as a JSON string.
func AppendQuote(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), `\ufffd`...)
				i++
				start = i
				continue
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
