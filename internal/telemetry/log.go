// Package telemetry makes the loggers of the program.
package telemetry

import (
	"io"
	"log/slog"
	"strings"
)

// NewLogger writes to w at a level (debug, info, warn or error; info when it is
// none of these) as text, or as JSON where format says so.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: levelOf(level)}
	if strings.EqualFold(format, "json") {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func levelOf(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo
	}
	return l
}
