//go:build amd64 || arm64

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/image/imagetest"
)

// TestSandboxImage runs a server whose root is the archive of an image, of either
// kind: it is found there, called, forked live, goes on after a restart of the
// gateway, and nothing is left of it.
func TestSandboxImage(t *testing.T) {
	t.Parallel()
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	// The second layer takes away what would be found first.
	layers := [][]byte{
		imagetest.Tar(t, imagetest.Reg("opt/first/sandserver", "no program").With(0o755), imagetest.Reg("opt/second/sandserver", string(data)).With(0o755)),
		imagetest.Tar(t, imagetest.Reg("opt/first/.wh.sandserver", "")),
	}
	// Its PATH is searched for the program.
	run := imagetest.Object{"Env": []string{"PATH=/opt/first:/opt/second"}}
	for name, archive := range map[string][]byte{"docker": imagetest.Saved(t, run, layers...), "oci": imagetest.OCI(t, run, nil, layers...)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "sand.tar")
			if err := os.WriteFile(path, archive, 0o644); err != nil {
				t.Fatal(err)
			}
			w := startCell(t, "servers:\n"+yamlServer(sand, "sandserver", nil, fmt.Sprintf("sandbox: {root: %q}", path)))
			c := w.client(t)
			parent := openSession(t, c, api.NewSession{}).ID
			sandShelf.mustPut(t, c, parent, "k", "v")
			was := mustLive(t, c, parent)
			wants := map[string]map[string]string{parent: {"k": "v", "late": parent}}
			for _, child := range fork(t, c, parent, 3) {
				sandShelf.mustHold(t, c, child.ID, map[string]string{"k": "v"})
				sandShelf.mustPut(t, c, child.ID, "own", child.ID)
				wants[child.ID] = map[string]string{"k": "v", "own": child.ID}
			}
			sandShelf.mustPut(t, c, parent, "late", parent)
			hold := func() {
				t.Helper()
				for id, want := range wants {
					sandShelf.mustHold(t, c, id, want)
					goesOn(t, c, id, was)
				}
			}
			hold()
			if code, err := w.stop(); err != nil || code != 0 {
				t.Fatalf("the gateway ended with %d, %v", code, err)
			}
			if err := w.start(); err != nil {
				t.Fatal(err)
			}
			c = w.client(t)
			hold()
			w.over(t)
			oneImage(t, w)
		})
	}
}

// oneImage holds that the image was unpacked once, whole, and stays for the next
// start.
func oneImage(t testing.TB, w *cell) {
	t.Helper()
	dir := filepath.Join(w.state(), "sandbox", "images")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || strings.HasSuffix(e.Name(), ".part") {
			names = append(names, e.Name())
		}
	}
	if len(names) != 1 || strings.Contains(names[0], ".") { // as what is half has
		t.Fatalf("there are %q among the images, want one", names)
	}
	root := filepath.Join(dir, names[0], "root", "opt")
	if _, err := os.Lstat(filepath.Join(root, "first", "sandserver")); err == nil {
		t.Error("what the second layer takes away is there")
	}
	if info, err := os.Lstat(filepath.Join(root, "second", "sandserver")); err != nil || info.Size() == 0 {
		t.Errorf("the program is not there: %v", err)
	}
}
