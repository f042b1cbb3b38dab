package memory

import (
	"encoding/json"
	"fmt"
	"strings"
)

// args reads the arguments of a call and notes all that is wrong with them, in
// the words that clients of the reference server see. Keys are exact, as they
// are in JavaScript and not in encoding/json, and ones that are not known are
// left out.
type args struct {
	problems []string
}

// maxProblems is how many problems a refusal lists: a list of a million numbers
// is wrong for one reason.
const maxProblems = 20

// err is nil when nothing was wrong.
func (a *args) err(tool string) error {
	if len(a.problems) == 0 {
		return nil
	}
	return refuse("MCP error -32602: Input validation error: Invalid arguments for tool %s: %s", tool, strings.Join(a.problems, "\n"))
}

func (a *args) expected(what string, raw json.RawMessage, path string) {
	if len(a.problems) >= maxProblems {
		return
	}
	at := ""
	if path != "" {
		at = " at " + path
	}
	a.problems = append(a.problems, fmt.Sprintf("Invalid input: expected %s, received %s%s", what, kind(raw), at))
}

// kind names the type of a JSON value as JavaScript does.
func kind(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "undefined"
	}
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

func (a *args) object(raw json.RawMessage, path string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if kind(raw) != "object" || json.Unmarshal(raw, &m) != nil {
		a.expected("object", raw, path)
		return nil
	}
	return m
}

func (a *args) string(raw json.RawMessage, path string) string {
	var s string
	if kind(raw) != "string" || json.Unmarshal(raw, &s) != nil {
		a.expected("string", raw, path)
	}
	return s
}

func each[T any](a *args, raw json.RawMessage, path string, read func(raw json.RawMessage, path string) T) []T {
	var items []json.RawMessage
	if kind(raw) != "array" || json.Unmarshal(raw, &items) != nil {
		a.expected("array", raw, path)
		return nil
	}
	out := make([]T, len(items))
	for i, item := range items {
		out[i] = read(item, fmt.Sprintf("%s[%d]", path, i))
	}
	return out
}

func (a *args) strings(raw json.RawMessage, path string) []string {
	return each(a, raw, path, a.string)
}

func at(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (a *args) entity(raw json.RawMessage, path string) *entity {
	m := a.object(raw, path)
	if m == nil {
		return nil
	}
	return &entity{
		Name:         a.string(m["name"], at(path, "name")),
		Type:         a.string(m["entityType"], at(path, "entityType")),
		Observations: a.strings(m["observations"], at(path, "observations")),
	}
}

func (a *args) relation(raw json.RawMessage, path string) relation {
	m := a.object(raw, path)
	if m == nil {
		return relation{}
	}
	return relation{
		From: a.string(m["from"], at(path, "from")),
		To:   a.string(m["to"], at(path, "to")),
		Type: a.string(m["relationType"], at(path, "relationType")),
	}
}

// observed reads observations of one entity, which two tools call differently.
func (a *args) observed(key string) func(json.RawMessage, string) observed {
	return func(raw json.RawMessage, path string) observed {
		m := a.object(raw, path)
		if m == nil {
			return observed{}
		}
		return observed{
			Name:         a.string(m["entityName"], at(path, "entityName")),
			Observations: a.strings(m[key], at(path, key)),
		}
	}
}
