package lines

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
)

// maxWords is how many bytes of them an error has.
const maxWords = 2 << 10

// LastWords is the end of what the program wrote, and empty where it wrote nothing.
func (l *Log) LastWords(log *slog.Logger) string {
	b, err := l.Tail(maxWords)
	if err != nil {
		log.Debug("the last words of a server can't be read", "error", err)
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// Told adds the last words of the program to an error.
func (l *Log) Told(log *slog.Logger, err error) error { return driver.WithWords(err, l.LastWords(log)) }

// Ending is the error of a program that ended, with its last words. That it wrote
// nothing is worth knowing too.
func (l *Log) Ending(log *slog.Logger, server, how string) error {
	words := l.LastWords(log)
	if words == "" {
		how += ", and wrote nothing to its standard error"
	}
	return driver.WithWords(fmt.Errorf("server %q %s", server, how), words)
}
