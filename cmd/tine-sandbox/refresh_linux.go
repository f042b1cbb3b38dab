//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// A root binds some files of the host one by one: those that the config names, and
// the entries of a folder in which something is hidden. Such a bind keeps the file
// that it was made of when the host puts another in its place, and a file that the
// host adds to the folder has none. So a live root is a mount that those of its
// sandboxes follow, and is brought up to date here: what is mounted in it, the
// kernel mounts in the namespace of every gofer that has a copy of it.

// madeRoot is what was put into a live root.
type madeRoot struct {
	mu    sync.Mutex
	units map[string]madeUnit // by their paths
	masks []string            // that are in none of them
}

// A unit is a part that lies in no other part that shows something of the host, with
// the parts and the masks that lie in it.
type unit struct {
	part  control.Part
	inner []control.Part
	masks []string
}

// fileID tells files apart.
type fileID struct{ dev, ino uint64 }

// madeUnit is a unit, and the files that its parts show.
type madeUnit struct {
	unit
	ids []fileID
}

// unitsOf are the units of a root, in the order of its parts, and the masks that are in
// none of them.
func unitsOf(r *control.Root) (units []*unit, masks []string) {
	binds := make(map[string]*unit)
	around := func(at string) *unit {
		for ; at != "/" && at != "."; at = filepath.Dir(at) {
			if u := binds[at]; u != nil {
				return u
			}
		}
		return nil
	}
	for _, p := range r.Parts {
		if u := around(filepath.Dir(p.Path)); u != nil {
			u.inner = append(u.inner, p)
			continue
		}
		u := &unit{part: p}
		units = append(units, u)
		if p.Source != "" {
			binds[p.Path] = u
		}
	}
	for _, at := range r.Masks {
		if u := around(at); u != nil {
			u.masks = append(u.masks, at)
		} else {
			masks = append(masks, at)
		}
	}
	return units, masks
}

func (h *helper) keepRoot(dir string, m *madeRoot) { h.roots.Store(dir, m) }

func (h *helper) forgetRoot(dir string) { h.roots.Delete(dir) }

// make puts a unit into a folder. An entry of a folder of the host that went meanwhile
// is left out, and so is the unit where it is nothing else.
func (u *unit) make(h *helper, dir string) (made madeUnit, there bool, err error) {
	made = madeUnit{unit: *u}
	for i, p := range append([]control.Part{u.part}, u.inner...) {
		err := h.addPart(dir, p)
		if p.Of != "" && errors.Is(err, fs.ErrNotExist) {
			if i == 0 {
				return made, false, nil
			}
			made.ids = append(made.ids, fileID{})
			continue
		}
		if err != nil {
			return made, false, fmt.Errorf("%s in the root: %w", p.Path, err)
		}
		id, err := idOf(within(dir, p.Path), p)
		if err != nil {
			return made, false, fmt.Errorf("%s in the root: %w", p.Path, err)
		}
		made.ids = append(made.ids, id)
	}
	return made, true, nil
}

// idOf is the file at a path, where a part shows one of the host.
func idOf(path string, p control.Part) (fileID, error) {
	if p.Source == "" {
		return fileID{}, nil
	}
	var s unix.Stat_t
	err := unix.Stat(path, &s)
	return fileID{uint64(s.Dev), s.Ino}, err
}

// differs reports whether a unit is not as it was made. The kernel takes a mask away
// with the file that is below it.
func (was madeUnit) differs(root string, u *unit) bool {
	if !reflect.DeepEqual(was.unit, *u) {
		return true
	}
	for i, p := range append([]control.Part{u.part}, u.inner...) {
		if id, err := idOf(p.Source, p); err != nil || id != was.ids[i] {
			return true
		}
	}
	return slices.ContainsFunc(u.masks, func(at string) bool {
		info, err := os.Lstat(within(root, at))
		return err == nil && info.Mode()&fs.ModeSymlink == 0 && !mounted(within(root, at))
	})
}

// same reports whether a unit is the same but for what lies in it.
func (was madeUnit) same(u *unit) bool {
	id, err := idOf(u.part.Source, u.part)
	return err == nil && id == was.ids[0] && reflect.DeepEqual(was.part, u.part)
}

// refreshRoot makes a live root what its parts and masks say now. What can't be changed
// stays as it is, and is named in the error; all else is changed.
func (h *helper) refreshRoot(r *control.Root) (err error) {
	if r != nil && r.File != "" {
		if r, err = readRoot(r); err != nil {
			return err
		}
	}
	if r == nil || !filepath.IsAbs(r.Dir) {
		return errors.New("no root is given")
	}
	found, ok := h.roots.Load(r.Dir)
	if !ok {
		return errors.New("the root is not kept up to date")
	}
	m := found.(*madeRoot)
	m.mu.Lock()
	defer m.mu.Unlock()
	// The copies that sandboxes have stay read-only.
	if err := unix.Mount("", r.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer func() {
		err = errors.Join(err, unix.Mount("", r.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""))
	}()
	stage, err := newStage(r.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.drop()) }()
	units, masks := unitsOf(r)
	errs := m.change(h, stage, r.Dir, units)
	for _, u := range units {
		if _, there := m.units[u.part.Path]; there {
			continue
		}
		if err := stage.add(h, m, r.Dir, u); err != nil {
			errs = append(errs, fmt.Errorf("%s in the root: %w", u.part.Path, err))
		}
	}
	// What is of our own and has a mask is empty.
	covered := slices.DeleteFunc(slices.Clone(masks), func(at string) bool {
		return slices.Contains(m.masks, at) && mounted(within(r.Dir, at))
	})
	m.masks = masks
	return errors.Join(append(errs, maskAll(r.Dir, covered))...)
}

// change makes the units that a root has what they are to be, and takes away the others.
func (m *madeRoot) change(h *helper, stage *stage, root string, units []*unit) (errs []error) {
	want := make(map[string]*unit)
	for _, u := range units {
		want[u.part.Path] = u
	}
	// What is below goes first.
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(m.units))) {
		was, u := m.units[at], want[at]
		var err error
		switch {
		case u != nil && !was.differs(root, u):
		case u != nil && u.part.Source != "" && was.same(u):
			err = stage.changeInner(h, m, root, was, u)
		case u != nil && was.part.Source != "" && u.part.Source != "":
			err = stage.replace(h, m, root, u)
			if errors.Is(err, fs.ErrNotExist) {
				err = m.remove(root, at, want)
			}
		case u != nil && isFolder(was.part) && isFolder(u.part):
			// Not made anew: a sandbox may have something mounted there.
			if err = h.addPart(root, u.part); err == nil {
				m.units[at] = madeUnit{unit: *u, ids: []fileID{{}}}
			}
		default:
			err = m.remove(root, at, want)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s in the root: %w", at, err))
		}
	}
	return errs
}

// isFolder reports whether a part is a folder of our own.
func isFolder(p control.Part) bool {
	return p.Source == "" && p.Link == "" && p.Text == "" && !p.File
}

// remove takes a unit away, with the masks over it and the folders that were made for
// it alone.
func (m *madeRoot) remove(root, at string, want map[string]*unit) error {
	to := within(root, at)
	if err := unmountAll(to); err != nil {
		return err
	}
	delete(m.units, at)
	err := os.Remove(to)
	switch {
	case errors.Is(err, unix.ENOTEMPTY): // it has others in it, and is a folder like any
		err = os.Chmod(to, 0o755)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	for dir := filepath.Dir(at); err == nil && dir != "/" && (want[dir] == nil || !isFolder(want[dir].part)); dir = filepath.Dir(dir) {
		if _, made := m.units[dir]; made || os.Remove(within(root, dir)) != nil {
			break
		}
	}
	return err
}

// mounted reports whether something is mounted exactly at a path.
func mounted(at string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, at, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
