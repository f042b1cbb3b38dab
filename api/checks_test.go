package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

func TestSnapshotNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "a": true, "9": true, "Base-1.2_x": true, strings.Repeat("n", 64): true, "snp": true, "a-snp_1": true,
		strings.Repeat("n", 65): false, "snp_a": false, "snp_": false, "-a": false, ".a": false, "_a": false, "a b": false, "a/b": false,
		"ä": false, "a\n": false, "a\x00": false, "\xff": false, "..": false,
	} {
		check(t, fmt.Sprintf("name %q", name), api.ValidSnapshotName(name), ok)
	}
}

func TestLabels(t *testing.T) {
	many := func(n int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[fmt.Sprint("k", i)] = ""
		}
		return m
	}
	for _, tt := range []struct {
		what   string
		labels map[string]string
		ok     bool
	}{
		{"none", nil, true},
		{"64", many(64), true},
		{"65", many(65), false},
		{"every letter", map[string]string{"aZ0._/-": "é 日本 \"<&>"}, true},
		{"a long key", map[string]string{strings.Repeat("k", 128): ""}, true},
		{"too long a key", map[string]string{strings.Repeat("k", 129): ""}, false},
		{"no key", map[string]string{"": "x"}, false},
		{"a key with a space", map[string]string{"a b": "x"}, false},
		{"a key of others", map[string]string{"ä": "x"}, false},
		{"a key with an equals sign", map[string]string{"a=b": "x"}, false},
		{"a long value", map[string]string{"k": strings.Repeat("v", 1024)}, true},
		{"too long a value", map[string]string{"k": strings.Repeat("v", 1025)}, false},
		{"a line feed", map[string]string{"k": "a\nb"}, false},
		{"an escape", map[string]string{"k": "\x1b[2J"}, false},
		{"a control character of Latin 1", map[string]string{"k": "\u0085"}, false},
		{"broken UTF-8", map[string]string{"k": "\xff"}, false},
	} {
		check(t, tt.what, api.ValidLabels(tt.labels), tt.ok)
	}
	// What is repeated is bounded.
	if err := api.ValidLabels(map[string]string{strings.Repeat("ä", 100_000): ""}); err == nil || len(err.Error()) > 400 {
		t.Errorf("a huge key: %v", err)
	}
}

func check(t *testing.T, what string, err error, ok bool) {
	t.Helper()
	var e *api.Error
	if (err == nil) != ok || err != nil && (!errors.As(err, &e) || e.Kind != api.KindInvalid || e.Retryable) {
		t.Errorf("%s: %v", what, err)
	}
}
