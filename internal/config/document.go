package config

import (
	"fmt"
	"strings"
)

// A Document is a file that is no config and is read with the means of one.
type Document struct {
	// YAML takes YAML as well as JSON.
	YAML bool
	// Keys are those that its map may have.
	Keys []string
	// Empty is what is wrong with a document that has no value at all; without it that is an
	// empty map.
	Empty string
	// Read is called with the map.
	Read func(Object)
	// Unknown says what is wrong with a key that a map has not, where there is more to say
	// than that; path is that of the map.
	Unknown func(path, key string) string
}

// Load is Parse of a file.
func (doc Document) Load(path string) (warnings []string, err error) {
	data, err := readBounded(path, maxJSONBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return doc.Parse(data, path)
}

// Parse reads a document from memory. What is unknown, stands twice or does not fit is an
// *Error with its place. There are no placeholders.
func (doc Document) Parse(data []byte, path string) (warnings []string, err error) {
	d := newDecoder(Options{Path: path})
	d.document = &doc
	if !doc.YAML && !looksLikeJSON(data) {
		d.fail(Pos{1, 1}, "want a JSON object with %s", strings.Join(doc.Keys, " and "))
		return nil, d.err()
	}
	ext := ""
	if doc.YAML {
		ext = path
	}
	t, err := readTree(data, ext)
	if err != nil {
		return nil, d.unreadable(err)
	}
	d.duplicates(t)
	if t.root.Shape == ShapeNull && doc.Empty != "" {
		d.fail(Pos{1, 1}, "%s", doc.Empty)
		return nil, d.err()
	}
	if o, ok := d.object(t.root, "", nil, doc.Keys); ok {
		doc.Read(o)
	}
	return d.boundedWarnings(), d.err()
}

// LinkChain follows a whole path as the kernel does: it returns the places of the links on
// the way, and last where the path leads. What does not exist is taken as it is written.
func LinkChain(path string) []string { return linkChain(path) }

// ProblemAt is an error of one thing at a place of a file.
func ProblemAt(path string, at Pos, format string, args ...any) error {
	return &Error{Problems: []Problem{{File: path, Line: at.Line, Column: at.Col, Message: fmt.Sprintf(format, args...)}}}
}
