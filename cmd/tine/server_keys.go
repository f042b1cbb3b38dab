package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// serverKey is one key below servers.ID that may be changed at run time. The gateway
// alone decides what may be set, and may know more keys than this program.
type serverKey struct {
	config.About
	unknown bool
}

// findKey finds a key. Its path is its names one by one; below a key with names of
// the user's own the rest is one name, dots and all.
func findKey(name string) (key serverKey, path []string) {
	for _, k := range config.Settable() {
		above, own := strings.CutPrefix(name, k.Name+".")
		switch {
		case k.Name == name:
			return serverKey{About: k}, strings.Split(name, ".")
		case own && above != "" && ownNames(k):
			return serverKey{About: k}, append(strings.Split(k.Name, "."), above)
		}
	}
	return serverKey{unknown: true}, strings.Split(name, ".")
}

// ownNames reports whether names of the user's own come below a key.
func ownNames(k config.About) bool { return k.Form == config.FormNames || k.Name == "headers" }

// value makes JSON of a text. For an unknown key the form of the text decides.
func (k serverKey) value(text string) (json.RawMessage, error) {
	switch {
	case k.unknown:
	case k.Form == config.FormText || k.Form == config.FormNames:
		return quote(text), nil
	case k.Form == config.FormNumber:
		if !isNumber(text) {
			return nil, fmt.Errorf("it wants a number, got %q", text)
		}
		return json.RawMessage(text), nil
	case k.Form == config.FormList:
		if list, ok := textList(text); ok {
			return list, nil
		}
		return jsonTexts(strings.Split(text, ",")), nil
	}
	if list, ok := textList(text); ok {
		return list, nil
	}
	if text == "true" || text == "false" || text == "null" || isNumber(text) {
		return json.RawMessage(text), nil
	}
	return quote(text), nil
}

// isNumber reports whether a text is a number as JSON writes it.
func isNumber(text string) bool {
	if !json.Valid([]byte(text)) {
		return false
	}
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// textList reads [a,b], with the items as they stand or as JSON.
func textList(text string) (json.RawMessage, bool) {
	inside, ok := strings.CutPrefix(text, "[")
	if !ok {
		return nil, false
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text), true
	}
	inside, ok = strings.CutSuffix(inside, "]")
	if !ok {
		return nil, false
	}
	return jsonTexts(strings.Split(inside, ",")), true
}

func jsonTexts(items []string) json.RawMessage {
	list := []byte{'['}
	for _, item := range items {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, quote(item)...)
	}
	return append(list, ']')
}

// tree is a JSON object that is built from paths of keys.
type tree struct {
	names []string // in the order in which they came
	below map[string]*tree
	leaf  json.RawMessage
}

// set puts a value at a path; false when something else stands there already.
func (t *tree) set(path []string, value json.RawMessage) bool {
	for _, name := range path {
		if t.leaf != nil {
			return false
		}
		if t.below == nil {
			t.below = make(map[string]*tree)
		}
		if t.below[name] == nil {
			t.below[name] = &tree{}
			t.names = append(t.names, name)
		}
		t = t.below[name]
	}
	if t.leaf != nil || t.below != nil {
		return false
	}
	t.leaf = slices.Clone(value)
	return true
}

func (t *tree) json() json.RawMessage {
	if t.leaf != nil {
		return t.leaf
	}
	members := make([]member, 0, len(t.names))
	for _, name := range t.names {
		members = append(members, member{name, t.below[name].json()})
	}
	return joinObject(members)
}
