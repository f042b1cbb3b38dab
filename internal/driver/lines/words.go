package lines

import (
	"fmt"
	"log/slog"

	"github.com/tine-mcp/tine/internal/driver"
)

// LastWords is the end of what the program wrote, and empty where it wrote nothing.
func (l *Log) LastWords(log *slog.Logger) string {
	b, err := l.Tail(4 * driver.MaxWords) // with the frames of a stack among them
	if err != nil {
		log.Debug("the last words of a server can't be read", "error", err)
	}
	return driver.LastWords(string(b))
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
