package layout

import (
	"io/fs"
	"path"
	"slices"

	"github.com/tine-mcp/tine/internal/config/keyplaces"
)

// Bounds of the search for keys of projects.
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

// projectKeys finds the files with keys in a home and its projects. Programs need their
// own, so that such a file can be asked for by name.
func (p *planner) projectKeys(home string) []string {
	return keyplaces.Search{
		ReadDir: func(dir string) ([]fs.DirEntry, error) {
			return p.search(dir, maxProjectEntries, func(e fs.DirEntry) bool { return keyplaces.Decides(dir, e) })
		},
		Dirs: maxProjectDirs,
	}.Below(home)
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
