package node

import (
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// A direction is whether Go values are read from JSON or written as JSON. A type may
// have a method for one of them only.
type direction int

const (
	reading direction = iota
	writing
)

// infer is the schema of t as encoding/json has it. The SDK's inference looks at how a
// type is built, also where the type reads or writes itself.
func infer(t reflect.Type, d direction, ignoreInvalid bool) (*jsonschema.Schema, error) {
	own := map[reflect.Type]*jsonschema.Schema{}
	d.collect(t, own, map[reflect.Type]bool{})
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: own, IgnoreInvalidTypes: ignoreInvalid})
	if err != nil {
		return nil, d.blame(t, own, err)
	}
	d.correct(t, s)
	return s, nil
}

// blame says which field of a struct the inference does not take.
func (d direction) blame(t reflect.Type, own map[reflect.Type]*jsonschema.Schema, err error) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return err
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		if _, err := jsonschema.ForType(f.Type, &jsonschema.ForOptions{TypeSchemas: own}); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return err
}

var (
	// inferred are types that the SDK knows.
	inferred = []reflect.Type{
		reflect.TypeFor[time.Time](), reflect.TypeFor[slog.Level](), reflect.TypeFor[big.Rat](), reflect.TypeFor[big.Float](),
	}
	numberType = reflect.TypeFor[json.Number]()
	bigIntType = reflect.TypeFor[big.Int]()
)

// collect adds to own the schemas of the types in t that are not written as they are
// built.
func (d direction) collect(t reflect.Type, own map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if seen[t] || slices.Contains(inferred, t) {
		return
	}
	seen[t] = true
	if s := d.schema(t); s != nil {
		own[t] = s
		return
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		d.collect(t.Elem(), own, seen)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && !f.Anonymous {
				d.collect(f.Type, own, seen)
			}
		}
	}
}

// schema is the schema of a type with JSON of its own, or nil. Any value may come from
// MarshalJSON, and text from MarshalText.
func (d direction) schema(t reflect.Type) *jsonschema.Schema {
	asJSON, asText := reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()
	if d == writing {
		asJSON, asText = reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()
	}
	addressed := reflect.PointerTo(t)
	switch {
	case t.Kind() == reflect.Interface:
		return nil
	case t == numberType:
		return &jsonschema.Schema{Type: "number"}
	case t == bigIntType:
		return &jsonschema.Schema{Type: "integer"}
	case addressed.Implements(asJSON):
		return &jsonschema.Schema{}
	case d == reading && addressed.Implements(asText), t.Implements(asText):
		return &jsonschema.Schema{Type: "string"}
	case addressed.Implements(asText):
		return &jsonschema.Schema{} // text behind a pointer only
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && d.schema(t.Elem()) == nil:
		return &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: "base64"}
	}
	return nil
}

// correct mends what the inference can't be told: a pointer to a type with any JSON,
// which it takes for null, and fields with the option "string".
func (d direction) correct(t reflect.Type, s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null"}) {
		s.Types = nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Map && d == writing && s.Type == "object" {
		s.Type, s.Types = "", []string{"null", "object"} // as the inference has it for slices
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		d.correct(t.Elem(), s.Items)
	case reflect.Map:
		d.correct(t.Elem(), s.AdditionalProperties)
	case reflect.Struct:
		for f, p := range properties(t, s) {
			d.correct(f.Type, p)
			if d.quoted(f) {
				p.Minimum, p.Maximum = nil, nil
				if p.Type != "" {
					p.Type = "string"
				} else {
					p.Types = []string{"null", "string"}
				}
			}
		}
	}
}

// properties are the fields of a struct with the schemas that they have in s.
func properties(t reflect.Type, s *jsonschema.Schema) iter.Seq2[reflect.StructField, *jsonschema.Schema] {
	return func(yield func(reflect.StructField, *jsonschema.Schema) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if f.Anonymous || !f.IsExported() || f.Tag.Get("json") == "-" {
				continue
			}
			if p := s.Properties[nameOf(f)]; p != nil && !yield(f, p) {
				return
			}
		}
	}
}

// nameOf is the name of a field in JSON.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		name = f.Name
	}
	return name
}

// quoted reports whether a field's value is a string that has the value in it, by the
// option of its tag.
func (d direction) quoted(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !slices.Contains(strings.Split(options, ","), "string") || t != numberType && d.schema(t) != nil {
		return false
	}
	switch k := t.Kind(); k {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64:
		return true
	default:
		return k >= reflect.Int && k <= reflect.Uintptr
	}
}
