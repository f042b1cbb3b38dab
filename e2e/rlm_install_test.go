//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestRLMInstallClaudeCode installs the server rlm in every scope of the real Claude
// Code, which must see it there, in folders and worktrees, and then no more.
func TestRLMInstallClaudeCode(t *testing.T) {
	t.Parallel()
	needsProgram(t, "git")
	const git = "git"
	claude := need(t, claudeCode())[0]
	env := append(claudeEnv(t, "http://127.0.0.1:1"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	base := t.TempDir()
	in := func(dir, program string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil && program != claude { // which fails where it does not know a server
			t.Errorf("%s %q: %v\n%s", filepath.Base(program), args, err, out)
		}
		return string(out)
	}
	repo, worktree, plain := filepath.Join(base, "repo"), filepath.Join(base, "worktree"), filepath.Join(base, "plain")
	for _, dir := range []string{filepath.Join(repo, "sub"), plain} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in(repo, git, "init", "-q")
	in(repo, git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
	in(repo, git, "worktree", "add", "-q", worktree)
	for _, tt := range []struct {
		dir, scope, sees string
		elsewhere        string // where it is known too
	}{
		{filepath.Join(repo, "sub"), "local", "Local config", worktree},
		{worktree, "local", "Local config", repo},
		{plain, "local", "Local config", plain},
		{plain, "project", "Project config", plain},
		{plain, "user", "User config", repo},
	} {
		in(tt.dir, tineBinary, "rlm", "install", "claude-code", "--scope", tt.scope, "--", "--session", "a b")
		for _, dir := range []string{tt.dir, tt.elsewhere} {
			out := in(dir, claude, "mcp", "get", "rlm")
			if !strings.Contains(out, "Scope: "+tt.sees) || !strings.Contains(out, "Command: "+tineBinary) || !strings.Contains(out, "Args: rlm --session a b") {
				t.Errorf("%s scope of %s: claude mcp get says in %s\n%s", tt.scope, tt.dir, dir, out)
			}
		}
		in(tt.dir, tineBinary, "rlm", "uninstall", "claude-code", "--scope", tt.scope)
		if out := in(tt.dir, claude, "mcp", "get", "rlm"); !strings.Contains(out, "No MCP server") {
			t.Errorf("%s scope of %s, after it was removed: claude mcp get says\n%s", tt.scope, tt.dir, out)
		}
	}

	// Both write the file at once, and nothing of either is lost.
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			in(plain, tineBinary, "rlm", "install", "claude-code", "--scope", "user", "--name", fmt.Sprintf("tine%d", i))
		})
		wg.Go(func() { in(plain, claude, "mcp", "add", "--scope", "user", fmt.Sprintf("claude%d", i), "--", "echo") })
	}
	wg.Wait()
	var home string
	for _, v := range env {
		if dir, ok := strings.CutPrefix(v, "HOME="); ok {
			home = dir
		}
	}
	text, err := os.ReadFile(filepath.Join(home, ".claude.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ McpServers map[string]any }
	if err := json.Unmarshal(text, &file); err != nil || len(file.McpServers) != 6 {
		t.Errorf("%v\n%s", err, text)
	}
}
