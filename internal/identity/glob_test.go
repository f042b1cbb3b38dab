package identity

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "a/b", true}, {"a?b", "a/b", true}, {"a[^x]b", "a/b", true}, {"a[/]b", "a/b", true},
		{"/platform/*", "/platform/admins/all", true}, {"/platform", "/platform/admins", false},
		{"a", "a", true}, {"a", "A", false}, {"", "", true}, {"", "a", false},
		{`\*`, "*", true}, {`\*`, "a", false}, {"é?", "éü", true}, {"[", "[", false}, {`a\`, `a\`, false},
	} {
		g, _ := newGlob(tt.pattern)
		if got := g.match(tt.name); got != tt.want {
			t.Errorf("%q and %q: %v", tt.pattern, tt.name, got)
		}
		if got := Match(tt.pattern, tt.name); got != tt.want {
			t.Errorf("Match(%q, %q) is %v", tt.pattern, tt.name, got)
		}
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("github__*", "github__", "x")
	f.Add("*__read_?", "fs__", "read_x")
	f.Add(`[^a-c]*\[**`, "x__", "[y")
	f.Add("a/*", "a/", "b/c")
	f.Fuzz(func(t *testing.T, pattern, prefix, rest string) {
		for _, s := range []string{pattern, prefix, rest} {
			if len(s) > 200 || !utf8.ValidString(s) || strings.Contains(s, slash) {
				t.Skip()
			}
		}
		g, valid := newGlob(pattern)
		if strings.Join(g.tokens, "") != g.pattern {
			t.Errorf("%q has pieces %q", pattern, g.tokens)
		}
		matches := g.match(prefix + rest)
		if Match(pattern, prefix+rest) != matches {
			t.Errorf("Match(%q, %q) is %v, the glob says %v", pattern, prefix+rest, !matches, matches)
		}
		if !strings.Contains(pattern+prefix+rest, "/") {
			if want, err := path.Match(pattern, prefix+rest); (err == nil) != valid || want != matches {
				t.Errorf("%q and %q: %v, path.Match says %v %v", pattern, prefix+rest, matches, want, err)
			}
		}
		if rest == "" {
			return
		}
		some, all := g.after(prefix)
		if matches && !some || all && !matches || all && !some {
			t.Errorf("%q after %q: some %v, all %v, but %q: %v", pattern, prefix, some, all, rest, matches)
		}
	})
}
