package patch

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func TestUnified(t *testing.T) {
	const header = "Index: f\n===================================================================\n--- f\toriginal\n+++ f\tmodified\n"
	tests := []struct{ name, old, new, want string }{
		{"same", "a\n", "a\n", ""},
		{"change", "a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"from nothing", "", "a\nb", "@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"},
		{"to nothing", "a\n", "", "@@ -1,1 +0,0 @@\n-a\n"},
		{"newline at the end", "a", "a\n", "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"insert", "1\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\nx\n6\n", "@@ -2,5 +2,6 @@\n 2\n 3\n 4\n 5\n+x\n 6\n"},
	}
	for _, tt := range tests {
		if got := Unified("f", tt.old, tt.new); got != header+tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, header+tt.want)
		}
	}
}

var hunkHead = regexp.MustCompile(`^@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n$`)

// patched applies a diff to old, in a way that has nothing in common with how it
// was made.
func patched(t *testing.T, old, diff string) string {
	t.Helper()
	src, out, at := lines(old), "", 0
	rows := lines(diff)[4:]
	for i, row := range rows {
		if m := hunkHead.FindStringSubmatch(row); m != nil {
			var start, n int
			fmt.Sscan(m[1], &start)
			fmt.Sscan(m[2], &n)
			if n > 0 {
				start--
			}
			out += strings.Join(src[at:start], "")
			at = start
			continue
		}
		if row[0] == '\\' {
			continue
		}
		body := row[1:]
		if i+1 < len(rows) && strings.HasPrefix(rows[i+1], `\ No newline`) {
			body = strings.TrimSuffix(body, "\n")
		}
		if row[0] != '+' {
			if src[at] != body {
				t.Fatalf("line %d is %q, the diff says %q", at+1, src[at], body)
			}
			at++
		}
		if row[0] != '-' {
			out += body
		}
	}
	return out + strings.Join(src[at:], "")
}

func TestDiffLeadsFromOneToTheOther(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func(most, letters int) string {
		var b strings.Builder
		for range rnd.IntN(most) {
			fmt.Fprintf(&b, "%c\n", 'a'+rnd.IntN(letters))
		}
		return strings.TrimSuffix(b.String(), []string{"", "\n"}[rnd.IntN(2)])
	}
	for range 3000 {
		old, new := text(40, 4), text(40, 4)
		if got := patched(t, old, Unified("f", old, new)); got != new {
			t.Fatalf("%q to %q gives %q", old, new, got)
		}
	}
	// More changes than are searched for one by one.
	old, new := "same\n"+text(3, 2)+"\n", "same\n"
	for i := range 2 * maxEdits {
		old += fmt.Sprintf("old %d\n", i)
		new += fmt.Sprintf("new %d\n", i)
	}
	old, new = old+"end", new+"end"
	if got := patched(t, old, Unified("f", old, new)); got != new {
		t.Error("the diff of two large texts does not lead from one to the other")
	}
}
