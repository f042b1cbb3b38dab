package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Decode decodes the structured content, or the text if there is none, into v.
// Numbers keep all their digits if v does. A *string takes text as it is, and JSON
// where there is no text.
//
// Structured content is always an object. Servers in Python return a list, a number
// or an optional object as the only property of one, "result": v takes that property,
// unless v is a map, an interface, or a struct with such a field.
//
// A result that has nothing in it leaves v empty if v is a string, a struct without
// fields, or can be nil; into anything else it is an error.
func (r *Result) Decode(v any) error {
	var parts struct {
		Structured json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(r.Raw, &parts); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	text, isText := v.(*string)
	has := len(parts.Structured) > 0 && string(parts.Structured) != "null"
	if has {
		err := structured(parts.Structured, v)
		if err == nil || !isText {
			return wrapDecode("structured content", err)
		}
	}
	d, err := r.decode()
	if err != nil {
		return err
	}
	lines := texts(d)
	joined := strings.Join(lines, "\n")
	switch {
	case isText && has && len(lines) == 0:
		*text = string(parts.Structured)
		return nil
	case isText && (len(lines) > 0 || len(d.Content) == 0):
		*text = joined
		return nil
	case isText:
		return errors.New("result: no text")
	case len(d.Content) == 0 && mayBeEmpty(v):
		reflect.ValueOf(v).Elem().SetZero()
		return nil
	case joined == "":
		return errors.New("result: neither structured content nor text")
	}
	return wrapDecode("text", decodeSome([]byte(joined), v))
}

// decodeSome is decode, where null is nothing: encoding/json leaves most values as they are
// for it.
func decodeSome(data []byte, v any) error {
	if string(bytes.TrimSpace(data)) != "null" {
		return decode(data, v)
	}
	if _, isText := v.(*string); !isText && !mayBeEmpty(v) {
		return fmt.Errorf("null can't be a %v", reflect.TypeOf(v).Elem())
	}
	reflect.ValueOf(v).Elem().SetZero()
	return nil
}

// structured decodes data, or the value that a server in Python has wrapped in it.
func structured(data json.RawMessage, v any) error {
	wrapped, ok := lone(data)
	t := target(v)
	if !ok || t == nil || t.Kind() == reflect.Map || t.Kind() == reflect.Interface || t.Kind() == reflect.Struct && takesResult(t) {
		return decode(data, v)
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) && decode(data, v) == nil {
		return nil
	}
	return decodeSome(wrapped, v)
}

// lone is the property "result" of an object that has no other.
func lone(data json.RawMessage) (json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	if t, err := d.Token(); err != nil || t != "result" {
		return nil, false
	}
	if d.Decode(&value) != nil || d.More() {
		return nil, false
	}
	return value, true
}

// target is the type that v points to in the end.
func target(v any) reflect.Type {
	t := reflect.TypeOf(v)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// takesResult reports whether an object with the property "result" may be meant for
// the struct itself.
func takesResult(t reflect.Type) bool {
	if t.NumField() == 0 {
		return true
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() && strings.EqualFold(nameOf(f), "result") {
			return true
		}
	}
	return false
}

// mayBeEmpty reports whether v can say that there is no value.
func mayBeEmpty(v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(v).IsNil() {
		return false
	}
	t = t.Elem()
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		return true
	case reflect.Struct:
		return t.NumField() == 0
	}
	return false
}

func wrapDecode(what string, err error) error {
	if err != nil {
		return fmt.Errorf("result: %s: %w", what, err)
	}
	return nil
}
