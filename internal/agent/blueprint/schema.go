package blueprint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tine-mcp/tine/internal/config"
)

// mostChecks bounds how many schemas one value is held against at worst. Parts that refer
// to each other multiply, so that a small schema can cost without end.
const mostChecks = 5000

// promptOnly is the schema of a run without one.
var promptOnly = json.RawMessage(`{"type":"object","properties":{"prompt":{"type":"string","minLength":1,"description":"What the agent should do"}},"required":["prompt"],"additionalProperties":false}`)

// ParametersSchema is the JSON Schema of the parameters of a run.
func (b Blueprint) ParametersSchema() json.RawMessage {
	if b.Parameters == nil {
		return promptOnly
	}
	return b.Parameters
}

// compile checks a schema and makes it ready.
func compile(schema json.RawMessage) (s *jsonschema.Resolved, err error) {
	if len(schema) > mostSchema {
		return nil, fmt.Errorf("the schema is larger than %d KiB", mostSchema>>10)
	}
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	w := walker{root: root, costs: map[string]int{}}
	if _, err := w.cost(root, "#", nil); err != nil {
		return nil, err
	}
	defer func() { // the bytes come from outside, and the library is not ours
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("not a JSON Schema: %v", p)
		}
	}()
	var parsed jsonschema.Schema
	if err := json.Unmarshal(schema, &parsed); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	s, err = parsed.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	return s, nil
}

// notObject says what is wrong with a schema of parameters that no run can fit.
func notObject(schema json.RawMessage) string {
	var s struct{ Type any }
	if schema == nil || json.Unmarshal(schema, &s) != nil || s.Type == nil || s.Type == "object" {
		return ""
	}
	if list, ok := s.Type.([]any); ok && slices.Contains(list, any("object")) {
		return ""
	}
	return "parameters are an object; write type: object, and each of them below properties"
}

// walker measures what a schema costs at worst.
type walker struct {
	root  any
	costs map[string]int // by the place of a part
}

// cost is how many schemas a value may be held against, with those that $ref names.
func (w *walker) cost(v any, at string, open []string) (int, error) {
	if c, ok := w.costs[at]; ok {
		return c, nil
	}
	for _, o := range open {
		if o == at {
			return 0, fmt.Errorf("$ref goes round in a circle at %s; a schema must not hold itself", at)
		}
	}
	open = append(open, at)
	total := 1
	add := func(v any, at string) error {
		c, err := w.cost(v, at, open)
		if total += c; err == nil && total > mostChecks {
			err = fmt.Errorf("the schema is too large at %s: with all that $ref names it has more than %d parts", at, mostChecks)
		}
		return err
	}
	switch v := v.(type) {
	case map[string]any:
		if err := w.keywords(v, at, open, add); err != nil {
			return 0, err
		}
	case []any:
		for i, sub := range v {
			if err := add(sub, at+"/"+strconv.Itoa(i)); err != nil {
				return 0, err
			}
		}
	}
	w.costs[at] = total
	return total, nil
}

// schemaMaps are the keywords whose maps have names of the user's own.
var schemaMaps = []string{"properties", "patternProperties", "dependentSchemas"}

// plainKeywords hold values, and no schemas.
var plainKeywords = []string{"enum", "const", "default", "examples", "required", "type"}

var jsonTypes = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

// keywords measures a schema by its keywords.
func (w *walker) keywords(v map[string]any, at string, open []string, add func(v any, at string) error) error {
	for _, key := range []string{"$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor"} {
		if _, ok := v[key]; ok {
			return fmt.Errorf("%s/%s is not supported; write $ref: \"#/$defs/NAME\"", at, key)
		}
	}
	types, _ := v["type"].([]any)
	if word, ok := v["type"].(string); ok {
		types = []any{word}
	}
	for _, word := range types {
		if word, ok := word.(string); !ok || !slices.Contains(jsonTypes, word) {
			hint := "want " + config.OrList(jsonTypes)
			if g := config.Nearest(word, jsonTypes); g != "" {
				hint = fmt.Sprintf("did you mean %q?", g)
			}
			return fmt.Errorf("not a JSON Schema: %s/type: there is no type %q; %s", at, config.Clip(word), hint)
		}
	}
	if ref, ok := v["$ref"].(string); ok {
		target, err := pointer(w.root, ref)
		if err != nil {
			return err
		}
		if err := add(target, ref); err != nil {
			return err
		}
	}
	for key, sub := range v {
		below := at + "/" + escaped(key)
		named, _ := sub.(map[string]any)
		switch {
		case slices.Contains(plainKeywords, key):
		case key == "$defs" || key == "definitions":
			for name, sub := range named { // they count where they are used
				if _, err := w.cost(sub, below+"/"+escaped(name), open); err != nil {
					return err
				}
			}
		case slices.Contains(schemaMaps, key):
			for name, sub := range named {
				if err := add(sub, below+"/"+escaped(name)); err != nil {
					return err
				}
			}
		default:
			if err := add(sub, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// pointer is the part of a schema that a $ref names.
func pointer(root any, ref string) (any, error) {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok || rest != "" && !strings.HasPrefix(rest, "/") {
		return nil, fmt.Errorf("$ref %q is not supported; write \"#/$defs/NAME\"", ref)
	}
	v := root
	for token := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		if rest == "" {
			break
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch in := v.(type) {
		case map[string]any:
			v, ok = in[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(in); ok {
				v = in[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, fmt.Errorf("$ref %q names nothing", ref)
		}
	}
	return v, nil
}

// checkParameters holds parameters against a schema if they are to be checked, and returns
// them with its defaults.
func checkParameters(schema json.RawMessage, params map[string]any, check bool) (out map[string]any, err error) {
	s, err := compile(schema)
	if err != nil {
		return nil, fmt.Errorf("the schema of parameters: %w", err)
	}
	b, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	if params == nil {
		b = []byte("{}")
	}
	// A copy that keeps the digits of numbers: what is given stays as it is.
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("the schema of parameters: %v", p)
		}
	}()
	if err := s.ApplyDefaults(&out); err != nil {
		return nil, fmt.Errorf("the schema of parameters: %w", err)
	}
	if !check {
		return out, nil
	}
	plain := counted(out)
	if err := s.Validate(plain); err != nil {
		return nil, &InvalidError{Code: CodeParameters, Message: "the parameters do not fit the agent", Violations: violations(s.Schema(), plain, err)}
	}
	return out, nil
}

// counted is a copy of a value with numbers that a schema's validator counts with.
func counted(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, e := range v {
			m[key] = counted(e)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = counted(e)
		}
		return list
	}
	return v
}
