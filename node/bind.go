package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// bind says what keeps values of t from being the node's arguments, once for each
// type.
func (n *Node) bind(t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := n.bound.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	err := n.compare(t)
	n.bound.Store(t, err)
	return err
}

func (n *Node) compare(t reflect.Type) error {
	data, err := json.Marshal(n.tool.InputSchema)
	if err != nil {
		return err
	}
	var want struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(data, &want) != nil {
		return nil // no schema that says what is required
	}
	have, err := infer(t, writing, true)
	if err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	if have.Type != "object" {
		return nil // a struct that marshals itself
	}
	for _, name := range want.Required {
		p := have.Properties[name]
		if p == nil {
			return fmt.Errorf("the tool requires %q, which %v does not have", name, t)
		}
		ours, theirs := kinds(p.Type, p.Types), kindsOf(want.Properties[name], data, 0)
		if len(ours) > 0 && len(theirs) > 0 && !slices.ContainsFunc(ours, func(k string) bool { return slices.Contains(theirs, k) }) {
			return fmt.Errorf("the tool requires %q as %s, which is %s in %v", name, strings.Join(theirs, " or "), strings.Join(ours, " or "), t)
		}
	}
	return nil
}

// kindsOf are the kinds of values that a schema takes, as far as that is easy to say; nil
// otherwise. Root is the schema that references are into.
func kindsOf(schema, root json.RawMessage, depth int) []string {
	var s struct {
		Type         any
		Ref          string `json:"$ref"`
		Enum         []any
		Const        *json.RawMessage
		AnyOf, OneOf []json.RawMessage
	}
	const deepest = 10 // references may go in circles
	if json.Unmarshal(schema, &s) != nil || depth > deepest {
		return nil
	}
	var all []string
	switch t := s.Type.(type) {
	case string:
		return kinds(t, nil)
	case []any:
		for _, x := range t {
			if kind, ok := x.(string); ok {
				all = append(all, kind)
			}
		}
		return kinds("", all)
	}
	switch alternatives := append(s.AnyOf, s.OneOf...); {
	case s.Ref != "":
		if at, ok := pointed(root, s.Ref); ok {
			return kindsOf(at, root, depth+1)
		}
	case s.Const != nil:
		var v any
		if json.Unmarshal(*s.Const, &v) == nil {
			return kinds(kindOfValue(v), nil)
		}
	case len(s.Enum) > 0:
		for _, v := range s.Enum {
			all = append(all, kindOfValue(v))
		}
	case len(alternatives) > 0:
		for _, a := range alternatives {
			of := kindsOf(a, root, depth+1)
			var null struct{ Type string }
			if len(of) == 0 && (json.Unmarshal(a, &null) != nil || null.Type != "null") {
				return nil
			}
			all = append(all, of...)
		}
	}
	return kinds("", all)
}

// pointed is what a reference such as #/$defs/Item points to.
func pointed(root json.RawMessage, ref string) (at json.RawMessage, ok bool) {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, false
	}
	for part := range strings.SplitSeq(path, "/") {
		var fields map[string]json.RawMessage
		if json.Unmarshal(root, &fields) != nil {
			return nil, false
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if root, ok = fields[part]; !ok {
			return nil, false
		}
	}
	return root, true
}

func kindOfValue(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// kinds are the kinds of JSON values of a schema's types, without null: a value
// that may be null has a kind besides.
func kinds(one string, several []string) []string {
	all := slices.Clone(several)
	if one != "" {
		all = append(all, one)
	}
	for i, k := range all {
		if k == "integer" {
			all[i] = "number"
		}
	}
	all = slices.DeleteFunc(all, func(k string) bool { return k == "null" })
	slices.Sort(all)
	return slices.Compact(all)
}
