package srt

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// Denied reports whether a file or folder may not be read, by where its path leads and by
// the links on the way. A path that is not whole is denied.
func (s *Settings) Denied(p string) bool {
	return !filepath.IsAbs(p) || slices.ContainsFunc(config.LinkChain(p), s.deniedAt)
}

// MayRead is whether Denied is not so.
func (s *Settings) MayRead(p string) bool { return !s.Denied(p) }

// DeniedFile is Denied for a file that was opened, by where it is and not by the name that
// it was opened with. A file that has no name any more is denied.
func (s *Settings) DeniedFile(f *os.File) bool {
	at, ok := placeOf(f)
	return !ok || s.deniedAt(at)
}

// deniedAt judges a path without links.
func (s *Settings) deniedAt(p string) bool {
	deny, allow := 0, 0
	for _, r := range s.denyRead {
		deny = max(deny, r.denies(p))
	}
	if deny == 0 {
		return false
	}
	for _, r := range s.allowRead {
		allow = max(allow, r.allows(p))
	}
	return allow < deny
}

// ReadFolders are the files and folders that hold all that may be read, for what can allow
// and not deny: the rest is for Denied.
func (s *Settings) ReadFolders() []string {
	if !s.deniedAt("/") {
		return []string{"/"}
	}
	var list []string
	for _, r := range s.allowRead {
		at := place(r.path)
		if r.rest != nil {
			at = place(r.base)
		}
		if !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return list
}

// Files and folders that srt never lets be written, wherever they are.
var (
	neverFiles = []string{".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc", ".mcp.json"}
	neverIn    = []string{"/.vscode/", "/.idea/", "/.claude/commands/", "/.claude/agents/", "/.git/hooks/", "/.git/config/"}
)

// MayWrite reports whether a file or folder may be written or made.
func (s *Settings) MayWrite(p string) bool {
	if s.Denied(p) {
		return false
	}
	at := final(p)
	lower := strings.ToLower(at)
	switch {
	case !slices.ContainsFunc(s.allowWrite, func(r rule) bool { return r.allows(at) > 0 }):
		return false
	case slices.ContainsFunc(config.LinkChain(p), func(p string) bool {
		return slices.ContainsFunc(s.denyWrite, func(r rule) bool { return r.denies(p) > 0 })
	}):
		return false
	case slices.Contains(neverFiles, path.Base(lower)):
		return false
	}
	return !slices.ContainsFunc(neverIn, func(part string) bool { return strings.Contains(lower+"/", part) })
}

// WriteFolders are the folders, and single files, that may be written as they are, for what
// can allow and not deny. It is an error where a rule denies a part of one, or that it is read.
func (s *Settings) WriteFolders() ([]string, error) {
	var list []string
	for _, r := range s.allowWrite {
		at := place(r.path)
		if final(r.path) != at {
			return nil, config.ProblemAt(s.file, r.at, "%s: %s is a link, which allows nothing of what it leads to; name %s", r.where, at, final(r.path))
		}
		if slices.ContainsFunc(s.denyWrite, func(d rule) bool { return d.denies(at) > 0 }) {
			continue // denied as a whole
		}
		for _, d := range s.denyWrite {
			if d.reaches(at) {
				return nil, config.ProblemAt(s.file, d.at, "%s: lies in %s, which %s lets be written; a part of a folder can't be kept from being written; name the folders beside it instead", d.where, at, r.where)
			}
		}
		for _, d := range s.denyRead {
			if s.deniedAt(at) && d.denies(at) > 0 || d.reaches(at) {
				return nil, config.ProblemAt(s.file, r.at, "%s: what is written can be read, and %s denies that for %s; remove one of them", r.where, d.where, d.shown())
			}
		}
		if !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return list, nil
}

// reaches reports whether a rule that denies has, or may come to have, something within a
// folder.
func (r rule) reaches(folder string) bool {
	for _, at := range []string{path.Clean(r.path), place(r.path), final(r.path)} {
		if at != folder && config.Within(at, folder) {
			return true
		}
	}
	if r.rest == nil {
		return false
	}
	return r.mayMatchIn(folder, path.Clean(r.base)) || r.mayMatchIn(folder, final(r.base))
}
