package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestWorkspacePathIsStable has a program outside of a sandbox tell a path of its
// workspace, which is good in its forks and for the built-in server, too.
func TestWorkspacePathIsStable(t *testing.T) {
	t.Parallel()
	paths := need(t, node, npmFilesystem)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	point, err := os.MkdirTemp(here, "seen-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(point)
	config := "workspace: {path: " + point + "}\nservers:\n  files: {builtin: files}\n" +
		yamlServer("npm", paths[0], []string{paths[1], "${workspace}"}, "connect_timeout: 5m")
	g := startGateway(t, config)
	c := g.client(t)
	say := func(session, tool string, args map[string]any) string {
		t.Helper()
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.CallIn(t.Context(), session, tool, raw)
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		return string(out)
	}
	s := openSession(t, c, api.NewSession{})
	told := filepath.Join(point, "a.txt")
	say(s.ID, "npm__write_file", map[string]any{"path": told, "content": "of-the-parent"})
	ids := []string{s.ID}
	for range 2 {
		ids = append(ids, fork(t, c, ids[len(ids)-1], 1)[0].ID)
	}
	for _, id := range ids {
		for _, server := range []string{"npm", "files"} {
			if got := say(id, server+"__list_allowed_directories", map[string]any{}); !strings.Contains(got, point) {
				t.Errorf("%s in %s allows %s", server, id, got)
			}
			if got := say(id, server+"__read_text_file", map[string]any{"path": told}); !strings.Contains(got, "of-the-parent") {
				t.Errorf("%s in %s reads %s", server, id, got)
			}
		}
	}
	if left, err := os.ReadDir(point); err != nil || len(left) > 0 {
		t.Errorf("on the host there is %v, %v", left, err)
	}
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	if got := say(ids[2], "npm__read_text_file", map[string]any{"path": told}); !strings.Contains(got, "of-the-parent") {
		t.Errorf("after a restart: %s", got)
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
