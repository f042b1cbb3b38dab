// Package dirs is the declared directories of a program's state, Spec.Dirs: how they
// are seeded, frozen, exported and imported, and how a program learns where they are.
// Each is a folder of that name in a folder of the driver's.
package dirs

import (
	"fmt"
	"path/filepath"
	"slices"
)

// A Set is the directories that were declared when a snapshot was made, by name,
// and whether each was there: a server may remove its own.
type Set map[string]bool

// Check refuses a set that was not made here.
func (s Set) Check() error {
	for name := range s {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	return nil
}

// there are the names of the directories that exist, in order.
func (s Set) there() []string {
	var names []string
	for name, there := range s {
		if there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CheckName refuses a directory that would not lie in its folder.
func CheckName(name string) error {
	if name == "" || name[0] == '.' || !filepath.IsLocal(name) || filepath.Base(name) != name {
		return fmt.Errorf("a state directory can't be called %q", name)
	}
	return nil
}
