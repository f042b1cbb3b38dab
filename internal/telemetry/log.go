package telemetry

import (
	"io"
	"log/slog"
	"strings"

	"github.com/tine-mcp/tine/internal/secret"
)

// NewLogger writes to w at a level (debug, info, warn or error; info when it is
// none of these) as text, or as JSON where format says so. Lines pass r before they
// are written: messages and values of any type, attributes of With and of groups
// included, are masked by content, and by the attribute's name. A nil r masks
// nothing. An attribute that is an empty text is left out.
func NewLogger(w io.Writer, level, format string, r *Redactor) *slog.Logger {
	o := &slog.HandlerOptions{Level: levelOf(level), ReplaceAttr: leaveEmptyOut}
	if strings.EqualFold(format, "json") {
		return slog.New(slog.NewJSONHandler(redactingWriter(w, r, r.JSON), o))
	}
	return slog.New(slog.NewTextHandler(redactingWriter(w, r, r.logLine), o))
}

func leaveEmptyOut(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindString && a.Value.String() == "" && a.Key != slog.MessageKey {
		return slog.Attr{}
	}
	return a
}

func levelOf(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo
	}
	return l
}

// lineWriter masks the output of slog's handlers. They write each record as one
// whole line, in which every value has its final form: a value that formats itself,
// or that was put into the logger before its secret was known, is masked too.
type lineWriter struct {
	w      io.Writer
	redact func([]byte) []byte
}

func redactingWriter(w io.Writer, r *Redactor, redact func([]byte) []byte) io.Writer {
	if r == nil {
		return w
	}
	return &lineWriter{w, redact}
}

func (l *lineWriter) Write(line []byte) (int, error) {
	if _, err := l.w.Write(l.redact(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// logLine masks secrets in a line of slog's text format: name=value, where either
// is quoted if it must be.
func (r *Redactor) logLine(line []byte) []byte {
	s := string(line)
	var cuts []cut
	for i := 0; i < len(s) && s[i] != '\n'; {
		nameEnd := fieldEnd(s, i, "=")
		if nameEnd >= len(s) || s[nameEnd] != '=' {
			cuts = r.find(s, 0) // not a line as we know it
			break
		}
		from, to := nameEnd+1, fieldEnd(s, nameEnd+1, " \n")
		cuts = append(cuts, r.logField(s, span{i, nameEnd}, span{from, to})...)
		for i = to; i < len(s) && s[i] == ' '; {
			i++
		}
	}
	if len(cuts) == 0 {
		return line
	}
	return applyCuts(s, cuts)
}

// fieldEnd is the end of a word that may be quoted and else ends before one of stop.
func fieldEnd(s string, i int, stop string) int {
	if i < len(s) && s[i] == '"' {
		for i++; i < len(s); i++ {
			if s[i] == '"' && unescaped(s, i) {
				return i + 1
			}
		}
		return len(s)
	}
	if n := strings.IndexAny(s[i:], stop); n >= 0 {
		return i + n
	}
	return len(s)
}

func (r *Redactor) logField(s string, name, value span) []cut {
	cuts := r.logWord(s, name)
	inner := unquoted(s, value)
	text := s[inner.from:inner.to]
	if text == "" || text == "true" || text == "false" || text == "<nil>" || !secret.ClassOf(strings.Trim(s[name.from:name.to], `"`)).Hides(text) {
		return append(cuts, r.logWord(s, value)...)
	}
	return append(cuts, cut{inner.from, inner.to, mask})
}

// logWord looks into a name or a value.
func (r *Redactor) logWord(s string, at span) []cut {
	at = unquoted(s, at)
	v := plainView(s[at.from:at.to])
	if strings.IndexByte(v.text, '\\') >= 0 {
		v = v.decode(escapes)
	}
	cuts := r.find(v.text, 0)
	for i := range cuts {
		from, to := v.place(cuts[i].from, cuts[i].to)
		cuts[i] = cut{at.from + from, at.from + to, mask}
	}
	return cuts
}

func unquoted(s string, at span) span {
	if at.to-at.from >= 2 && s[at.from] == '"' && s[at.to-1] == '"' {
		return span{at.from + 1, at.to - 1}
	}
	return at
}
