package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Where a server is known.
const (
	scopeLocal   = "local"   // to one person, in one project
	scopeProject = "project" // to all who have the project's files
	scopeUser    = "user"    // to one person, in all projects
)

// rlmClient is a program that starts MCP servers.
type rlmClient struct {
	name, title string
	scopes      []string // the default first
	key         string   // of the servers in its file
	comments    bool     // whether it reads comments and trailing commas
	typed       bool     // whether servers have a type
	starts      bool     // whether it starts servers in the project, with the PATH of a shell
	folder      string   // what it replaces by the folder that is open

	// file is the config file of a scope, and check what to do after a change.
	file  func(at places, scope string) (string, error)
	check func(p *clientPlace) string
}

var rlmClients = []*rlmClient{
	{
		name: "claude-code", title: "Claude Code", scopes: []string{scopeLocal, scopeProject, scopeUser},
		key: "mcpServers", typed: true, starts: true,
		file: func(at places, scope string) (string, error) {
			if scope == scopeProject {
				return filepath.Join(at.project, ".mcp.json"), nil
			}
			return claudeFile(at)
		},
		check: func(p *clientPlace) string {
			check := "sessions that start from now on have it; check it with: claude mcp get " + p.name
			if p.scope == scopeProject {
				check = "Claude Code asks once whether to use it; check it with: claude mcp get " + p.name
			}
			if p.scope == scopeLocal {
				check += ", in " + shellWord(p.keys[1])
			}
			return check
		},
	},
	{
		name: "claude-desktop", title: "Claude Desktop", scopes: []string{scopeUser},
		key:  "mcpServers",
		file: func(at places, _ string) (string, error) { return desktopFile(at) },
		check: func(*clientPlace) string {
			return "quit Claude Desktop and start it again; Settings > Developer lists its servers"
		},
	},
	{
		name: "cursor", title: "Cursor", scopes: []string{scopeUser, scopeProject},
		key: "mcpServers", comments: true, folder: "${workspaceFolder}",
		file: func(at places, scope string) (string, error) {
			if scope == scopeProject {
				return filepath.Join(at.project, ".cursor", "mcp.json"), nil
			}
			return at.below(at.home, ".cursor", "mcp.json")
		},
		check: func(*clientPlace) string {
			return "Cursor lists it in its settings, under MCP; switch it on there if it is off"
		},
	},
	{
		name: "vscode", title: "VS Code", scopes: []string{scopeUser, scopeProject},
		key: "servers", comments: true, typed: true, folder: "${workspaceFolder}",
		file: func(at places, scope string) (string, error) {
			if scope == scopeProject {
				return filepath.Join(at.project, ".vscode", "mcp.json"), nil
			}
			return codeFile(at)
		},
		check: func(p *clientPlace) string {
			return fmt.Sprintf(`run "MCP: List Servers" from the Command Palette of VS Code, choose %s and start it`, p.name)
		},
	},
}

func findClient(name string) *rlmClient {
	for _, client := range rlmClients {
		if client.name == name {
			return client
		}
	}
	return nil
}

func clientNames() []string {
	var names []string
	for _, client := range rlmClients {
		names = append(names, client.name)
	}
	return names
}

// clientPlace is where a server stands in the config of a client.
type clientPlace struct {
	client  *rlmClient
	scope   string
	project string // absolute
	file    string
	lock    string   // what Claude Code holds while it writes its file
	keys    []string // from the top of the file to the server
	name    string
}

// shared reports whether the file belongs to the project.
func (p *clientPlace) shared() bool { return p.scope == scopeProject }

func (c *cli) clientPlace(name string, o installFlags) (*clientPlace, error) {
	client := findClient(name)
	if client == nil {
		return nil, usagef("unknown client %q%s; it is one of %s", name, didYouMean(name, clientNames()), strings.Join(clientNames(), ", "))
	}
	p := &clientPlace{client: client, scope: o.scope, name: o.name}
	if p.scope == "" {
		p.scope = client.scopes[0]
	}
	switch {
	case !slices.Contains(client.scopes, p.scope):
		return nil, usagef("--scope %s: %s has %s", p.scope, client.title, strings.Join(client.scopes, ", "))
	case !clientName.MatchString(o.name):
		return nil, usagef("--name %q: the name of a server has up to 64 letters, digits, hyphens and underscores", o.name)
	}
	var err error
	if p.project, err = filepath.Abs(o.project); err != nil {
		return nil, err
	}
	if info, err := os.Stat(p.project); err != nil || !info.IsDir() {
		return nil, usagef("--project %s: there is no such folder", o.project)
	}
	p.keys = []string{client.key, p.name}
	if p.scope == scopeLocal {
		p.keys = []string{"projects", claudeProject(runtime.GOOS, p.project), client.key, p.name}
	}
	if o.file != "" {
		p.file, err = filepath.Abs(o.file)
	} else {
		p.file, err = client.file(c.places(p.project), p.scope)
	}
	p.lock = p.file + ".lock"
	return p, err
}

// places is what the place of a config file depends on.
type places struct {
	goos    string
	getenv  func(string) string
	home    string
	project string
}

func (c *cli) places(project string) places {
	at := places{goos: runtime.GOOS, getenv: c.getenv, home: c.getenv("HOME"), project: project}
	if at.goos == "windows" {
		at.home = c.getenv("USERPROFILE")
	}
	return at
}

// below is a path in a folder of the user, which the environment may not name.
func (at places) below(dir string, path ...string) (string, error) {
	if dir == "" {
		return "", errors.New("the environment does not say where the home folder is; name the client's config file with --file")
	}
	return filepath.Abs(filepath.Join(append([]string{dir}, path...)...))
}

// appData is where programs with windows keep their settings.
func (at places) appData() string {
	switch at.goos {
	case "windows":
		if dir := at.getenv("APPDATA"); dir != "" {
			return dir
		}
		if at.home != "" {
			return filepath.Join(at.home, "AppData", "Roaming")
		}
	case "darwin":
		if at.home != "" {
			return filepath.Join(at.home, "Library", "Application Support")
		}
	default:
		return userConfigDir(at.goos, at.getenv)
	}
	return ""
}

// claudeFile is Claude Code's file for the user. An older name comes first where there
// is such a file, as in Claude Code.
func claudeFile(at places) (string, error) {
	dir, old := at.getenv("CLAUDE_CONFIG_DIR"), at.getenv("CLAUDE_CONFIG_DIR")
	if dir == "" && at.home != "" {
		dir, old = at.home, filepath.Join(at.home, ".claude")
	}
	path, err := at.below(dir, ".claude.json")
	if err != nil {
		return "", err
	}
	old = filepath.Join(old, ".config.json")
	if info, err := os.Stat(old); err == nil && info.Mode().IsRegular() {
		_, missing := os.Stat(path)
		if info.Size() > 0 || errors.Is(missing, fs.ErrNotExist) && info.Mode()&0o222 != 0 {
			return filepath.Abs(old)
		}
	}
	return path, nil
}

// desktopFile is Claude Desktop's file. On Windows an app of a package has a Roaming
// folder of its own, and does not see the user's.
func desktopFile(at places) (string, error) {
	const name = "claude_desktop_config.json"
	if at.goos != "windows" || at.getenv("LOCALAPPDATA") == "" {
		return at.below(at.appData(), "Claude", name)
	}
	packages := filepath.Join(at.getenv("LOCALAPPDATA"), "Packages")
	var found []string
	entries, _ := os.ReadDir(packages) // without packages there is none
	for _, e := range entries {
		dir := filepath.Join(packages, e.Name(), "LocalCache", "Roaming", "Claude")
		if info, err := os.Stat(dir); strings.HasPrefix(e.Name(), "Claude_") && err == nil && info.IsDir() {
			found = append(found, filepath.Join(dir, name))
		}
	}
	switch len(found) {
	case 0:
		return at.below(at.appData(), "Claude", name)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("there are several installations of Claude Desktop; name the file of one with --file: %s", strings.Join(found, ", "))
}

// codeFile is VS Code's file of the default profile.
func codeFile(at places) (string, error) {
	if dir := at.getenv("VSCODE_PORTABLE"); dir != "" {
		return at.below(dir, "user-data", "User", "mcp.json")
	}
	dir := at.getenv("VSCODE_APPDATA")
	if dir == "" {
		dir = at.appData()
	}
	return at.below(dir, "Code", "User", "mcp.json")
}

// claudeProject is the key that Claude Code has for a folder: the top of its Git
// repository, of the main one if it is a linked worktree, else the folder itself.
func claudeProject(goos, dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for top := dir; ; top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, ".git")); err == nil {
			dir = mainWorktree(top)
			break
		}
		if top == filepath.Dir(top) {
			break
		}
	}
	switch goos {
	case "darwin":
		dir = norm.NFC.String(dir)
	case "windows":
		dir = strings.ReplaceAll(dir, `\`, "/")
	}
	return dir
}

// mainWorktree is the folder of the repository that a worktree is linked to. Others,
// such as submodules, are repositories themselves.
func mainWorktree(top string) string {
	read := func(path ...string) string {
		text, _ := readFile(filepath.Join(path...), 1<<16) // a folder has no text
		return strings.TrimSpace(string(text))
	}
	from := func(dir, path string) string {
		if filepath.IsAbs(path) {
			return filepath.Clean(path)
		}
		return filepath.Join(dir, path)
	}
	link, linked := strings.CutPrefix(read(top, ".git"), "gitdir:")
	admin := from(top, strings.TrimSpace(link))
	common, back := read(admin, "commondir"), read(admin, "gitdir")
	if !linked || common == "" || back == "" {
		return top
	}
	common = from(admin, common)
	if filepath.Dir(admin) != filepath.Join(common, "worktrees") || !sameFile(from(admin, back), filepath.Join(top, ".git")) {
		return top
	}
	if filepath.Base(common) == ".git" {
		common = filepath.Dir(common)
	}
	if real, err := filepath.EvalSymlinks(common); err == nil {
		common = real
	}
	return common
}
