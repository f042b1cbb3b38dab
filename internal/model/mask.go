package model

import (
	"strings"
	"unicode"
)

const (
	maxQuote = 300 // runes of an endpoint's message that are repeated
	keyStart = 8   // bytes of a key that tell it
)

// masked makes one short line of a text from outside, without the key or a part of it
// that begins like it.
func masked(text, key string) string {
	if len(key) >= keyStart {
		start := key[:keyStart]
		for at := strings.Index(text, start); at >= 0; at = strings.Index(text, start) {
			rest := strings.IndexFunc(text[at:], func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'`,;()<>", r) })
			if rest < 0 {
				rest = len(text) - at
			}
			text = text[:at] + "****" + text[at+rest:]
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if runes := []rune(text); len(runes) > maxQuote {
		text = string(runes[:maxQuote]) + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
