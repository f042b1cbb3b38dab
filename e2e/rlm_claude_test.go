//go:build linux && (amd64 || arm64)

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

// claude runs Claude Code in a project, with tine rlm as its only server and the
// tools allowed, and returns its answer.
func (w *rlmWorld) claude(t *testing.T, project, model string, tools ...string) string {
	t.Helper()
	program := need(t, claudeCode())[0]
	config, err := json.Marshal(object{"mcpServers": object{"rlm": object{
		"command": tineBinary, "args": slices.Concat([]string{"rlm"}, w.args),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-p", "Please work.", "--model", "claude-sonnet-4-5", "--mcp-config", string(config), "--strict-mcp-config", "--allowedTools"}
	return w.runClaude(t, project, model, program, append(args, tools...)...)
}

// beside is a command in a project with the settings of Claude Code, whose model is at an
// address.
func (w *rlmWorld) beside(t *testing.T, project, model, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = project
	cmd.Env = append(slices.Clone(w.env), claudeEnv(t, model)...)
	cmd.Env = append(cmd.Env, "HOME="+w.home)
	if w.bin != "" {
		cmd.Env = append(cmd.Env, "PATH="+w.bin+":"+os.Getenv("PATH"))
	}
	return cmd
}

// runClaude runs Claude Code to its end.
func (w *rlmWorld) runClaude(t *testing.T, project, model, program string, args ...string) string {
	t.Helper()
	cmd := w.beside(t, project, model, program, args...)
	cmd.Stderr = &w.log
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("claude: %v\n%s\n%s", err, out, tail(w.log.String(), 4<<10))
	}
	return string(out)
}

// TestRLMInClaudeCode connects Claude Code to tine rlm: it finds the tools, calls them
// with what the model asks for, and gives the results back to the model. The next
// conversation has the variables of the last.
func TestRLMInClaudeCode(t *testing.T) {
	t.Parallel()
	need(t, claudeCode())
	w := rlmSandbox(t)
	project := w.project(t, map[string]string{"build.log": "PASS: TestRestore (61.2s)\nPASS: TestCrowd (48.0s)\n"})
	const exec, load = "mcp__rlm__rlm_exec", "mcp__rlm__rlm_load"
	model := newScriptedModel(t, scriptedCall{load, object{"path": project + "/build.log", "var_name": "log"}},
		scriptedCall{exec, object{"code": "found = len(log); log.count('PASS')"}},
		scriptedCall{exec, object{"code": "print('€ 😀'); 1/0"}})
	said := w.claude(t, project, model.URL, exec, load)
	for _, tool := range rlmTools {
		if !slices.Contains(model.tools(), "mcp__rlm__rlm_"+tool) {
			t.Errorf("%s was not offered to the model: %v", tool, model.tools())
		}
	}
	results := model.results()
	if len(results) != 3 {
		t.Fatalf("the model was given %q, and claude says %s", results, said)
	}
	testkit.Has(t, "the first result", results[0], "Loaded "+project+"/build.log into log (50 chars)")
	testkit.Lacks(t, "the first result", results[0], "TestRestore")
	testkit.Has(t, "the second result", results[1], `2`)
	testkit.Has(t, "the third result", results[2], "€ 😀", "ZeroDivisionError")
	testkit.Has(t, "claude", said, "The tool said", "ZeroDivisionError")
	w.nothing(t)

	model = newScriptedModel(t, scriptedCall{exec, object{"code": "found"}})
	testkit.Has(t, "claude in the next conversation", w.claude(t, project, model.URL, exec), "50")
	w.nothing(t)
	if rooms := w.rooms(t); len(rooms) != 1 {
		t.Errorf("the state folder has %v", rooms)
	}
}
