package workspace

import (
	"path/filepath"
	"slices"
	"strings"
)

// at is where members see a workspace.
type at struct {
	root  string
	names []string // all paths that mean the root, slash-separated
}

// At is the tree as seen by a program that has it at a path. Absolute paths, in links
// and from callers, that begin with one of the others mean the same.
func (w *Workspace) At(path string, others ...string) FS {
	names := []string{filepath.ToSlash(path)}
	if w.dir == "" {
		others = append(others, treeRoot)
	} else {
		others = append(others, w.dir)
	}
	for _, other := range others {
		if other = filepath.ToSlash(other); other != "" && !slices.Contains(names, other) {
			names = append(names, other)
		}
	}
	switch f := w.fs.(type) {
	case *folder:
		for _, name := range f.names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return &folder{root: f.root, name: path, names: names}
	case *treeFS:
		seen := *f
		seen.at = &at{root: path, names: names}
		return &seen
	}
	return w.fs
}

// Inside is the part of an absolute path that is below the root of a tree, by
// any of the names that the root has; false where it is not below it.
func Inside(f FS, path string) (rest string, ok bool) {
	names := []string{filepath.ToSlash(f.Root())}
	switch f := f.(type) {
	case *folder:
		names = append(names, f.names...)
	case *treeFS:
		if f.at != nil {
			names = f.at.names
		}
	}
	for _, name := range names {
		name = strings.TrimSuffix(name, "/")
		if rest, ok := strings.CutPrefix(path, name); ok && (rest == "" || rest[0] == '/') {
			return strings.TrimPrefix(rest, "/"), true
		}
	}
	return "", false
}
