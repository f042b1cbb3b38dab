package wire

import (
	"bytes"
	"slices"
)

// statelessMeta are the keys of _meta that only the stateless era knows.
var statelessMeta = []string{MetaVersion, MetaClientInfo, MetaClientCaps, MetaLogLevel, MetaSubscription, MetaServerInfo}

var metaPrefix = []byte("io.modelcontextprotocol")

// ForLegacy is a result or params without the keys of _meta that only the stateless
// era knows, and without _meta where there is nothing else in it.
func ForLegacy(raw []byte) []byte {
	if !bytes.Contains(raw, metaPrefix) {
		return raw
	}
	at, err := Find(raw, "_meta")
	if err != nil || !at.Ok() {
		return raw
	}
	meta, left, err := without(at.Of(raw), statelessMeta...)
	switch {
	case err != nil || meta == nil:
		return raw
	case left > 0:
		return AppendSpliced(nil, raw, []Edit{{At: at, With: meta}})
	}
	if out, _, err := without(raw, "_meta"); err == nil && out != nil {
		return out
	}
	return raw
}

// without is an object without some of its members, and how many it has then; nil
// where it has none of those.
func without(raw []byte, keys ...string) (out []byte, left int, err error) {
	found := false
	out = append(out, '{')
	err = Members(raw, func(key string, at Span) error {
		if slices.Contains(keys, key) {
			found = true
			return nil
		}
		if left++; left > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendQuote(out, key), ':'), at.Of(raw)...)
		return nil
	})
	if err != nil || !found {
		return nil, left, err
	}
	return append(out, '}'), left, nil
}
