package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// A member is one key and value of an object as encoding/json reads it.
type member struct {
	key string
	raw string
}

// members reads an object with encoding/json and keeps order and duplicates.
// It reports false for everything that is not one whole JSON object.
func members(b []byte) ([]member, bool) {
	if !json.Valid(b) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	tok, err := dec.Token()
	if err != nil || tok != json.Delim('{') {
		return nil, false
	}
	out := []member{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, false
		}
		out = append(out, member{key.(string), string(raw)})
	}
	return out, true
}

// lookup returns the raw value of a key and how often the key stands there.
func lookup(ms []member, key string) (raw string, times int) {
	for _, m := range ms {
		if m.key == key {
			raw = m.raw
			times++
		}
	}
	return raw, times
}

// at walks a path of keys with encoding/json; "" where there is nothing.
func at(b []byte, path ...string) string {
	for _, key := range path {
		ms, ok := members(b)
		if !ok {
			return ""
		}
		raw, times := lookup(ms, key)
		if times == 0 {
			return ""
		}
		b = []byte(raw)
	}
	return string(b)
}

func unquoted(t testing.TB, raw string) string {
	t.Helper()
	var s string
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		t.Fatalf("%q is not a JSON string: %v", raw, err)
	}
	return s
}

// deepest is how far objects and arrays in b are nested.
func deepest(b []byte) int {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	depth, most := 0, 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) || err != nil {
			return most
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			most = max(most, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}
