package session

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
)

// The log of a session without its folder does not say that the folder stays.
func TestTheLogOfASessionWithoutItsFolder(t *testing.T) {
	var log bytes.Buffer
	r := &Registry{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil)), States: t.TempDir()}, unserved: map[string]Unserved{}}
	r.withoutFolder(store.Session{ID: "ses_x"})
	if got := log.String(); !strings.Contains(got, "its folder is gone, and all that it knew; what is left of it stays as it is") || strings.Count(got, "folder") != 1 {
		t.Errorf("got %s", got)
	}
}
