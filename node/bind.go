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
		ours := kinds(p.Type, p.Types)
		var prop struct {
			Type any `json:"type"`
		}
		if json.Unmarshal(want.Properties[name], &prop) != nil {
			continue
		}
		theirs := kindsOf(prop.Type)
		if len(ours) > 0 && len(theirs) > 0 && !slices.ContainsFunc(ours, func(k string) bool { return slices.Contains(theirs, k) }) {
			return fmt.Errorf("the tool requires %q as %s, which is %s in %v", name, strings.Join(theirs, " or "), strings.Join(ours, " or "), t)
		}
	}
	return nil
}

func kindsOf(t any) []string {
	switch t := t.(type) {
	case string:
		return kinds(t, nil)
	case []any:
		var all []string
		for _, x := range t {
			if s, ok := x.(string); ok {
				all = append(all, s)
			}
		}
		return kinds("", all)
	}
	return nil
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
