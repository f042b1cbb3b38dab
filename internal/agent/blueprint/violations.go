package blueprint

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tine-mcp/tine/internal/config"
)

// mostViolations bounds what one error lists.
const mostViolations = 20

// violations finds what of a value does not fit a schema, each with its place. The library
// judges; it tells its first reason, and no place in the value. The keywords that people
// use are looked at here, and where none of them is the reason, the library's is given.
func violations(s *jsonschema.Schema, v any, judged error) []Violation {
	f := finder{root: s}
	f.look(s, v, "", "")
	if len(f.found) == 0 {
		text := judged.Error()
		if i := strings.LastIndex(text, "validating "); i >= 0 {
			text = text[i:]
		}
		return []Violation{{Message: config.Clip(text)}}
	}
	return f.found
}

type finder struct {
	root  *jsonschema.Schema
	found []Violation
}

func (f *finder) add(path, schema, keyword, format string, args ...any) {
	if len(f.found) < mostViolations {
		f.found = append(f.found, Violation{path, fmt.Sprintf(format, args...), schema + "/" + keyword})
	}
}

func escaped(token string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(token) }

func (f *finder) look(s *jsonschema.Schema, v any, path, at string) {
	if s == nil || len(f.found) >= mostViolations {
		return
	}
	if s.Ref != "" { // no circle: compile has refused those
		if target := f.target(s.Ref); target != nil {
			f.look(target, v, path, strings.TrimPrefix(s.Ref, "#"))
		}
		return
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if got := typeOf(v); len(types) > 0 && !slices.Contains(types, got) && !(got == "integer" && slices.Contains(types, "number")) {
		f.add(path, at, "type", "want %s, got %s", config.OrList(types), got)
		return
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return alike(e, v) }) {
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i] = textual(e)
		}
		f.add(path, at, "enum", "want %s", config.Clip(config.OrList(words)))
	}
	if s.Const != nil && !alike(*s.Const, v) {
		f.add(path, at, "const", "want %s", config.Clip(textual(*s.Const)))
	}
	switch v := v.(type) {
	case string:
		f.text(s, v, path, at)
	case int64:
		f.number(s, float64(v), path, at)
	case float64:
		f.number(s, v, path, at)
	case []any:
		f.list(s, v, path, at)
	case map[string]any:
		f.object(s, v, path, at)
	}
	for i, part := range s.AllOf {
		f.look(part, v, path, at+"/allOf/"+strconv.Itoa(i))
	}
}

func (f *finder) text(s *jsonschema.Schema, v, path, at string) {
	n := utf8.RuneCountInString(v)
	switch {
	case s.MinLength != nil && n < *s.MinLength:
		f.add(path, at, "minLength", "has %s, and at least %d are wanted", characters(n), *s.MinLength)
	case s.MaxLength != nil && n > *s.MaxLength:
		f.add(path, at, "maxLength", "has %s, and at most %d are allowed", characters(n), *s.MaxLength)
	}
	if s.Pattern != "" {
		if re, err := regexp.Compile(s.Pattern); err == nil && !re.MatchString(v) {
			f.add(path, at, "pattern", "does not match %s", config.Clip(s.Pattern))
		}
	}
}

func characters(n int) string {
	if n == 1 {
		return "1 character"
	}
	return fmt.Sprintf("%d characters", n)
}

func (f *finder) number(s *jsonschema.Schema, v float64, path, at string) {
	switch {
	case s.Minimum != nil && v < *s.Minimum:
		f.add(path, at, "minimum", "is less than %v", *s.Minimum)
	case s.ExclusiveMinimum != nil && v <= *s.ExclusiveMinimum:
		f.add(path, at, "exclusiveMinimum", "is not more than %v", *s.ExclusiveMinimum)
	case s.Maximum != nil && v > *s.Maximum:
		f.add(path, at, "maximum", "is more than %v", *s.Maximum)
	case s.ExclusiveMaximum != nil && v >= *s.ExclusiveMaximum:
		f.add(path, at, "exclusiveMaximum", "is not less than %v", *s.ExclusiveMaximum)
	}
}

func (f *finder) list(s *jsonschema.Schema, v []any, path, at string) {
	switch {
	case s.MinItems != nil && len(v) < *s.MinItems:
		f.add(path, at, "minItems", "has %d entries, and at least %d are wanted", len(v), *s.MinItems)
	case s.MaxItems != nil && len(v) > *s.MaxItems:
		f.add(path, at, "maxItems", "has %d entries, and at most %d are allowed", len(v), *s.MaxItems)
	}
	for i, item := range v {
		if i >= len(s.PrefixItems) {
			f.look(s.Items, item, path+"/"+strconv.Itoa(i), at+"/items")
		}
	}
}

func (f *finder) object(s *jsonschema.Schema, v map[string]any, path, at string) {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			f.add(path+"/"+escaped(name), at, "required", "is missing")
		}
	}
	known := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		below := path + "/" + escaped(name)
		if p, ok := s.Properties[name]; ok {
			f.look(p, v[name], below, at+"/properties/"+escaped(name))
			continue
		}
		if len(s.PatternProperties) > 0 || s.AdditionalProperties == nil {
			continue
		}
		if s.AdditionalProperties.Not == nil {
			f.look(s.AdditionalProperties, v[name], below, at+"/additionalProperties")
			continue
		}
		hint := "; there are no parameters"
		if len(known) > 0 {
			hint = "; there are " + config.Clip(strings.Join(known, ", "))
		}
		if g := config.Nearest(name, known); g != "" {
			hint = fmt.Sprintf("; did you mean %q?", g)
		}
		f.add(below, at, "additionalProperties", "is not known%s", hint)
	}
}

// target is the part of the schema that a $ref names.
func (f *finder) target(ref string) *jsonschema.Schema {
	b, err := json.Marshal(f.root)
	if err != nil {
		return nil
	}
	var root any
	if json.Unmarshal(b, &root) != nil {
		return nil
	}
	part, err := pointer(root, ref)
	if err != nil {
		return nil
	}
	if b, err = json.Marshal(part); err != nil {
		return nil
	}
	var s jsonschema.Schema
	if json.Unmarshal(b, &s) != nil {
		return nil
	}
	return &s
}

// typeOf is the type of a value as a schema names it.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case int64:
		return "integer"
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func alike(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return textual(a) == textual(b) && typeOf(a) == typeOf(b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	}
	return 0, false
}
