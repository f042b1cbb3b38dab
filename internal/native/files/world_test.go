package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// grounds are the kinds of FS that the server must work on alike.
func grounds() map[string]func(testing.TB, func(dir string)) workspace.FS {
	return map[string]func(testing.TB, func(dir string)) workspace.FS{"folder": folder, "tree": tree}
}

// folder is a folder of the host, filled by fill.
func folder(t testing.TB, fill func(dir string)) workspace.FS {
	t.Helper()
	dir := realTemp(t)
	fill(dir)
	f, err := workspace.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tree is a tree in layers that begins as what fill makes.
func tree(t testing.TB, fill func(dir string)) workspace.FS {
	t.Helper()
	from, base := realTemp(t), realTemp(t)
	fill(from)
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(base, "layers")})
	if err != nil {
		t.Fatal(err)
	}
	store := workspace.NewStore(layers, workspace.Options{Dir: filepath.Join(base, "scratch")})
	if err := store.Recover(t.Context(), nil, nil, true); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "workspace")
	if err := store.Seed(t.Context(), dir, workspace.Seed{Template: from}); err != nil {
		t.Fatal(err)
	}
	w, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		store.Close()
		layers.Close()
	})
	return w.FS()
}

// realTemp is a temporary folder whose path has no links in it.
func realTemp(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// put makes files, and directories for names that end in a slash.
func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, body := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// links makes links from names to targets.
func links(t testing.TB, dir string, targets map[string]string) {
	t.Helper()
	for name, target := range targets {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatalf("links can't be made here: %v", err)
		}
	}
}

func connect(t testing.TB, f workspace.FS, era string, settings map[string]any) *mcp.ClientSession {
	t.Helper()
	s, err := New(settings, f)
	if err != nil {
		t.Fatal(err)
	}
	return nativetest.Connect(t, s, era, nil)
}

// ok calls a tool that must succeed and returns its text.
func ok(t testing.TB, cs *mcp.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	res := nativetest.Call(t, cs, tool, args)
	if res.IsError {
		t.Fatalf("%s %v: %s", tool, args, nativetest.Text(res))
	}
	return nativetest.Text(res)
}

// refused calls a tool that must fail, and returns why.
func refused(t testing.TB, cs *mcp.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	res := nativetest.Call(t, cs, tool, args)
	if !res.IsError {
		t.Fatalf("%s %v is accepted: %s", tool, args, nativetest.Text(res))
	}
	return nativetest.Text(res)
}
