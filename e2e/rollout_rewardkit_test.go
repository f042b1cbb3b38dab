//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// rewardKitWorlds serves what RewardKit's own test of its filesystem expects, with
// what is built in and in containers.
func rewardKitWorlds(t *testing.T, run func(t *testing.T, g *gateway)) {
	for way, docker := range map[string]bool{"built in": false, "Docker": true} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			template := t.TempDir()
			for file, text := range map[string]string{"source_dir/file_to_move.txt": "Hello from source\n", "target_dir/.gitkeep": ""} {
				path := filepath.Join(template, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			config, more := "workspace: {path: /data}\n", ""
			if docker {
				config, more = "", fmt.Sprintf(", docker: {host: %q, image: %s, pull: never, entrypoint: [mcp-server-filesystem]}", needPresetEngine(t).host, serversImage)
			}
			config += fmt.Sprintf("default_view: rollout\nservers:\n  filesystem_test: {preset: filesystem, template: %q%s}\n  rollout: {builtin: rollout}\n", template, more)
			g := startGateway(t, config)
			run(t, g)
			if docker {
				nothingLeft(t, g)
			}
			// What is built in keeps the template for the next session.
			for s, err := range g.client(t).AllSessions(t.Context(), client.SessionQuery{}) {
				if err != nil || s.Kind != api.SessionDefault {
					t.Errorf("session %s is left: %v", s.ID, err)
				}
			}
		})
	}
}

// TestRewardKitScenario runs tests/mcp_agent/test_rl_filesystem_scenario.py of
// reward-kit 0.3.6 as it is on PyPI. Only its URL is another one.
func TestRewardKitScenario(t *testing.T) {
	t.Parallel()
	tools := need(t, rewardKitPython, rewardKitTests)
	rewardKitWorlds(t, func(t *testing.T, g *gateway) {
		const run = "import asyncio, sys; import test_rl_filesystem_scenario as s; s.INTERMEDIARY_SERVER_URL = sys.argv[1]; asyncio.run(s.main())"
		cmd := exec.Command(tools[0], "-c", run, g.url+"/mcp")
		cmd.Env = append(toolEnv(t), "PYTHONPATH="+tools[1])
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "All RL Filesystem Scenario Instances Test PASSED!") {
			t.Errorf("%v\n%s", err, tail(string(out), 8<<10))
		}
	})
}

// TestRewardKitOwnClient drives a gateway with IntermediaryMCPClient of reward-kit
// 0.4.1. A tool's own error is an answer to it; what it raises is for the trainer.
func TestRewardKitOwnClient(t *testing.T) {
	t.Parallel()
	tools := need(t, rewardKitPython, rewardKitClient)
	script, err := filepath.Abs("testdata/clients/intermediary.py")
	if err != nil {
		t.Fatal(err)
	}
	rewardKitWorlds(t, func(t *testing.T, g *gateway) {
		cmd := exec.Command(tools[0], "-W", "ignore", script, g.url+"/mcp", "filesystem_test")
		cmd.Env = append(toolEnv(t), "PYTHONPATH="+tools[1])
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(lines) != 11 {
			t.Fatalf("%d answers, %v\n%s\n%s", len(lines), err, out, tail(stderr.String(), 8<<10))
		}
		if strings.Contains(string(out), "io.modelcontextprotocol") {
			t.Errorf("the prompt would hold what only the newer era knows:\n%s", out)
		}
		var listed struct{ Tools []struct{ Name string } }
		if err := json.Unmarshal([]byte(lines[1]), &listed); err != nil || len(listed.Tools) < 10 {
			t.Errorf("%v, the tools are %s", err, lines[1])
		}
		for i, want := range []string{2: "Hello from source", 3: "", 4: "[DIR] source_dir", 5: "ENOENT", 6: "Access denied", 7: ""} {
			var res toolResult
			if i < 2 {
				continue
			}
			says := fmt.Sprintf(`"isError": %v`, i > 4) // also where it is none
			if err := json.Unmarshal([]byte(lines[i]), &res); err != nil || len(res.Content) == 0 || !strings.Contains(lines[i], says) || !strings.Contains(res.text(), want) {
				t.Errorf("call %d is answered with %s, want %q", i, lines[i], want)
			}
		}
		// As RewardKit's own server answers it.
		if want := `{"content": [{"type": "text", "text": "MCP error -32602: Tool no_such_tool not found"}], "isError": true}`; lines[8] != want {
			t.Errorf("a tool that is not there is answered with %s, want %s", lines[8], want)
		}
		if !strings.Contains(lines[9], "raised") || !strings.Contains(lines[9], "no-such-session") {
			t.Errorf("a session that is not there is answered with %s", lines[9])
		}
		if !strings.Contains(lines[10], `"status": "cleaned"`) {
			t.Errorf("the end is %s", lines[10])
		}
	})
}
