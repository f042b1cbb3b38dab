package lines

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tine-mcp/tine/internal/telemetry"
)

// Tend keeps the log short until the program has ended, and reports whether it has.
// wait waits for that, at most so long; where it returns not ok, the watch is over.
func (l *Log) Tend(log *slog.Logger, wait func(time.Duration) (exited, ok bool)) bool {
	trouble := false
	for {
		exited, ok := wait(l.pause())
		if !ok {
			return false
		}
		if err := l.trim(log); err != nil && !trouble {
			trouble = true
			log.Warn("the log of a server can't be cut", "error", err)
		}
		if exited {
			return true
		}
	}
}

// trim is Trim, of bytes that a program wrote, where a panic is an error.
func (l *Log) trim(log *slog.Logger) (err error) {
	defer telemetry.Contain(log, telemetry.InDriver, "log of a server", func(e error) { err = e })
	return l.Trim()
}

// Logs is what driver.Instance returns as its logs.
func (l *Log) Logs(server string, max int64) (io.ReadCloser, error) {
	text, err := l.Tail(max)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", server, err)
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}
