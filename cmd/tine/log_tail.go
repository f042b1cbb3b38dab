package main

import (
	"strings"
	"unicode/utf8"
)

// tail follows a log that can only be read as "the last so many bytes": it finds
// what is new between two reads.
type tail struct{ seen string }

// next takes the present end of the log and returns what was added since the last
// read. The gap is true if the two ends don't meet, so that something between them
// was missed.
func (t *tail) next(now string) (added string, gap bool) {
	// A half written character shows as U+FFFD and is another one at the next read:
	// leave it for then.
	now = strings.TrimRight(now, string(utf8.RuneError))
	before := t.seen
	t.seen = now
	if strings.HasPrefix(now, before) {
		return now[len(before):], false
	}
	// The window moved on, or the log began anew. What is cut at the front may
	// be cut inside a character, so compare from the first whole line.
	if _, lines, ok := strings.Cut(now, "\n"); ok {
		if n := overlap(before, lines); n > 0 {
			return lines[n:], false
		}
	}
	// A log that got shorter began anew, and nothing of it was missed.
	return now, len(now) >= len(before)
}

// overlap returns the length of the longest end of a that is a start of b, in
// time linear in both.
func overlap(a, b string) int {
	if len(a) > len(b) {
		a = a[len(a)-len(b):]
	}
	if b == "" {
		return 0
	}
	// fail[i] is the length of the longest proper border of b[:i+1].
	fail := make([]int, len(b))
	k := 0
	for i := 1; i < len(b); i++ {
		for k > 0 && b[i] != b[k] {
			k = fail[k-1]
		}
		if b[i] == b[k] {
			k++
		}
		fail[i] = k
	}
	k = 0
	for i := 0; i < len(a); i++ {
		for k > 0 && (k == len(b) || a[i] != b[k]) {
			k = fail[k-1]
		}
		if a[i] == b[k] {
			k++
		}
	}
	return k
}

// lastBytes is the end of a text, at most n bytes of whole characters.
func lastBytes(s string, n int64) string {
	if int64(len(s)) <= n {
		return s
	}
	s = s[int64(len(s))-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
