package telemetry

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decoding is a way in which a text may be written inside another.
type decoding uint8

const (
	escapes  decoding = 1 << iota // \n, \", \u0041, \x41: strings of JSON and of programs
	percents                      // %41
	pluses                        // %41, and + for a space
)

// view is a text decoded from a source, which remembers where each byte came from.
type view struct {
	text string
	at   []int32 // at[i] is where the source of byte i begins; at[len(text)] is the source's end. nil: the text is the source
}

func plainView(s string) view { return view{text: s} }

func (v view) source(i int) int32 {
	if v.at == nil {
		return int32(i)
	}
	return v.at[i]
}

// place is the piece of the source that holds the bytes from..to, widened so that
// it never cuts an escape in two.
func (v view) place(from, to int) (int, int) {
	if v.at == nil {
		return from, to
	}
	f := v.at[from]
	for to < len(v.text) && v.at[to] == v.at[to-1] {
		to++
	}
	return int(f), int(v.at[to])
}

// decode undoes one layer. Invalid escapes stay as they are.
func (v view) decode(way decoding) view {
	s := v.text
	out := make([]byte, 0, len(s))
	at := make([]int32, 0, len(s)+1)
	special := byte('\\')
	if way != escapes {
		special = '%'
	}
	for i := 0; i < len(s); {
		run := 0
		if way == pluses {
			run = strings.IndexAny(s[i:], "%+")
		} else {
			run = strings.IndexByte(s[i:], special)
		}
		if run < 0 {
			run = len(s) - i
		}
		out = append(out, s[i:i+run]...)
		for j := i; j < i+run; j++ {
			at = append(at, v.source(j))
		}
		if i += run; i == len(s) {
			break
		}
		before, n := len(out), 1
		switch x, ok := hexDigits(s, i+1, 2); {
		case s[i] == '\\':
			n, out = escape(s[i:], out)
		case s[i] == '+':
			out = append(out, ' ')
		case ok:
			n, out = 3, append(out, byte(x))
		default:
			out = append(out, s[i])
		}
		for range len(out) - before {
			at = append(at, v.source(i))
		}
		i += n
	}
	at = append(at, v.source(len(s)))
	return view{string(out), at}
}

// escape reads an escape that begins with a backslash: it adds its meaning to out
// and returns its length.
func escape(s string, out []byte) (int, []byte) {
	if len(s) < 2 {
		return 1, append(out, s...)
	}
	if i := strings.IndexByte("\"'\\/`nrtbfav", s[1]); i >= 0 {
		return 2, append(out, "\"'\\/`\n\r\t\b\f\a\v"[i])
	}
	switch s[1] {
	case 'x':
		if x, ok := hexDigits(s, 2, 2); ok {
			return 4, append(out, byte(x))
		}
	case 'u':
		x, ok := hexDigits(s, 2, 4)
		if !ok {
			break
		}
		if utf16.IsSurrogate(x) && strings.HasPrefix(s[6:], `\u`) {
			if y, ok := hexDigits(s, 8, 4); ok {
				if pair := utf16.DecodeRune(x, y); pair != utf8.RuneError {
					return 12, utf8.AppendRune(out, pair)
				}
			}
		}
		return 6, utf8.AppendRune(out, x) // a lone half becomes U+FFFD
	}
	return 1, append(out, '\\')
}

func hexDigits(s string, from, n int) (rune, bool) {
	if from+n > len(s) {
		return 0, false
	}
	var x rune
	for _, c := range []byte(s[from : from+n]) {
		switch {
		case c >= '0' && c <= '9':
			x = x<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			x = x<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			x = x<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return x, true
}
