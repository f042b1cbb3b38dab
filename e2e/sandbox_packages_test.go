//go:build linux && (amd64 || arm64)

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
)

// TestSandboxPackages has npx and uvx in the config as usual: what
// they name is fetched once, with words in the log, and never again, by no other
// session and by no later gateway, which could not reach a registry.
func TestSandboxPackages(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"npm", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	w := startCell(t, `servers:
  memory:
    command: npx
    args: [-y, "@modelcontextprotocol/server-memory"]
    env: {MEMORY_FILE_PATH: /tmp/graph.jsonl}
    sandbox: true
    connect_timeout: 5m
  time:
    command: uvx
    args: [mcp-server-time, --local-timezone, UTC]
    sandbox: true
    connect_timeout: 5m
`)
	t.Cleanup(func() { // what is fetched is read-only
		_ = filepath.WalkDir(w.state(), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	c := w.client(t)
	memory := memoryShelf("memory")
	works := func(session string, want map[string]string) {
		t.Helper()
		memory.mustHold(t, c, session, want)
		text := mustUse(t, c, session, "time__convert_time", object{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})
		if !strings.Contains(text, "21:00") {
			t.Errorf("time says %q", text)
		}
	}
	fetched := func() (began, done map[string]int) {
		t.Helper()
		log, err := os.ReadFile(w.logPath())
		if err != nil {
			t.Fatal(err)
		}
		began, done = map[string]int{}, map[string]int{}
		for _, name := range []string{"@modelcontextprotocol/server-memory", "mcp-server-time"} {
			began[name] = strings.Count(string(log), `msg="fetching a package" package=`+name+"\n") // without a step of it
			done[name] = strings.Count(string(log), `msg="fetched a package" package=`+name+" ")
		}
		return began, done
	}
	once := func(when string) {
		t.Helper()
		began, done := fetched()
		for name := range began {
			if began[name] != 1 || done[name] != 1 {
				t.Errorf("%s: the fetching of %s was begun %d times and done %d times in the log, want once", when, name, began[name], done[name])
			}
		}
	}
	first := openSession(t, c, api.NewSession{Eager: true}).ID // both at once
	memory.mustPut(t, c, first, "k", "v")
	works(first, map[string]string{"k": "v"})
	once("at first")

	second := openSession(t, c, api.NewSession{}).ID
	works(second, map[string]string{})
	child := fork(t, c, first, 1)[0].ID
	memory.mustPut(t, c, child, "own", child)
	works(child, map[string]string{"k": "v", "own": child})
	once("after another session and a fork")

	if code, err := w.stop(); err != nil || code != 0 {
		t.Fatalf("the gateway ended with %d, %v", code, err)
	}
	nowhere := "http://127.0.0.1:1/"
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY", "PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"} {
		w.env = append(w.env, fmt.Sprintf("%s=%s", name, nowhere))
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	c = w.client(t)
	works(first, map[string]string{"k": "v"})
	works(child, map[string]string{"k": "v", "own": child})
	works(openSession(t, c, api.NewSession{}).ID, map[string]string{})
	once("with another gateway that has no registry")
	w.over(t)
}
