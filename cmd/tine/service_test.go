package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

// A state folder that can't be used is an error that names it, and leaves the
// folder free for the next try.
func TestServiceWithUnusableState(t *testing.T) {
	state := t.TempDir()
	db := filepath.Join(state, "tine.db")
	if err := os.Mkdir(db, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func() (*service, error) {
		return newService(t.Context(), serviceOptions{
			Config: config.Default(), State: state, Version: "test", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}
	if _, err := start(); err == nil || !strings.Contains(err.Error(), "tine.db") {
		t.Fatalf("a folder in the place of the database: %v", err)
	}
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	s, err := start()
	if err != nil {
		t.Fatalf("after it was mended: %v", err)
	}
	s.Close()
	s.Close() // twice is fine
}
