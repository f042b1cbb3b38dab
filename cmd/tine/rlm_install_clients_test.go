package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClientFiles(t *testing.T) {
	base := t.TempDir()
	for _, tt := range []struct {
		goos, client, scope string
		env                 map[string]string
		want                string
	}{
		{"linux", "claude-code", scopeUser, nil, "h/.claude.json"},
		{"linux", "claude-code", scopeLocal, map[string]string{"CLAUDE_CONFIG_DIR": "h/c"}, "h/c/.claude.json"},
		{"darwin", "claude-code", scopeProject, map[string]string{"CLAUDE_CONFIG_DIR": "h/c"}, "p/.mcp.json"},
		{"linux", "claude-desktop", scopeUser, nil, "h/.config/Claude/claude_desktop_config.json"},
		{"linux", "claude-desktop", scopeUser, map[string]string{"XDG_CONFIG_HOME": "x"}, "x/Claude/claude_desktop_config.json"},
		{"darwin", "claude-desktop", scopeUser, map[string]string{"XDG_CONFIG_HOME": "x"}, "h/Library/Application Support/Claude/claude_desktop_config.json"},
		{"windows", "claude-desktop", scopeUser, map[string]string{"APPDATA": "a"}, "a/Claude/claude_desktop_config.json"},
		{"windows", "claude-desktop", scopeUser, map[string]string{"APPDATA": "a", "LOCALAPPDATA": "none"}, "a/Claude/claude_desktop_config.json"},
		{"windows", "claude-desktop", scopeUser, map[string]string{"APPDATA": "a", "LOCALAPPDATA": "packaged"}, "packaged/Packages/Claude_abc/LocalCache/Roaming/Claude/claude_desktop_config.json"},
		{"windows", "claude-desktop", scopeUser, map[string]string{"APPDATA": "a", "LOCALAPPDATA": "twice"}, "several installations"},
		{"linux", "cursor", scopeUser, nil, "h/.cursor/mcp.json"},
		{"windows", "cursor", scopeProject, nil, "p/.cursor/mcp.json"},
		{"linux", "vscode", scopeUser, nil, "h/.config/Code/User/mcp.json"},
		{"darwin", "vscode", scopeUser, nil, "h/Library/Application Support/Code/User/mcp.json"},
		{"windows", "vscode", scopeUser, nil, "h/AppData/Roaming/Code/User/mcp.json"},
		{"linux", "vscode", scopeUser, map[string]string{"VSCODE_APPDATA": "v"}, "v/Code/User/mcp.json"},
		{"linux", "vscode", scopeUser, map[string]string{"VSCODE_APPDATA": "v", "VSCODE_PORTABLE": "u"}, "u/user-data/User/mcp.json"},
		{"linux", "vscode", scopeProject, nil, "p/.vscode/mcp.json"},
	} {
		for _, dir := range []string{"packaged/Packages/Claude_abc", "packaged/Packages/Other_abc", "twice/Packages/Claude_a", "twice/Packages/Claude_b"} {
			if err := os.MkdirAll(filepath.Join(base, dir, "LocalCache", "Roaming", "Claude"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		at := places{goos: tt.goos, home: filepath.Join(base, "h"), project: filepath.Join(base, "p")}
		at.getenv = func(key string) string {
			if v := tt.env[key]; v != "" {
				return filepath.Join(base, v)
			}
			return map[string]string{"HOME": at.home, "USERPROFILE": at.home}[key]
		}
		got, err := findClient(tt.client).file(at, tt.scope)
		if err != nil && strings.Contains(err.Error(), tt.want) {
			continue
		}
		if err != nil || got != filepath.Join(base, filepath.FromSlash(tt.want)) {
			t.Errorf("%s of %s on %s, %v: %s, %v; want %s", tt.scope, tt.client, tt.goos, tt.env, got, err, tt.want)
		}
	}
}

// Claude Code goes on with the file of an earlier version, if there is one.
func TestClaudeFileOfAnEarlierVersion(t *testing.T) {
	home := t.TempDir()
	at := places{goos: "linux", home: home, getenv: func(string) string { return "" }}
	now, old := filepath.Join(home, ".claude.json"), filepath.Join(home, ".claude", ".config.json")
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, now},
		{func() { write(t, old, "") }, old},
		{func() { write(t, now, "{}") }, now},
		{func() { write(t, old, "{}") }, old},
	} {
		step.do()
		if got, err := claudeFile(at); err != nil || got != step.want {
			t.Errorf("%s, %v; want %s", got, err, step.want)
		}
	}
}

// Claude Code knows a project by the top of its repository. The layouts are those that
// Git makes.
func TestClaudeProject(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(base, filepath.FromSlash(path)) }
	dir := func(path string) {
		if err := os.MkdirAll(at(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir("plain/sub")
	dir("repo/.git")
	dir("repo/sub")
	dir("repo/nested/.git")
	// A linked worktree, and one whose link goes only one way.
	write(t, at("wt/.git"), "gitdir: "+at("repo/.git/worktrees/wt")+"\n")
	write(t, at("repo/.git/worktrees/wt/commondir"), "../..\n")
	write(t, at("repo/.git/worktrees/wt/gitdir"), at("wt/.git")+"\n")
	write(t, at("fake/.git"), "gitdir: "+at("repo/.git/worktrees/wt")+"\n")
	// A worktree of a bare repository.
	write(t, at("barewt/.git"), "gitdir: ../bare.git/worktrees/barewt\n")
	write(t, at("bare.git/worktrees/barewt/commondir"), "../..\n")
	write(t, at("bare.git/worktrees/barewt/gitdir"), at("barewt/.git")+"\n")
	// A submodule, and a link to nothing.
	write(t, at("repo/mod/.git"), "gitdir: ../.git/modules/mod\n")
	dir("repo/.git/modules/mod")
	write(t, at("lost/.git"), "gitdir: /nowhere\n")
	for from, want := range map[string]string{
		"plain/sub": "plain/sub", "repo": "repo", "repo/sub": "repo", "repo/nested": "repo/nested", "wt": "repo", "fake": "fake",
		"barewt": "bare.git", "repo/mod": "repo/mod", "lost": "lost",
	} {
		if got := claudeProject("linux", at(from)); got != at(want) {
			t.Errorf("%s is the project %s, want %s", from, got, at(want))
		}
	}
	if err := os.Symlink(at("repo/sub"), at("link")); err != nil {
		t.Fatal(err)
	}
	if got := claudeProject("linux", at("link")); got != at("repo") {
		t.Errorf("a link is the project %s", got)
	}
}
