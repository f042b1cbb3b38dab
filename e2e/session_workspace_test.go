//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSessionWorkspace has two members of one session, the built-in files server
// and the reference one, see one workspace: what one writes the other reads.
// After a fork the two worlds have each their own, and a snapshot of it is opened
// and rewound to.
func TestSessionWorkspace(t *testing.T) {
	t.Parallel()
	paths := need(t, node, npmFilesystem)
	template := t.TempDir()
	if err := os.MkdirAll(filepath.Join(template, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "docs", "read-me"), []byte("of-the-template"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := "workspace: " + template + "\nservers:\n  files: {builtin: files}\n  mem: {builtin: memory}\n" +
		yamlServer("npm", paths[0], []string{paths[1], "${workspace}"}, "connect_timeout: 5m")
	g := startGateway(t, config)
	c := g.client(t)
	files, npm := filesShelf("files"), filesShelf("npm")
	s := openSession(t, c, api.NewSession{})
	both := func(session string, want map[string]string) {
		t.Helper()
		files.mustHold(t, c, session, want)
		npm.mustHold(t, c, session, want)
	}
	both(s.ID, map[string]string{"docs/read-me": "of-the-template"})
	files.mustPut(t, c, s.ID, "a", "by-files")
	npm.mustPut(t, c, s.ID, "d/b", "by-npm")
	before := map[string]string{"docs/read-me": "of-the-template", "a": "by-files", "d/b": "by-npm"}
	both(s.ID, before)
	snap, err := c.MakeSnapshot(t.Context(), s.ID, api.SnapshotRequest{Name: "before"})
	if err != nil {
		t.Fatal(err)
	}

	children := fork(t, c, s.ID, 2)
	for i, child := range children {
		both(child.ID, before)
		files.mustPut(t, c, child.ID, "own", child.ID)
		npm.mustPut(t, c, child.ID, "a", "changed-by-"+child.ID)
		want := map[string]string{"docs/read-me": "of-the-template", "a": "changed-by-" + child.ID, "d/b": "by-npm", "own": child.ID}
		both(child.ID, want)
		both(s.ID, before)
		for _, sibling := range children[i+1:] {
			both(sibling.ID, before)
		}
		grandchild := fork(t, c, child.ID, 1)[0]
		both(grandchild.ID, want)
	}
	npm.mustPut(t, c, s.ID, "a", "changed-later")
	both(openSession(t, c, api.NewSession{From: "before"}).ID, before)
	if _, err := c.Rewind(t.Context(), s.ID, api.RewindRequest{Snapshot: snap.ID}); err != nil {
		t.Fatal(err)
	}
	both(s.ID, before)
	both(openSession(t, c, api.NewSession{}).ID, map[string]string{"docs/read-me": "of-the-template"})
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	both(s.ID, before)
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
	if data, err := os.ReadFile(filepath.Join(template, "docs", "read-me")); err != nil || string(data) != "of-the-template" {
		t.Errorf("the template was touched: %q, %v", data, err)
	}
}
