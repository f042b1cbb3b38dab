package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What names and labels may be. All code that takes them in checks them, from a
// request or from a file.
const (
	MaxLabels        = 64 // of one session or snapshot
	maxLabelKey      = 128
	maxLabelValue    = 1024
	maxSnapshotName  = 64
	snapshotIDPrefix = "snp_" // begins no name
)

// ValidLabels says what is wrong with labels, as an *Error of KindInvalid.
func ValidLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return wrong("labels: there are %d and may be %d", len(labels), MaxLabels)
	}
	for k, v := range labels {
		switch {
		case k == "" || len(k) > maxLabelKey || strings.ContainsFunc(k, func(c rune) bool { return !plain(c) && c != '/' }):
			return wrong("labels: key %q must be 1 to %d letters, digits, dots, dashes, underscores and slashes", clip(k), maxLabelKey)
		case len(v) > maxLabelValue:
			return wrong("labels: the value of %q has %d bytes and may have %d", k, len(v), maxLabelValue)
		case !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl):
			return wrong("labels: the value of %q has control characters in it", k)
		}
	}
	return nil
}

// ValidSnapshotName says what is wrong with the name of a snapshot, as an *Error
// of KindInvalid; empty is none.
func ValidSnapshotName(name string) error {
	if name == "" {
		return nil
	}
	if len(name) > maxSnapshotName || strings.ContainsFunc(name, func(c rune) bool { return !plain(c) }) ||
		strings.ContainsRune("._-", rune(name[0])) || strings.HasPrefix(name, snapshotIDPrefix) {
		return wrong("name must be 1 to %d letters, digits, dots, dashes and underscores, begin with a letter or digit, and not with %s like an id", maxSnapshotName, snapshotIDPrefix)
	}
	return nil
}

func plain(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		return true
	}
	return false
}

func wrong(format string, args ...any) error {
	return &Error{Kind: KindInvalid, Message: fmt.Sprintf(format, args...)}
}

// clip bounds a quoted text of the caller.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
