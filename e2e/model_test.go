//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/model/modeltest"
)

// A scriptedModel makes calls, one after another, and once it is given the last result, it
// repeats them as its last word.
type scriptedModel struct{ *modeltest.Server }

type scriptedCall struct {
	tool  string
	input map[string]any
}

func newScriptedModel(t testing.TB, calls ...scriptedCall) scriptedModel {
	t.Helper()
	return scriptedModel{modeltest.Play(t, func(r modeltest.Request) modeltest.Reply {
		asked := r.Asked()
		if n := len(asked.Results); n < len(calls) && len(asked.Tools) > 0 {
			return calling(n, calls[n].tool, calls[n].input)
		}
		return modeltest.Reply{Text: "The tool said " + strings.Join(asked.Results, " and then ")}
	})}
}

// calling is a reply that calls a tool, the n-th call of its conversation.
func calling(n int, tool string, input map[string]any) modeltest.Reply {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(err) // maps, strings and numbers
	}
	return modeltest.Reply{Calls: []modeltest.Call{{ID: fmt.Sprintf("toolu_%d", n), Name: tool, Arguments: string(raw)}}}
}

// tools are the names of those that it was offered.
func (m scriptedModel) tools() (all []string) {
	for _, r := range m.Requests() {
		all = append(all, r.Asked().Tools...)
	}
	return all
}

// results are those of the calls, as text.
func (m scriptedModel) results() (all []string) {
	for _, r := range m.Requests() {
		if got := r.Asked().Results; len(got) > len(all) {
			all = got
		}
	}
	return all
}

// claudeEnv keeps Claude Code to itself: a fake key, the scripted model, no
// calls home.
func claudeEnv(t testing.TB, model string) []string {
	return toolEnv(t,
		"ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY=sk-ant-nobody", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
		"DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false")
}

// TestClaudeCode lists Tine in Claude Code and lets it call a tool through
// Tine, over HTTP and over stdio.
func TestClaudeCode(t *testing.T) {
	t.Parallel()
	claude := need(t, claudeCode(), node, npmEverything)[0]
	g := clientGateway(t)
	for _, tt := range []struct {
		name   string
		add    []string
		config map[string]any
	}{
		{"http", []string{"--transport", "http", "tine", g.url + "/mcp"},
			map[string]any{"type": "http", "url": g.url + "/mcp"}},
		{"stdio", []string{"tine", "--", tineBinary, "stdio", "--state", g.state()},
			map[string]any{"command": tineBinary, "args": []string{"stdio", "--state", g.state()}}},
	} {
		t.Run(tt.name+"/list", func(t *testing.T) {
			t.Parallel()
			env := claudeEnv(t, "http://127.0.0.1:1")
			if _, err := runTool(t.Context(), t, env, claude, append([]string{"mcp", "add", "--scope", "user"}, tt.add...)...); err != nil {
				t.Fatal(err)
			}
			out, err := runTool(t.Context(), t, env, claude, "mcp", "list")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "Connected") || strings.Contains(out, "Failed") {
				t.Errorf("claude mcp list says\n%s", out)
			}
		})
		t.Run(tt.name+"/call", func(t *testing.T) {
			t.Parallel()
			model := newScriptedModel(t, scriptedCall{"mcp__tine__every__echo", map[string]any{"message": "a word from the model"}})
			config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"tine": tt.config}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := runTool(t.Context(), t, claudeEnv(t, model.URL), claude, "-p", "Please say it.",
				"--model", "claude-sonnet-4-5", "--mcp-config", string(config), "--strict-mcp-config", "--allowedTools", "mcp__tine__every__echo")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "Echo: a word from the model") {
				t.Errorf("claude -p says\n%s\nthe model was offered %v", out, model.tools())
			}
		})
	}
}
