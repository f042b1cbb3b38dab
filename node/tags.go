package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// applyTags adds enums and defaults from the tags of t's fields to its schema, and
// reports whether there are defaults. The inference has refused types with cycles.
func applyTags(t reflect.Type, s *jsonschema.Schema) (defaults bool, _ error) {
	if s == nil {
		return false, nil
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
		return false, nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		p := s.Properties[name]
		if f.Anonymous || !f.IsExported() || name == "-" || p == nil {
			continue
		}
		if text, ok := f.Tag.Lookup("enum"); ok {
			if err := setEnum(f.Type, p, text); err != nil {
				return false, fmt.Errorf("field %s: enum: %w", f.Name, err)
			}
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			v, err := tagValue(f.Type, text)
			if err != nil {
				return false, fmt.Errorf("field %s: default: %w", f.Name, err)
			}
			if p.Default, err = json.Marshal(v); err != nil {
				return false, fmt.Errorf("field %s: default: %w", f.Name, err)
			}
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
			defaults = true
		}
		more, err := applyTags(f.Type, p)
		if err != nil {
			return false, err
		}
		defaults = defaults || more
	}
	return defaults, nil
}

func setEnum(t reflect.Type, p *jsonschema.Schema, text string) error {
	nullable := false
	for t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), true
	}
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		if p.Items == nil {
			return fmt.Errorf("%v has no elements", t)
		}
		return setEnum(t.Elem(), p.Items, text)
	}
	for part := range strings.SplitSeq(text, ",") {
		v, err := tagValue(t, strings.TrimSpace(part))
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

// tagValue is the JSON value that text is for a field of type t.
func tagValue(t reflect.Type, text string) (any, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.String {
		return text, nil
	}
	if err := json.Unmarshal([]byte(text), reflect.New(t).Interface()); err != nil {
		return nil, fmt.Errorf("%q is not a value of %v: %w", text, t, err)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
