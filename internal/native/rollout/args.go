package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
)

// unwrap takes arguments out of {"args": {...}}, the form in which some clients
// send them. No tool has an argument of that name.
func unwrap(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), nil
	}
	var in map[string]json.RawMessage
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, invalid("the arguments must be an object")
	}
	inner, wrapped := in["args"]
	switch {
	case !wrapped:
		return raw, nil
	case len(in) > 1:
		return nil, invalid("the arguments are all in args, or none of them")
	case len(inner) > 0 && inner[0] == '{':
		return inner, nil
	case string(inner) == "null":
		return json.RawMessage("{}"), nil
	}
	return nil, invalid("args must be an object")
}

// read fills a tool's arguments in, strictly: a misspelt one is an error, and
// not something that is not done. One that is null is as if it were not there.
func read(raw json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field == "" {
		return invalid("must be an object, got %s", wrong.Value)
	}
	if wrong != nil {
		return invalid("%s must be %s, got %s", wrong.Field, kind(wrong.Type), wrong.Value)
	}
	return invalid("%s; the arguments are %s", strings.TrimPrefix(err.Error(), "json: "), strings.Join(names(reflect.TypeOf(into).Elem()), ", "))
}

// names are the arguments of a tool.
func names(t reflect.Type) []string {
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		if t.Elem().Kind() != reflect.String {
			return "a list"
		}
		return "a list of strings"
	}
	return "an object of strings"
}
