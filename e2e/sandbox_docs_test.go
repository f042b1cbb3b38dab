//go:build linux && (amd64 || arm64)

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxDocs runs the servers of docs/sandbox.md that hear of a fork, with
// their config as it stands there: siblings draw different numbers, and give
// themselves different names.
func TestSandboxDocs(t *testing.T) {
	t.Parallel()
	paths := need(t, python, node, "node_modules")
	page, err := os.ReadFile(filepath.Join("..", "docs", "sandbox.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language, with string) string {
		for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(page, -1) {
			if text := string(m[1]); strings.Contains(text, with) {
				return text
			}
		}
		t.Fatalf("the page has no %s with %q", language, with)
		return ""
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"dice.py": block("python", "reseed"), "lots.mjs": block("js", "kernelBytes")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(paths[2], filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	// What the reader has installed is elsewhere here.
	config := strings.NewReplacer("python3", paths[0], "command: node", "command: "+paths[1], "cwd: .", "cwd: "+dir,
		"sandbox: true", "sandbox: {allow_read: ["+paths[2]+"]}").Replace(block("yaml", "on_fork: notify"))
	w := startCell(t, config)
	c := w.client(t)
	parent := openSession(t, c, api.NewSession{}).ID
	tools := []string{"dice__roll", "lots__draw", "lots__name"}
	for _, tool := range tools {
		if _, err := use(t.Context(), c, parent, tool, object{}); err != nil {
			t.Fatal(err)
		}
	}
	children := fork(t, c, parent, 3)
	for _, tool := range tools {
		seen := map[string]string{}
		for _, s := range children {
			got, err := use(t.Context(), c, s.ID, tool, object{})
			if err != nil {
				t.Fatal(err)
			}
			if other := seen[got]; other != "" {
				t.Errorf("%s says %s in %s and in %s", tool, got, other, s.ID)
			}
			seen[got] = s.ID
		}
	}
	w.over(t)
}
