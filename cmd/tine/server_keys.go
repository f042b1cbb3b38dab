package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// What the value of a key is.
type keyKind int

const (
	keyGuess  keyKind = iota // what it looks like: the gateway may know more keys than this program
	keyText                  // also times, such as 10s
	keyNumber                // whole or not: the gateway knows
	keyList
	keySecret // never on a command line
)

// serverKey is one key below servers.ID that may be changed at run time.
type serverKey struct {
	name string
	kind keyKind
	help string
}

// serverKeys lists them, for completion and to tell a text that looks like a
// number from a number. The gateway alone decides what may be set. Those that
// end in a dot have names of the user's own below them.
func serverKeys() []serverKey {
	return []serverKey{
		{"timeout", keyText, "of one call, like 30s"},
		{"connect_timeout", keyText, "of start and handshake"},
		{"journal", keyText, strings.Join([]string{config.JournalFull, config.JournalMeta, config.JournalOff}, ", ")},
		{"policy.max_timeout", keyText, "of a call with progress"},
		{"policy.retry.attempts", keyNumber, "in all; 1 for none"},
		{"policy.retry.pause", keyText, "before the second attempt"},
		{"policy.retry.max_pause", keyText, "between attempts"},
		{"policy.breaker.failures", keyNumber, "in a row that open it; 0 for no breaker"},
		{"policy.breaker.open", keyText, "before it lets a probe through"},
		{"policy.breaker.probes", keyNumber, "that close it"},
		{"policy.rate.calls", keyNumber, "a second; 0 for no bound"},
		{"policy.rate.burst", keyNumber, "at once"},
		{"policy.concurrency.calls", keyNumber, "at once; 0 for no bound"},
		{"policy.concurrency.queue", keyNumber, "that may wait"},
		{"policy.concurrency.wait", keyText, "at most"},
		{"policy.cache.lists", keyText, "how long; 0s for none"},
		{"policy.cache.results", keyText, "of read-only tools, how long; 0s for none"},
		{"policy.cache.tools", keyList, "whose results are kept"},
		{"auth.type", keyText, config.AuthClientCredentials + ", " + config.AuthLogin},
		{"auth.token_url", keyText, ""},
		{"auth.auth_url", keyText, ""},
		{"auth.client_id", keyText, ""},
		{"auth.client_secret", keySecret, ""},
		{"auth.scopes", keyList, ""},
		{"auth.audience", keyText, ""},
		{"auth.resource", keyText, ""},
		{"auth.redirect", keyText, ""},
		{"tools.allow", keyList, "globs of tools that are seen"},
		{"tools.deny", keyList, "globs of tools that are not"},
		{"tools.rename.", keyText, "TOOL=NAME"},
		{"tools.describe.", keyText, "TOOL=TEXT"},
		{"headers.", keySecret, ""},
	}
}

// findKey finds a key. Its path is its names one by one; what a user's own name
// begins is one name to its end, dots and all.
func findKey(name string) (key serverKey, path []string) {
	for _, k := range serverKeys() {
		switch {
		case k.name == name:
			return k, strings.Split(name, ".")
		case strings.HasSuffix(k.name, ".") && len(name) > len(k.name) && strings.HasPrefix(name, k.name):
			above := strings.Split(strings.TrimSuffix(k.name, "."), ".")
			return k, append(above, name[len(k.name):])
		}
	}
	return serverKey{name: name}, strings.Split(name, ".")
}

// value makes JSON of a text. A key that this program does not know gets what
// the text looks like.
func (k serverKey) value(text string) (json.RawMessage, error) {
	switch k.kind {
	case keyText:
		return quote(text), nil
	case keyNumber:
		if !isNumber(text) {
			return nil, fmt.Errorf("it wants a number, got %q", text)
		}
		return json.RawMessage(text), nil
	case keyList:
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
