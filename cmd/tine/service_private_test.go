package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// What sandboxes may not see follows the config.
func TestReloadNamesOtherPrivateFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tine.yaml")
	load := func(file string) *config.Config {
		t.Helper()
		for name, text := range map[string]string{path: "servers: {a: {url: \"http://127.0.0.1:1/mcp\", headers: {X: \"${file:" + file + "}\"}}}\n", filepath.Join(dir, file): "secret"} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := config.Load(path, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s, err := newService(t.Context(), serviceOptions{
		Config: load("one"), State: filepath.Join(dir, "state"), Version: "test", Redact: telemetry.NewRedactor(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, file := range []string{"one", "two"} {
		if file == "two" {
			s.apply(t.Context(), load(file), nil)
		}
		if got, want := *s.private.Load(), []string{path, filepath.Join(dir, file)}; !slices.Equal(got, want) {
			t.Errorf("private are %v, want %v", got, want)
		}
	}
}
