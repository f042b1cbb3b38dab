package keyplaces

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Search looks for the files with keys of projects.
type Search struct {
	// ReadDir lists a folder, sorted.
	ReadDir func(dir string) ([]fs.DirEntry, error)
	// Dirs bounds how many folders are listed.
	Dirs int
	// Most bounds what is found; 0 for no bound.
	Most int
}

// Below finds the files and folders with keys in a folder and in those below it, one
// and two deep. The folders of the first level come first, and those without a dot, so
// that what is left out of very many is what is least likely to have keys.
func (s Search) Below(top string) []string {
	var found []string
	dirs := []string{top}
	for range 3 {
		var plain, dotted []string
		for _, dir := range dirs {
			for _, e := range s.list(dir) {
				name, at := e.Name(), path.Join(dir, e.Name())
				keys := hasKeys(e)
				if keys {
					found = append(found, at)
				} else if e.IsDir() {
					found = append(found, s.inside(dir, name)...)
				}
				if s.Most > 0 && len(found) >= s.Most {
					return found[:s.Most]
				}
				switch {
				case !e.IsDir() || keys || slices.Contains(notProjects, name):
				case strings.HasPrefix(name, "."):
					dotted = append(dotted, at)
				default:
					plain = append(plain, at)
				}
			}
			if s.Dirs <= 0 {
				return found
			}
		}
		dirs = append(plain, dotted...)
	}
	return found
}

// list lists a folder; one that can't be listed has nothing in it.
func (s *Search) list(dir string) []fs.DirEntry {
	if s.Dirs--; s.Dirs < 0 {
		return nil
	}
	list, err := s.ReadDir(dir)
	if err != nil {
		return nil
	}
	return list
}

// inside finds the files of belowProjects that are in a folder of a project.
func (s *Search) inside(project, name string) []string {
	var found []string
	lists := map[string][]fs.DirEntry{}
	for _, place := range belowProjects {
		if first, _, _ := strings.Cut(place, "/"); first != name {
			continue
		}
		dir := path.Join(project, path.Dir(place))
		list, known := lists[dir]
		if !known {
			list = s.list(dir)
			lists[dir] = list
		}
		for _, e := range list {
			if ok, _ := path.Match(path.Base(place), e.Name()); ok && !examples.match(e.Name()) {
				found = append(found, path.Join(dir, e.Name()))
			}
		}
	}
	return found
}

// Decides reports whether an entry of a folder can make a difference to what a search
// finds there: whether it is a folder, or may have keys.
func Decides(dir string, e fs.DirEntry) bool {
	return e.IsDir() || hasKeys(e) || !examples.match(e.Name()) && slices.ContainsFunc(belowProjects, func(place string) bool {
		ok, _ := path.Match(path.Base(place), e.Name())
		return ok && strings.HasSuffix(dir, "/"+path.Dir(place))
	})
}

// hasKeys reports whether an entry of a folder has keys, by its name. A link may be to
// either.
func hasKeys(e fs.DirEntry) bool {
	link := e.Type()&fs.ModeSymlink != 0
	if (e.IsDir() || link) && keyDirs.match(e.Name()) {
		return true
	}
	return !e.IsDir() && keyFiles.match(e.Name()) && !examples.match(e.Name()) && !withoutKeys.match(e.Name())
}

var (
	keyDirs     = compile(dirsInProjects)
	keyFiles    = compile(inProjects)
	examples    = compile(notSecret)
	withoutKeys = compile(notKeys)
)
