//go:build unix

package rlm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the config that holds now does not allow can't be read, though the settings of the
// session still do, and nothing that those do not allow.
func TestLoadIsBoundedByTheConfigThatHolds(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"wide/in/a", "wide/b", "other/c"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, map[string]any{"allow_read": []any{filepath.Join(dir, "wide")}})
	var now []string
	w.stop()
	w.readable = func(string) []string { return now }
	w.start()
	for _, tt := range []struct {
		now  []string
		read string // the files that can be read
	}{
		{nil, ""},
		{[]string{"wide"}, "wide/in/a wide/b"},
		{[]string{"wide/in", "other"}, "wide/in/a"},
		{[]string{""}, "wide/in/a wide/b"},
	} {
		now = nil
		for _, name := range tt.now {
			now = append(now, filepath.Join(dir, name))
		}
		var read []string
		for _, name := range []string{"wide/in/a", "wide/b", "other/c"} {
			got, res := w.call("rlm_load", map[string]any{"path": filepath.Join(dir, name), "var_name": "v"})
			if !res.IsError {
				read = append(read, name)
			} else if !strings.Contains(got, "may be read") {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := strings.Join(read, " "); got != tt.read {
			t.Errorf("with %q it reads %q, want %q", tt.now, got, tt.read)
		}
	}
}
