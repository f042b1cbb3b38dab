//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// toolsDir is where setup.sh put the programs of others.
func toolsDir() string {
	if dir := os.Getenv("TINE_TEST_TOOLS"); dir != "" {
		return dir
	}
	dir, err := filepath.Abs(filepath.Join("..", ".cache", "tools"))
	if err != nil {
		panic(err) // the working folder is gone
	}
	return dir
}

// Programs, relative to toolsDir.
const (
	node             = "node_modules/.bin/node"
	python           = "venv/bin/python"
	rewardKitPython  = "rewardkit/venv/bin/python"
	rewardKitTests   = "rewardkit/reward_kit-0.3.6/tests/mcp_agent"
	rewardKitClient  = "rewardkit/reward_kit-0.4.1"
	openEnvPython    = "openenv/venv/bin/python"
	openEnvCore      = "openenv/core-0.3.0/openenv/core/env_client.py"
	conformance      = "node_modules/.bin/conformance"
	inspector        = "node_modules/.bin/mcp-inspector"
	everythingServer = "bin/everything-server"
	npmEverything    = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
	npmFilesystem    = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
	npmMemory        = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
	npmThinking      = "node_modules/@modelcontextprotocol/server-sequential-thinking/dist/index.js"
	pyTime           = "venv/bin/mcp-server-time"
	pyFetch          = "venv/bin/mcp-server-fetch"
	pyGit            = "venv/bin/mcp-server-git"
	tsSDK1           = "node_modules/@modelcontextprotocol/sdk/package.json"
	tsSDK2           = "node_modules/@modelcontextprotocol/client/package.json"
)

// claudeCode is the platform's program; the package beside it is only a launcher
// that an install script would have replaced.
func claudeCode() string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return "node_modules/@anthropic-ai/claude-code-" + runtime.GOOS + "-" + arch + "/claude"
}

// need returns the absolute paths of tools and ends the test where one is
// missing: as skipped on a laptop, as failed in CI.
func need(t testing.TB, tools ...string) []string {
	t.Helper()
	var paths, missing []string
	for _, tool := range tools {
		p := filepath.Join(toolsDir(), tool)
		if _, err := os.Stat(p); err != nil {
			missing = append(missing, tool)
		}
		paths = append(paths, p)
	}
	if len(missing) > 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("missing in %s: %s", toolsDir(), strings.Join(missing, ", "))
		}
		t.Skipf("missing in %s: %s; run: make setup", toolsDir(), strings.Join(missing, ", "))
	}
	return paths
}

// toolEnv is the environment for the programs of others: the Node.js of
// toolsDir first on PATH, and a home folder of the test's own.
func toolEnv(t testing.TB, more ...string) []string {
	t.Helper()
	env := []string{
		"PATH=" + filepath.Join(toolsDir(), filepath.Dir(node)) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + t.TempDir(),
		"TINE_TEST_TOOLS=" + toolsDir(),
		"NO_COLOR=1",
	}
	return append(env, more...)
}
