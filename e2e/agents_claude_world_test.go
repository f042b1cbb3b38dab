//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// claudeKey is the key in the environment of the gateway, for Claude Code alone.
const claudeKey = "sk-of-the-gateway-0123456789"

// A claudeWorld is a gateway whose agents are Claude Code. The model plays each agent by
// the name that its system prompt begins with.
type claudeWorld struct {
	*gateway
	program string // Claude Code
	model   *modeltest.Server
}

// newClaudeWorld prepares a gateway with blueprints, which the test starts.
func newClaudeWorld(t *testing.T, servers string, blueprints map[string]string, play map[string]func(modeltest.Asked) modeltest.Reply) *claudeWorld {
	t.Helper()
	w := &claudeWorld{program: need(t, claudeCode())[0]}
	w.model = modeltest.Play(t, func(r modeltest.Request) modeltest.Reply {
		asked := r.Asked()
		name := agentOf(asked)
		if play[name] == nil {
			t.Errorf("a request of no agent: %s", r.Body)
			return modeltest.Reply{Status: 400}
		}
		return play[name](asked)
	})
	w.gateway = newGateway(t, fmt.Sprintf("servers:\n%s  mem: {builtin: memory}\n  orchestrator: {builtin: orchestrator}\nagents:\n  executors:\n    claude-code: {type: claude-code, command: %q}\n", servers, w.program),
		"ANTHROPIC_API_KEY="+claudeKey, "ANTHROPIC_BASE_URL="+w.model.URL, "HOME="+t.TempDir())
	for name, text := range blueprints {
		blueprints[name] = "system_prompt: You are the agent " + name + ", edition one.\n" + text
	}
	w.writeAgents(t, blueprints)
	return w
}

// agentOf is the agent whose system prompt a request has.
func agentOf(a modeltest.Asked) string {
	m := regexp.MustCompile(`You are the agent (\w+)`).FindStringSubmatch(a.System)
	if m == nil {
		return ""
	}
	return m[1]
}

// asked are the requests of an agent so far.
func (w *claudeWorld) asked(agent string) (all []modeltest.Request) {
	for _, r := range w.model.Requests() {
		if agentOf(r.Asked()) == agent {
			all = append(all, r)
		}
	}
	return all
}

// blueprint is the text of a blueprint.
func (w *claudeWorld) blueprint(t *testing.T, agent string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "agents", agent, "agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// processes are those that do a run: Claude Code, and the shell that waits for it.
func (w *claudeWorld) processes(run string) (claude, others []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), w.state()) || !strings.Contains(string(line), run) {
			continue // it has ended meanwhile, or is another one
		}
		var pid int
		fmt.Sscanf(path, "/proc/%d/", &pid)
		if strings.HasPrefix(string(line), w.program+"\x00") {
			claude = append(claude, pid)
		} else {
			others = append(others, pid)
		}
	}
	return claude, others
}

// gone holds that no process of a run is left.
func (w *claudeWorld) gone(t *testing.T, run string) {
	t.Helper()
	if claude, others := w.processes(run); len(claude)+len(others) > 0 {
		t.Errorf("of %s the processes %v and %v are left", run, claude, others)
	}
}

// A trap is a home and a project whose files would have Claude Code do and say other
// things.
type trap struct{ home, project, log string }

// words are in what the model is asked where a file of the trap was read.
var trapWords = []string{"MEMORY_OF_THE_", "SETTINGS_MODEL", "STRAY_"}

func newTrap(t *testing.T) *trap {
	t.Helper()
	p := &trap{t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "log")}
	put := func(text string, path ...string) {
		t.Helper()
		name := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := `{"hooks":[{"type":"command","command":"echo HOOKED >>` + p.log + `"}]}`
	settings := `{"hooks":{"SessionStart":[` + command + `],"UserPromptSubmit":[` + command + `],"Stop":[` + command + `]},
"env":{"ANTHROPIC_MODEL":"SETTINGS_MODEL"},"permissions":{"deny":["mcp__mem"]},"enableAllProjectMcpServers":true}`
	servers := `{"mcpServers":{"stray":{"command":"sh","args":["-c","echo STRAY >>` + p.log + `"]}}}`
	// A program whose CLAUDE_CONFIG_DIR is home/.claude has its servers in a file there.
	put(servers, p.home, ".claude.json")
	put(servers, p.home, ".claude", ".claude.json")
	for dir, whose := range map[string]string{p.home: "USER", p.project: "PROJECT"} {
		put(settings, dir, ".claude", "settings.json")
		put(settings, dir, ".claude", "settings.local.json")
		put(servers, dir, ".mcp.json")
		put("MEMORY_OF_THE_"+whose, dir, "CLAUDE.md")
		put("MEMORY_OF_THE_"+whose, dir, "CLAUDE.local.md")
		put("MEMORY_OF_THE_"+whose, dir, ".claude", "CLAUDE.md")
		put("MEMORY_OF_THE_"+whose, dir, "AGENTS.md")
		put("---\nname: stray\ndescription: STRAY_AGENT\n---\nStray.", dir, ".claude", "agents", "stray.md")
		put("---\nname: stray\ndescription: STRAY_SKILL\n---\nStray.", dir, ".claude", "skills", "stray", "SKILL.md")
	}
	return p
}

// sprung is what the programs of the trap have written.
func (p *trap) sprung(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// TestClaudeTrap holds that the trap of the other tests is one: Claude Code as a user
// starts it runs its hooks and servers, and tells the model of its memories.
func TestClaudeTrap(t *testing.T) {
	t.Parallel()
	program := need(t, claudeCode())[0]
	p := newTrap(t)
	model := newScriptedModel(t)
	env := append(claudeEnv(t, model.URL), "HOME="+p.home, "CLAUDE_CONFIG_DIR="+filepath.Join(p.home, ".claude"))
	if _, err := runTool(t.Context(), t, env, "sh", "-c", `cd "$1" && exec "$2" -p Hello.`, "sh", p.project, program); err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "the log", p.sprung(t), "HOOKED", "STRAY")
	var told strings.Builder
	for _, r := range model.Requests() {
		told.Write(r.Body)
	}
	for _, word := range slices.Concat(trapWords, []string{"MEMORY_OF_THE_USER", "MEMORY_OF_THE_PROJECT"}) {
		testkit.Has(t, "what the model was told", told.String(), word)
	}
}
