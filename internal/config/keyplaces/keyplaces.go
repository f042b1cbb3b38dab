package keyplaces

import (
	"path"
	"slices"
	"strings"
)

// OfHome are the places of a home that no setting shows, as paths below it. The last
// name of a path may be a pattern, with exceptions: Is tells what it stands for.
func OfHome() []string { return slices.Clone(ofHome) }

// OfStart are files of a home that may hold keys and that a program may need: unlike
// those of OfHome they are shown where they are named.
func OfStart() []string { return slices.Clone(ofStart) }

// OfSystem are what of the host is private to it, as whole paths whose last name may be
// such a pattern.
func OfSystem() []string { return slices.Clone(ofSystem) }

// InHome is the place of OfHome that a path below a home is, or lies in.
func InHome(rel string) (place string, ok bool) {
	return in(ofHome, path.Clean(rel))
}

// InSystem is the place of OfSystem that a whole path is, or lies in.
func InSystem(whole string) (place string, ok bool) {
	return in(ofSystem, path.Clean(whole))
}

// InProject is the name in a path that files with keys, or their folders, have in
// projects.
func InProject(file string) (name string, ok bool) {
	names := strings.Split(file, "/")
	for i, name := range names {
		if i < len(names)-1 && keyDirs.match(name) {
			return name, true
		}
	}
	name = names[len(names)-1]
	return name, keyFiles.match(name) && !examples.match(name) && !withoutKeys.match(name)
}

func in(places []string, at string) (string, bool) {
	names := strings.Split(at, "/")
	for _, place := range places {
		want := strings.Split(place, "/")
		last := len(want) - 1
		if len(names) <= last || !slices.Equal(names[:last], want[:last]) {
			continue
		}
		if Is(place, names[last]) {
			return place, true
		}
	}
	return "", false
}

// Is reports whether a name in the folder of a place is that place: the last name of its
// path, or one that matches this as a pattern and is not known to be without keys.
func Is(place, name string) bool {
	dir, last := path.Split(place)
	if last == name {
		return true
	}
	ok, _ := path.Match(last, name)
	return ok && !withoutKeys.match(name) && !withoutKeys.names[dir+name]
}

// BelowHome are the places of OfHome in a folder, which is a path below a home; "." is
// the home itself.
func BelowHome(rel string) []string {
	return below(ofHome, path.Clean(rel))
}

// BelowSystem are the places of OfSystem in a folder.
func BelowSystem(whole string) []string {
	return below(ofSystem, path.Clean(whole))
}

func below(places []string, dir string) []string {
	switch dir {
	case ".":
		return slices.Clone(places)
	case "/":
		dir = ""
	}
	var found []string
	for _, place := range places {
		if strings.HasPrefix(place, dir+"/") {
			found = append(found, place)
		}
	}
	return found
}
