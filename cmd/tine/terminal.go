package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal reports whether a file is a terminal, and how wide it is.
func terminal(f *os.File) (bool, int) {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return false, 0
	}
	width, _, err := term.GetSize(fd)
	if err != nil || width < 20 {
		width = 80 // some terminals don't know, and none is that narrow
	}
	return true, width
}

// Colours, as parameters of the escape sequence.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// color reports whether standard output may be coloured.
func (c *cli) color() bool {
	return c.outColor && !c.flags.noColor && c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb"
}

// paint colours a text when that is wanted.
func (c *cli) paint(code, s string) string {
	if code == "" || !c.color() {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// visible makes text from others harmless on a terminal: servers choose their own
// descriptions, results and logs, and an escape sequence in them could retitle the
// window or hide earlier output. Control characters are shown instead of obeyed. If
// there is no terminal, the bytes stay as they are.
func visible(s string, terminal bool) string {
	if !terminal || !hasControl(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			// The line break that follows is enough.
		case isControl(r):
			if r < 0x20 {
				b.WriteString("^" + string(r+'@'))
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// visibleLog is visible for logs, which may keep their colours.
func visibleLog(s string, terminal bool) string {
	if !terminal || !strings.Contains(s, "\x1b[") {
		return visible(s, terminal)
	}
	var b strings.Builder
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			break
		}
		b.WriteString(visible(s[:i], true))
		end := i + 2
		for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == ';') {
			end++
		}
		if end < len(s) && s[end] == 'm' {
			end++
			b.WriteString(s[i:end])
		} else {
			b.WriteString(visible(s[i:end], true))
		}
		s = s[end:]
	}
	b.WriteString(visible(s, true))
	return b.String()
}

func hasControl(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, isControl)
}

// isControl includes the marks that turn the direction of text around.
func isControl(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return true
	}
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// oneLine makes a text fit for a cell: its white space becomes single spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
