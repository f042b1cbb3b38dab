//go:build unix

package files

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

// TestPipe has a pipe without a writer: it must not be waited for.
func TestPipe(t *testing.T) {
	cs := connect(t, folder(t, func(dir string) {
		if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
	}), nativetest.Modern, nil)
	for tool, args := range map[string]map[string]any{
		"read_text_file":  {"path": "pipe"},
		"read_media_file": {"path": "pipe"},
		"write_file":      {"path": "pipe", "content": "x"},
		"edit_file":       {"path": "pipe", "edits": []any{}},
	} {
		if why := refused(t, cs, tool, args); !strings.Contains(why, "not a regular file") {
			t.Errorf("%s: %s", tool, why)
		}
	}
	if got := ok(t, cs, "list_directory", map[string]any{"path": "."}); got != "[FILE] pipe" {
		t.Errorf("got %q", got)
	}
}
