package testkit

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// A Log is what was logged or printed, for a test that reads while others write.
// The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger writes to l, one line a message, from the level Debug on.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Count returns how many lines have all of the words.
func (l *Log) Count(words ...string) int {
	n := 0
lines:
	for line := range strings.Lines(l.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}
