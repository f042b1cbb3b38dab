//go:build linux && (amd64 || arm64)

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxConfig looks for the gateway's own config from inside of a sandbox that
// sees its folder, before and after a reload that names another file.
func TestSandboxConfig(t *testing.T) {
	t.Parallel()
	w := newCell(t, "")
	put := func(name string) string {
		t.Helper()
		at := filepath.Join(w.dir, name)
		if err := os.WriteFile(at, []byte("A=canary"), 0o644); err != nil {
			t.Fatal(err)
		}
		return at
	}
	vars, token, other := put("vars.env"), put("token"), put("other")
	box := fmt.Sprintf("sandbox: {allow_read: [%q]}", w.dir)
	w.writeConfig(t, "servers:\n"+yamlSand(t, nil, box, "env_file: vars.env"))
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	c := w.client(t)
	sees := func(want bool, paths ...string) {
		t.Helper()
		id := openSession(t, c, api.NewSession{}).ID
		for _, path := range paths {
			text, err := use(t.Context(), c, id, sand+"__read", object{"key": path})
			if got := err == nil && !strings.Contains(text, "permission denied"); got != want {
				t.Errorf("a sandbox sees %s: %v (%.80q, %v)", path, got, text, err)
			}
		}
	}
	sees(false, w.configPath(), vars)
	sees(true, token, other)

	w.writeConfig(t, "servers:\n"+yamlSand(t, nil, box, "env_file: vars.env", `env: {T: "${file:token}"}`))
	if err := eventually(func() error {
		log, err := os.ReadFile(w.logPath())
		if err == nil && !strings.Contains(string(log), "config reloaded") {
			err = errors.New("the config is not reloaded")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sees(false, w.configPath(), vars, token)
	sees(true, other)

	w.writeConfig(t, "servers:\n"+yamlSand(t, nil, `sandbox: {allow_write: ["."]}`))
	if _, err := w.tine(t.Context(), "config", "check", "--config", w.configPath()); err == nil || !strings.Contains(err.Error(), "allow_write[0]: holds "+w.configPath()) {
		t.Errorf("a sandbox may write to the config: %v", err)
	}
	w.over(t)
}
