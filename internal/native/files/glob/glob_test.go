package glob

import (
	"errors"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no string // paths, separated by spaces
	}{
		{"*", "a .a a.b", "a/b"},
		{"**", "a a/b .a/b/.c", ""},
		{"*.js", "a.js .js", "a/b.js a.jsx"},
		{"**/*.js", "a.js a/b.js a/.b/c.js", "a.ts"},
		{"a/**", "a/b a/b/c", "a b/a"},
		{"a/**/b", "a/b a/x/b a/x/y/b", "a/bb b"},
		{"**/a/**", "a/b x/a/b", "a x/a"},
		{"a/**/**/b", "a/b a/x/b", "a"},
		{"a//b", "a/b", "a"},
		{"a/../b", "b", "a/b a/../b"},
		{"/a", "", "a"},
		{"a/", "", "a"},
		{"./a", "", "a"},
		{"?", "a é 😀", "aa"},
		{"?b", "ab", "b abb"},
		{"*.*", "a.b .a", "ab"},
		{".*", ".a", "a a.b"},
		{"[ab]c", "ac bc", "cc c"},
		{"[!ab]c", "cc", "ac"},
		{"[^a-c]", "d", "a b c"},
		{"[a-]", "a -", "b"},
		{"[]a]", "] a", "b"},
		{"[[:digit:]]*", "1a", "a1"},
		{"[[:print:]]", "a", ""},
		{"[b-a]x", "", "ax bx [b-a]x"},
		{"[a", "[a", "a"},
		{"[*]", "*", "a"},
		{`\*`, "*", "a"},
		{`a\`, `a\`, "a"},
		{"{a,b}.c", "a.c b.c", "c.c {a,b}.c"},
		{"{a,b{c,d}}", "a bc bd", "b"},
		{"{1..3}", "1 2 3", "4"},
		{"{01..3}", "01 02 03", "1"},
		{"{5..1..2}", "5 3 1", "4"},
		{"{c..a}", "a b c", "d"},
		{"{a}", "{a}", "a"},
		{"a{,b}", "a ab", "b"},
		{"{{a,b}}", "{a} {b}", "a"},
		{"{a},b}", "a} b", "a"},
		{"{},a}b", "{},a}b", "ab"},
		{"${a,b}", "${a,b}", "$a"},
		{"+(a|b)", "a b abba", "c abc"},
		{"*(a|b)c", "c ac abc", "a"},
		{"?(a)b", "b ab", "aab"},
		{"@(a|b*)", "a b bc", "ab"},
		{"x!(a)", "x xb xaa", "xa"},
		{"x!(a)*", "x xb", "xa xab"},
		{"x!(a|b)c", "xc xcc xabc", "xac xbc"},
		{"x!()", "xa", "x"},
		{"x@(a", "x@(a", "xa"},
		{"@()", "@()", "a"},
		{"!a", "b a/b", "a"},
		{"!!a", "a", "b"},
		{"!(a)", "a b (b)", "(a)"},
		{"#a", "", "a #a"},
		{"", "", "a"},
		{"a\x00", "", "a"},
	}
	for _, tt := range tests {
		g, err := Compile(tt.pattern)
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		for _, p := range strings.Fields(tt.yes) {
			if hit, err := g.Match(p); !hit || err != nil {
				t.Errorf("%q does not match %q", tt.pattern, p)
			}
		}
		for _, p := range strings.Fields(tt.no) {
			if hit, err := g.Match(p); hit || err != nil {
				t.Errorf("%q matches %q", tt.pattern, p)
			}
		}
	}
}

func TestTooMuch(t *testing.T) {
	for pattern, want := range map[string]error{
		strings.Repeat("a", maxPattern+1):               errLong,
		strings.Repeat("{a,b}", 40):                     errMany,
		"{1..100000}":                                   errMany,
		"{-9223372036854775808..9223372036854775807}":   errMany,
		"{1..99999999999999999999}":                     errMany,
		strings.Repeat("{a,b}", 13) + "{1..9999..2000}": errMany,
	} {
		if _, err := Compile(pattern); !errors.Is(err, want) {
			t.Errorf("%.30q: err = %v, want %v", pattern, err, want)
		}
	}
}

// TestHardPatterns has those that take forever when one way is tried after the
// other; the test would time out.
func TestHardPatterns(t *testing.T) {
	name := strings.Repeat("a", 255)
	for _, pattern := range []string{
		strings.Repeat("*a", 100) + "b",
		strings.Repeat("+(a|aa)", 50) + "b",
		strings.Repeat("*(*(a)|+(a))", 50) + "b",
		"x!(a)!(b)" + strings.Repeat("!(a|b)", 60),
		strings.Repeat("**/a/", 200) + "b",
		strings.Repeat("{", 2000) + "a,b" + strings.Repeat("}", 2000),
		"{a}" + strings.Repeat("}", 2000) + ",z}",
		strings.Repeat("@(", 2000),
		"z" + strings.Repeat("!(a)", 1000),
		strings.Repeat("*(a", 1000) + strings.Repeat(")", 1000) + "b",
		strings.Repeat("+(a|b*(a|", 200) + strings.Repeat("))", 200) + "b",
	} {
		g, err := Compile(pattern)
		if err != nil {
			t.Errorf("%.30q: %v", pattern, err)
			continue
		}
		for _, p := range []string{name, strings.TrimSuffix(strings.Repeat("a/", 127), "/"), "x" + name} {
			if hit, err := g.Match(p); hit && err == nil {
				t.Errorf("%.30q matches %.30q", pattern, p)
			}
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("**/{a,b}*.[jt]s", "a/b.js")
	f.Add("!(a|+(b))c[[:alpha:]", "bc")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g, err := Compile(pattern)
		if err != nil || len(path) > 4096 {
			return
		}
		not, err := Compile("!" + pattern)
		if err != nil {
			return // one byte too long
		}
		// What a pattern does not match, its negation does.
		if pattern != "" && pattern[0] != '#' && strings.IndexByte(pattern, 0) < 0 {
			a, errA := g.Match(path)
			b, errB := not.Match(path)
			if errA == nil && errB == nil && a == b {
				t.Errorf("%q and its negation agree on %q", pattern, path)
			}
		}
	})
}
