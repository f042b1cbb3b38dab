// Package patch writes the difference of two texts as a unified diff, the same
// one that the npm package diff writes.
package patch

import (
	"fmt"
	"strings"
)

// context is how many unchanged lines are shown around a change.
const context = 4

// Unified returns the diff of two states of one file.
func Unified(name, old, new string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Index: %s\n%s\n--- %s\toriginal\n+++ %s\tmodified\n", name, strings.Repeat("=", 67), name, name)
	for _, h := range hunks(diff(lines(old), lines(new))) {
		h.write(&b)
	}
	return b.String()
}

// lines cuts a text after its newlines.
func lines(s string) []string {
	all := strings.SplitAfter(s, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// A hunk is changes near each other and what is around them. Starts count from
// one.
type hunk struct {
	oldStart, newStart int
	oldLines, newLines int
	body               []run
}

func (h *hunk) add(r run) {
	h.body = append(h.body, r)
	if r.kind != '+' {
		h.oldLines += len(r.lines)
	}
	if r.kind != '-' {
		h.newLines += len(r.lines)
	}
}

func hunks(runs []run) []*hunk {
	var all []*hunk
	var open *hunk
	oldLine, newLine := 1, 1
	for i, r := range runs {
		n := len(r.lines)
		switch {
		case r.kind != ' ':
			if open == nil {
				open = &hunk{oldStart: oldLine, newStart: newLine}
				all = append(all, open)
				if i > 0 {
					before := runs[i-1].lines
					before = before[max(0, len(before)-context):]
					open.oldStart -= len(before)
					open.newStart -= len(before)
					open.add(run{' ', before})
				}
			}
			open.add(r)
		case open != nil && n <= 2*context && i < len(runs)-1:
			open.add(r)
		case open != nil:
			open.add(run{' ', r.lines[:min(n, context)]})
			open = nil
		}
		if r.kind != '+' {
			oldLine += n
		}
		if r.kind != '-' {
			newLine += n
		}
	}
	return all
}

func (h *hunk) write(b *strings.Builder) {
	// A side without lines is said to be after the line before.
	if h.oldLines == 0 {
		h.oldStart--
	}
	if h.newLines == 0 {
		h.newStart--
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", h.oldStart, h.oldLines, h.newStart, h.newLines)
	for _, r := range h.body {
		for _, l := range r.lines {
			b.WriteByte(r.kind)
			b.WriteString(l)
			if !strings.HasSuffix(l, "\n") {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
}
