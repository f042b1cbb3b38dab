package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// applyTags adds enums and defaults from the tags of t's fields to its schema. The
// inference has refused types with cycles.
func applyTags(t reflect.Type, s *jsonschema.Schema) error {
	if s == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return applyTags(t.Elem(), s)
	case reflect.Slice, reflect.Array:
		return applyTags(t.Elem(), s.Items)
	case reflect.Map:
		return applyTags(t.Elem(), s.AdditionalProperties)
	case reflect.Struct:
	default:
		return nil
	}
	for f, p := range properties(t, s) {
		if err := applyTags(f.Type, p); err != nil {
			return err
		}
		if text, ok := f.Tag.Lookup("enum"); ok {
			if err := setEnum(f.Type, p, text); err != nil {
				return fmt.Errorf("field %s: enum: %w", f.Name, err)
			}
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := setDefault(f.Type, p, text); err != nil {
				return fmt.Errorf("field %s: default: %w", f.Name, err)
			}
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == nameOf(f) })
		}
	}
	return nil
}

func setDefault(t reflect.Type, p *jsonschema.Schema, text string) error {
	v, err := tagValue(t, p, text)
	if err != nil {
		return err
	}
	valid, err := p.CloneSchemas().Resolve(nil)
	if err != nil {
		return err
	}
	if err := valid.Validate(natives(v)); err != nil {
		return err
	}
	p.Default, err = json.Marshal(v)
	return err
}

func setEnum(t reflect.Type, p *jsonschema.Schema, text string) error {
	nullable := false
	for t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), true
	}
	if p.Items != nil {
		return setEnum(t.Elem(), p.Items, text)
	}
	if k := t.Kind(); (k == reflect.Slice || k == reflect.Array) && !isText(p) {
		return fmt.Errorf("%v has no elements", t)
	}
	for part := range strings.SplitSeq(text, ",") {
		v, err := tagValue(t, p, strings.TrimSpace(part))
		if err != nil {
			return err
		}
		p.Enum = append(p.Enum, v)
	}
	if nullable {
		p.Enum = append(p.Enum, nil)
	}
	return nil
}

// isText reports whether the values of a schema are strings.
func isText(p *jsonschema.Schema) bool {
	return p.Type == "string" || slices.Contains(p.Types, "string")
}

// tagValue is the JSON value that text is for a field of type t with the schema p.
func tagValue(t reflect.Type, p *jsonschema.Schema, text string) (any, error) {
	data := []byte(text)
	if isText(p) {
		data, _ = json.Marshal(text)
	}
	into := reflect.New(t).Interface()
	if err := json.Unmarshal(data, into); err != nil && (!isText(p) || json.Unmarshal([]byte(text), into) != nil) {
		return nil, fmt.Errorf("%q is not a value of %v: %w", text, t, err)
	}
	v, err := exact(data)
	if n, ok := v.(json.Number); ok && err == nil {
		if _, float := native(n).(float64); float && !strings.ContainsAny(text, ".eE") {
			return nil, fmt.Errorf("%s has more than 64 bits", text)
		}
	}
	return v, err
}
