package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check says what of the outputs, which are a JSON object, is not as the signature has
// it. It returns them in their order, with whole numbers as such where int is wanted.
func (s Signature) Check(outputs []byte) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(outputs))
	dec.UseNumber()
	var got map[string]any
	if dec.Decode(&got) != nil {
		return nil, errors.New("the outputs are no JSON object")
	}
	var wrong, parts []string
	for _, f := range s.Outputs {
		value, ok := got[f.Name]
		if !ok {
			wrong = append(wrong, f.Name+" is missing")
			continue
		}
		delete(got, f.Name)
		value, why := f.Type.fit(value)
		if why != "" {
			wrong = append(wrong, fmt.Sprintf("%s %s", f.Name, why))
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		parts = append(parts, fmt.Sprintf("%q:%s", f.Name, text))
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		wrong = append(wrong, name+" is not asked for")
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s; want %s", strings.Join(wrong, ", "), strings.SplitN(s.String(), " -> ", 2)[1])
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
}

// Input says why a value, which is JSON, is none for an input; nil where it is.
func (f Field) Input(value []byte) error {
	if f.Free {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var got any
	if err := dec.Decode(&got); err != nil {
		return err
	}
	if _, why := f.Type.fit(got); why != "" {
		return fmt.Errorf("%s %s", f.Name, why)
	}
	return nil
}

// Holds says why a variable of a type of Python is none for an input; nil where it is, and
// where nothing can be told from the name of its type.
func (f Field) Holds(python string) error {
	known := []string{"str", "bytes", "int", "float", "bool", "list", "dict", "NoneType"}
	fits := f.Free || f.Type.Name == "Any" || f.Type.None && python == "NoneType" || f.Type.Name == python || f.Type.Name == "float" && python == "int"
	if fits || !slices.Contains(known, python) {
		return nil
	}
	return fmt.Errorf("%s is a %s, not a %s", f.Name, python, f.Type)
}

// fit is a value as the type has it, or why it is none.
func (t Type) fit(value any) (any, string) {
	is := func(ok bool) (any, string) {
		if !ok {
			return nil, fmt.Sprintf("is a %s, not a %s", nameOf(value), t)
		}
		return value, ""
	}
	if value == nil && t.None {
		return nil, ""
	}
	switch t.Name {
	case "str":
		_, ok := value.(string)
		return is(ok)
	case "bool":
		_, ok := value.(bool)
		return is(ok)
	case "float":
		_, ok := value.(json.Number)
		return is(ok)
	case "int":
		n, ok := value.(json.Number)
		if !ok {
			return is(false)
		}
		if f, err := n.Float64(); err == nil && strings.ContainsAny(n.String(), ".eE") {
			if f != float64(int64(f)) {
				return is(false)
			}
			return int64(f), ""
		}
		return n, ""
	case "list":
		list, ok := value.([]any)
		if !ok {
			return is(false)
		}
		for i, e := range list {
			if len(t.Of) == 0 {
				break
			}
			fitted, why := t.Of[0].fit(e)
			if why != "" {
				return nil, fmt.Sprintf("has an element %d that %s", i, why)
			}
			list[i] = fitted
		}
		return list, ""
	case "dict":
		dict, ok := value.(map[string]any)
		if !ok {
			return is(false)
		}
		for key, e := range dict {
			if len(t.Of) == 0 {
				break
			}
			fitted, why := t.Of[1].fit(e)
			if why != "" {
				return nil, fmt.Sprintf("has a value at %q that %s", key, why)
			}
			dict[key] = fitted
		}
		return dict, ""
	}
	return value, ""
}

// nameOf is what Python calls a value of JSON.
func nameOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "None"
	case string:
		return "str"
	case bool:
		return "bool"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "float"
		}
		return "int"
	case []any:
		return "list"
	}
	return "dict"
}
