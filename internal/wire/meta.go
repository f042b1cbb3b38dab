package wire

import (
	"bytes"
	"slices"
	"strings"
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

// OwnMeta is the _meta of a request's params without the keys that the protocol or the
// gateway reads or adds; nil where nothing else is in it.
func OwnMeta(params []byte) []byte {
	at, err := Find(params, "_meta")
	if err != nil || !at.Ok() {
		return nil
	}
	meta := at.Of(params)
	out, left := []byte{'{'}, 0
	err = Members(meta, func(key string, val Span) error {
		if ReservedMeta(key) {
			return nil
		}
		if left++; left > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendQuote(out, key), ':'), val.Of(meta)...)
		return nil
	})
	if err != nil || left == 0 {
		return nil
	}
	return append(out, '}')
}

// ReservedMeta reports whether a key of _meta is one of the protocol's that the gateway
// reads, or one of its own.
func ReservedMeta(key string) bool {
	switch key {
	case MetaProgressToken, MetaTraceparent, MetaTracestate:
		return true
	}
	return strings.HasPrefix(key, tinePrefix) || slices.Contains(statelessMeta, key)
}

const tinePrefix = "tine/"

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
