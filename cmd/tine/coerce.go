package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// coerce makes the JSON value that a text stands for, going by what the schema
// allows for the argument. The text of numbers is kept, so that big ones
// survive. Where a string is allowed, the text is a string.
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

// integerText is what is an integer however a number is read: 1e3 is one to
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

// clip shortens what a message repeats.
func clip(s string) string { return cut(s, 60) }
