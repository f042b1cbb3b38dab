//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// A stage is where parts are made that sandboxes must not see before they are
// masked.
type stage struct{ dir string }

// newStage makes one beside a root. No sandbox follows it.
func newStage(root string) (*stage, error) {
	s := &stage{root + ".stage"}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tine", s.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return nil, fmt.Errorf("make a place for new parts: %w", err)
	}
	return s, unix.Mount("", s.dir, "", unix.MS_PRIVATE, "")
}

func (s *stage) drop() error { return dropRoot(s.dir) }

// take returns the mount of a unit with all parts and masks that are in it.
func (s *stage) take(h *helper, u *unit) (tree int, made madeUnit, err error) {
	if len(u.inner) == 0 && len(u.masks) == 0 {
		var st unix.Stat_t
		if tree, err = h.take(u.part); err == nil {
			err = unix.Fstat(tree, &st)
		}
		return tree, madeUnit{*u, []fileID{{uint64(st.Dev), st.Ino}}}, err
	}
	made, there, err := u.make(h, s.dir)
	if err == nil && !there {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = maskAll(s.dir, u.masks)
	}
	if err != nil {
		return -1, made, err
	}
	tree, err = unix.OpenTree(unix.AT_FDCWD, within(s.dir, u.part.Path), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, made, fmt.Errorf("take %s: %w", u.part.Source, err)
	}
	return tree, made, nil
}

// add puts a unit into a root that sandboxes see. One that is gone is left out.
func (s *stage) add(h *helper, m *madeRoot, root string, u *unit) error {
	if u.part.Source == "" {
		made, _, err := u.make(h, root)
		if err == nil {
			m.units[u.part.Path] = made
		}
		return err
	}
	tree, made, err := s.take(h, u)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	to := within(root, u.part.Path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := place(tree, to); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	m.units[u.part.Path] = made
	return nil
}

// changeInner changes what lies in a unit. The unit itself stays: gVisor goes on with the
// mount that it has of a folder for as long as that is the same folder. Nothing that is
// in front of something hidden is taken away before that is masked.
func (s *stage) changeInner(h *helper, m *madeRoot, root string, was madeUnit, u *unit) error {
	made := madeUnit{unit: *u, ids: was.ids[:1:1]}
	had := make(map[string]fileID)
	for i, p := range was.inner {
		had[p.Path] = was.ids[i+1]
	}
	for _, p := range u.inner {
		before, there := had[p.Path]
		delete(had, p.Path)
		id, err := idOf(p.Source, p)
		if err == nil && (!there || before != id) {
			id, err = s.putInner(h, root, u, p, there)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		made.ids = append(made.ids, id)
	}
	missing := slices.DeleteFunc(slices.Clone(u.masks), func(at string) bool {
		return slices.Contains(was.masks, at) && mounted(within(root, at))
	})
	if err := maskAll(root, missing); err != nil {
		return err
	}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(had))) {
		if slices.ContainsFunc(u.masks, func(mask string) bool { return inPath(mask, at) }) {
			continue // the mask is over it
		}
		if err := unmountAll(within(root, at)); err != nil {
			return err
		}
	}
	m.units[u.part.Path] = made
	return nil
}

// putInner shows a part that lies in a unit, over what is there or in its place.
func (s *stage) putInner(h *helper, root string, around *unit, p control.Part, there bool) (fileID, error) {
	u := &unit{part: p}
	for _, at := range around.masks {
		if inPath(p.Path, at) {
			u.masks = append(u.masks, at)
		}
	}
	tree, made, err := s.take(h, u)
	if err != nil {
		return fileID{}, err
	}
	defer unix.Close(tree)
	to := within(root, p.Path)
	if there {
		if done, err := exchange(tree, to); done {
			return made.ids[0], err
		}
	}
	return made.ids[0], unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// inPath reports whether a path is a folder's or below it.
func inPath(dir, at string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }

// unmountAll takes away all that is mounted at a path.
func unmountAll(to string) error {
	for mounted(to) {
		if err := unix.Unmount(to, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return err
		}
	}
	return nil
}

// exchange puts a mount in the place of the one at a path, so that there is always one
// of them. Linux can do that since 6.5; done is false where it can't.
func exchange(tree int, to string) (done bool, err error) {
	const beneath = 0x200 // MOVE_MOUNT_BENEATH
	if unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH|beneath) != nil {
		return false, nil
	}
	return true, unix.Unmount(to, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// replace shows another file or folder where a unit is. Linux that knows how does it
// at once; earlier ones show nothing there for a moment.
func (s *stage) replace(h *helper, m *madeRoot, root string, u *unit) error {
	tree, made, err := s.take(h, u)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	to := within(root, u.part.Path)
	var is, was unix.Stat_t
	if err := errors.Join(unix.Fstat(tree, &is), unix.Lstat(to, &was)); err != nil {
		return err
	}
	alike := (is.Mode^was.Mode)&unix.S_IFMT == 0
	if alike {
		if done, err := exchange(tree, to); done {
			m.units[u.part.Path] = made
			return err
		}
	}
	if err := unmountAll(to); err != nil {
		return err
	}
	delete(m.units, u.part.Path)
	if !alike {
		if err := os.Remove(to); err != nil {
			return err
		}
		if err := place(tree, to); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	m.units[u.part.Path] = made
	return nil
}
