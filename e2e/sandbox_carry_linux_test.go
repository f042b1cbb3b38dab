//go:build torture && (amd64 || arm64)

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/image/imagetest"
)

// counterScript is a server in Python that counts its calls.
const counterScript = `import json, sys
count = 0
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "counter", "version": "1"}}
    elif m["method"] == "tools/list":
        result = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        count += 1
        result = {"content": [{"type": "text", "text": str(count)}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
`

// carried makes what two users may run, and the config of servers of every kind.
func carried(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tine-carry") // not t.TempDir, which only root may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	archive := imagetest.Saved(t, imagetest.Object{}, imagetest.Tar(t, imagetest.Reg("bin/sandserver", string(data)).With(0o755)))
	for name, content := range map[string][]byte{"counter.py": []byte(counterScript), "image.tar": archive, "server": data} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Not one of PATH, which may be in root's home.
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", filepath.Join(dir, "venv")).CombinedOutput(); err != nil {
		t.Fatalf("no environment of Python can be made: %v: %s", err, out)
	}
	if err := exec.Command("chmod", "-R", "a+rX", dir).Run(); err != nil {
		t.Fatal(err)
	}
	return "servers:\n" +
		yamlServer(sand, filepath.Join(dir, "server"), nil, sandboxed) +
		yamlServer("image", "/bin/sandserver", nil, fmt.Sprintf("sandbox: {root: %q}", filepath.Join(dir, "image.tar"))) +
		yamlServer("venv", filepath.Join(dir, "venv/bin/python"), []string{filepath.Join(dir, "counter.py")}, sandboxed) +
		yamlServer("memory", "npx", []string{"-y", "@modelcontextprotocol/server-memory"}, sandboxed, "env: {MEMORY_FILE_PATH: /tmp/graph.jsonl}") +
		yamlServer("time", "uvx", []string{"mcp-server-time", "--local-timezone", "UTC"}, sandboxed)
}

// TestSandboxCarry exports what servers of every kind have in memory, and imports it
// where another state folder is, and where another user is.
func TestSandboxCarry(t *testing.T) {
	for _, program := range []string{"npm", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	config := carried(t)
	gateways := map[string]func(t *testing.T) (from, to *cell){
		"state folders": func(t *testing.T) (from, to *cell) { return startCell(t, config), startCell(t, config) },
		"users": func(t *testing.T) (from, to *cell) {
			from = newOrdinary(t).cell(t, config)
			if err := os.Chmod(filepath.Dir(from.dir), 0o755); err != nil { // which both of them are in
				t.Fatal(err)
			}
			return from, newOrdinaryAs(t, ordinaryID+1).cell(t, config)
		},
	}
	for name, start := range gateways {
		t.Run(name, func(t *testing.T) {
			from, to := start(t)
			for _, w := range []*cell{from, to} {
				t.Cleanup(func() {
					_ = filepath.WalkDir(w.state(), func(path string, d fs.DirEntry, err error) error {
						if err == nil && d.IsDir() {
							_ = os.Chmod(path, 0o700)
						}
						return nil
					})
				})
			}
			count := func(w *cell, session, want string) {
				t.Helper()
				if got := mustUse(t, w.client(t), session, "venv__count", object{}); got != want {
					t.Errorf("the counter says %q, want %q", got, want)
				}
			}
			tells := func(w *cell, session string) {
				t.Helper()
				text := mustUse(t, w.client(t), session, "time__convert_time", object{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})
				if !strings.Contains(text, "21:00") {
					t.Errorf("time says %q", text)
				}
			}
			shelves := []*shelf{sandShelf, programShelf("image"), memoryShelf("memory")}
			c := from.client(t)
			parent := openSession(t, c, api.NewSession{Eager: true}).ID
			for _, s := range shelves {
				s.mustPut(t, c, parent, "k", s.server)
			}
			was := mustLive(t, c, parent)
			count(from, parent, "1")
			tells(from, parent)
			if _, err := c.MakeSnapshot(t.Context(), parent, api.SnapshotRequest{Name: "base"}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(from.dir, "base.tine")
			if _, err := from.tine(t.Context(), "session", "export", "base", "-o", file); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{from.dir, file} { // which the other user may read
				if err := os.Chmod(path, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := to.tine(t.Context(), "session", "import", file, "--name", "base"); err != nil {
				t.Fatal(err)
			}
			c = to.client(t)
			child := openSession(t, c, api.NewSession{From: "base", Eager: true}).ID
			for _, s := range shelves {
				s.mustHold(t, c, child, map[string]string{"k": s.server})
			}
			goesOn(t, c, child, was)
			count(to, child, "2")
			tells(to, child)
			from.over(t)
			to.over(t)
		})
	}
}
