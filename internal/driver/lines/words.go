package lines

import (
	"log/slog"
	"strings"
)

// maxWords is how many bytes of them an error has.
const maxWords = 2 << 10

// LastWords is the end of what the program wrote, to go on with in an error, and
// empty where it wrote nothing.
func (l *Log) LastWords(log *slog.Logger) string {
	b, err := l.Tail(maxWords)
	if err != nil {
		log.Debug("the last words of a server can't be read", "error", err)
	}
	text := strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
	if text == "" {
		return ""
	}
	return "; its last words: " + text
}

// Ending is LastWords for an error that says how the program ended, where having
// written nothing is worth knowing too.
func (l *Log) Ending(log *slog.Logger) string {
	if words := l.LastWords(log); words != "" {
		return words
	}
	return ", and wrote nothing to its standard error"
}
