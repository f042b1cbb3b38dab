package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// claims is the payload of a verified token, with numbers as they were written. It
// is nil for a static token.
type claims map[string]any

func parseClaims(payload []byte) (claims, error) {
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber()
	var c claims
	if err := dec.Decode(&c); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("the payload is not an object")
	}
	return c, nil
}

// find looks for a claim by its name. A dot goes into an object, but names with
// dots of their own, such as https://example.com/groups, are found too.
func (c claims) find(name string) any {
	if v, ok := c[name]; ok {
		return v
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if inner, ok := c[name[:i]].(map[string]any); ok {
			if v := claims(inner).find(name[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// texts is what a claim holds, as text: one value, or those of a list.
func (c claims) texts(name string) []string {
	var all []string
	add := func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case json.Number:
			all = append(all, v.String())
		case bool:
			all = append(all, strconv.FormatBool(v))
		}
	}
	switch v := c.find(name).(type) {
	case []any:
		for _, one := range v {
			add(one)
		}
	default:
		add(v)
	}
	return all
}

// scopes are those of scope, a text with spaces, and of scp, which some issuers
// write as a list.
func (c claims) scopes() []string {
	var all []string
	for _, name := range []string{"scope", "scp"} {
		for _, text := range c.texts(name) {
			all = append(all, strings.Fields(text)...)
		}
	}
	return all
}

const maxName = 256

// name is the claim that names the principal, where it can: it goes into logs,
// listings and the names of sessions.
func (c claims) name(claim string) (string, bool) {
	s, ok := c.find(claim).(string)
	if !ok || s == "" || len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "", false
	}
	return s, true
}
