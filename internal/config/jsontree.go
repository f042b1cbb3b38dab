package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits of a JSON file. They are wider than YAML's because there is nothing in
// JSON that grows when it is read, and because programs keep other things of
// theirs beside their mcpServers.
const (
	maxJSONBytes = 16 << 20
	maxJSONNodes = 1 << 20
	maxDepth     = 64
)

// syntaxError is a file that can't be read at all.
type syntaxError struct {
	pos Pos
	msg string
}

func (e *syntaxError) Error() string { return e.msg }

// readJSON reads JSON, with comments and trailing commas as editors allow them.
func readJSON(data []byte) (*tree, error) {
	clean := plainJSON(data)
	r := &jsonReader{data: clean, dec: json.NewDecoder(bytes.NewReader(clean)), where: newLocator(clean), out: &tree{}}
	r.dec.UseNumber()
	root, err := r.value(0)
	if err != nil {
		return nil, err
	}
	end := r.next()
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, &syntaxError{r.at(end), "there is more after the end of the JSON value; remove it"}
	}
	r.out.root, r.out.json = root, true
	return r.out, nil
}

type jsonReader struct {
	data  []byte
	dec   *json.Decoder
	where *locator
	out   *tree
	nodes int
}

// next is where the token starts that the decoder will return next.
func (r *jsonReader) next() int {
	i := int(r.dec.InputOffset())
	for i < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[i]) >= 0 {
		i++
	}
	return i
}

func (r *jsonReader) at(offset int) Pos { return r.where.at(offset) }

func (r *jsonReader) token() (json.Token, Pos, error) {
	at := r.at(r.next())
	tok, err := r.dec.Token()
	if err == nil {
		return tok, at, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, at, &syntaxError{r.at(len(r.data)), "the JSON ends too early; a closing bracket, brace or quote is missing"}
	}
	// next skips separators; one that should not be there is the mistake itself.
	i := int(r.dec.InputOffset())
	for i < len(r.data) && strings.IndexByte(" \t\r\n", r.data[i]) >= 0 {
		i++
	}
	if i < len(r.data) && strings.HasPrefix(err.Error(), fmt.Sprintf("invalid character '%c'", r.data[i])) {
		at = r.at(i)
	}
	return nil, at, &syntaxError{at, "not valid JSON: " + err.Error()}
}

func (r *jsonReader) value(depth int) (n *Node, err error) {
	start := r.next()
	defer func() {
		if n != nil {
			n.start, n.end = start, int(r.dec.InputOffset())
		}
	}()
	tok, at, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.nodes++; r.nodes > maxJSONNodes {
		return nil, &syntaxError{at, fmt.Sprintf("more than %d values; split the file", maxJSONNodes)}
	}
	if depth > maxDepth {
		return nil, &syntaxError{at, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '[' {
			return r.list(at, depth)
		}
		return r.object(at, depth)
	case string:
		return &Node{Shape: ShapeString, Pos: at, Text: v}, nil
	case json.Number:
		k := ShapeInt
		if strings.ContainsAny(v.String(), ".eE") {
			k = ShapeFloat
		}
		return &Node{Shape: k, Pos: at, Text: v.String()}, nil
	case bool:
		n := BoolNode(v)
		n.Pos = at
		return n, nil
	default:
		return &Node{Shape: ShapeNull, Pos: at, Text: "null"}, nil
	}
}

func (r *jsonReader) list(at Pos, depth int) (*Node, error) {
	n := &Node{Shape: ShapeList, Pos: at}
	for r.dec.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.Items = append(n.Items, item)
	}
	_, _, err := r.token()
	return n, err
}

func (r *jsonReader) object(at Pos, depth int) (*Node, error) {
	m := r.out.newMap(at)
	for r.dec.More() {
		keyAt := r.next()
		key, keyPos, err := r.token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, &syntaxError{keyPos, "not valid JSON: a key must be a string in quotes"}
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		m.add(Pair{Key: name, KeyPos: keyPos, keyAt: keyAt, Value: value})
	}
	_, _, err := r.token()
	return m.n, err
}

// plainJSON replaces comments and trailing commas by spaces, so that every
// position stays what it was.
func plainJSON(data []byte) []byte {
	out := bytes.Clone(data)
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == '"':
			i = stringEnd(out, i)
		case bytes.HasPrefix(out[i:], []byte("//")):
			for ; i < len(out) && out[i] != '\n'; i++ {
				out[i] = ' '
			}
		case bytes.HasPrefix(out[i:], []byte("/*")):
			end := bytes.Index(out[i+2:], []byte("*/"))
			if end < 0 {
				return out // the decoder complains at the slash
			}
			for stop := i + 2 + end + 2; i < stop; i++ {
				if out[i] != '\n' {
					out[i] = ' '
				}
			}
			i--
		}
	}
	var before, comma = byte(0), -1
	for i := 0; i < len(out); i++ {
		switch c := out[i]; c {
		case ' ', '\t', '\r', '\n':
			continue
		case ',':
			// A comma that nothing stands before is a mistake, not a trailing one.
			if comma = -1; before != 0 && !strings.ContainsRune("[{,:", rune(before)) {
				comma = i
			}
		case ']', '}':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case '"':
			i = stringEnd(out, i)
			comma = -1
		default:
			comma = -1
		}
		if i < len(out) {
			before = out[i]
		}
	}
	return out
}

// stringEnd is the index of the quote that ends the string at i.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}

// locator turns offsets into places. It goes on from the last one asked for, as
// a file may be one line of many megabytes.
type locator struct {
	data   []byte
	offset int
	pos    Pos
}

func newLocator(data []byte) *locator { return &locator{data: data, pos: Pos{1, 1}} }

func (l *locator) at(offset int) Pos {
	offset = min(offset, len(l.data))
	if offset < l.offset {
		l.offset, l.pos = 0, Pos{1, 1}
	}
	part := l.data[l.offset:offset]
	if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
		l.pos.Line += bytes.Count(part, []byte{'\n'})
		l.pos.Col = 1
		part = part[i+1:]
	}
	l.pos.Col += utf8.RuneCount(part)
	l.offset = offset
	return l.pos
}
