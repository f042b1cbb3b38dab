package layout

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ofProjects are names of files with keys that lie in the folders of a home, one and
// two deep, as patterns.
var ofProjects = []string{
	".env", ".env.*", ".envrc", ".npmrc", ".netrc", "_netrc", ".pypirc", ".mcp.json", ".git-credentials", ".vault_pass", ".vault_pass.txt",
	"*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ovpn", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*private*.asc", "*secret*.asc",
	"*.kdb", "*.kdbx", "*.psafe3",
}

// dirsOfProjects are such folders.
var dirsOfProjects = []string{"Enpass", "*.agilekeychain", "*.opvault"}

// notSecret are names of files that show what a .env has to have.
var notSecret = []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"}

// notProjects are folders of what was fetched or made, with many others in them.
var notProjects = []string{
	"node_modules", "site-packages", "__pycache__", ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".cache", ".npm", ".pnpm-store", ".yarn", ".bun", ".deno", ".rustup",
	".nvm", ".pyenv", ".rbenv", ".sdkman", ".asdf", ".gradle", ".m2", ".ivy2", ".nuget", ".conda", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".Trash", ".thumbnails",
}

// Bounds of the search for files of ofProjects.
const (
	maxProjectDirs    = 5000
	maxProjectEntries = 50_000 // of one folder
	// maxProjectParts bounds the parts that folders are split into so that a file of
	// theirs stays hidden when the host replaces it. The others have a mask alone.
	maxProjectParts = 2500
)

// shows reports whether a home as a whole is to be seen.
func (p *planner) shows(home string) bool {
	switch p.w.Mode {
	case Host:
		return !matches(notOfHost, append(names(home), "")[0])
	case Dir:
		if real, _, err := p.host.real(p.w.Dir); err == nil && within(real, home) {
			return true
		}
	}
	return slices.ContainsFunc(p.w.AllowRead, func(at string) bool {
		real, _, err := p.host.real(at)
		return err == nil && within(real, home)
	})
}

// projectKeys finds the files with keys of the projects in a home, one and two folders
// deep. Programs need their own, so that such a file can be asked for by name. The
// folders of the first level come first, and those without a dot, so that what is left
// out of a home with very many is what is least likely to have keys.
func (p *planner) projectKeys(home string) []string {
	var found []string
	dirs, left := []string{home}, maxProjectDirs
	for depth := range 3 {
		var plain, dotted []string
		for _, dir := range dirs {
			if left--; left < 0 {
				return found
			}
			list, err := p.host.readDir(dir, maxProjectEntries)
			if err != nil {
				continue
			}
			for _, e := range list {
				name, at := e.Name(), path.Join(dir, e.Name())
				switch {
				case e.IsDir() && slices.Contains(notProjects, name):
				case e.IsDir() && strings.HasPrefix(name, "."):
					dotted = append(dotted, at)
				case e.IsDir():
					plain = append(plain, at)
				}
				if depth > 0 && ofProject(e) {
					found = append(found, at)
				}
			}
		}
		dirs = append(plain, dotted...)
	}
	return found
}

// ofProject reports whether an entry of a folder has keys.
func ofProject(e fs.DirEntry) bool {
	if e.IsDir() {
		return matches(dirsOfProjects, e.Name())
	}
	return matches(ofProjects, e.Name()) && !slices.Contains(notSecret, e.Name())
}

// worthSplitting reports whether a folder may be split for the sake of a project's file.
func (p *planner) worthSplitting(at string) bool {
	parts := 0
	for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
		s, err := p.tree.look(dir)
		if err != nil || s.source == "" {
			break // split already
		}
		list, err := p.host.readDir(s.source, maxEntries)
		if err != nil {
			return false
		}
		if parts += len(list); s.node != nil && s.node.kind == isBind {
			break
		}
	}
	if p.projectParts += parts; p.projectParts > maxProjectParts {
		p.projectParts -= parts
		return false
	}
	return true
}
