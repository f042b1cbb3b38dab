//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// maskName is the folder of a root with what covers masked paths.
const maskName = ".tine-mask"

// makeRoot puts a root together in the helper's mount namespace: an empty
// filesystem with the parts in it, each bound read-only. The kernel does that,
// not gVisor, which can leave out a mount without a word.
func (h *helper) makeRoot(r *control.Root) (err error) {
	if r == nil || !filepath.IsAbs(r.Dir) {
		return errors.New("no root is given")
	}
	if err := h.setApart(filepath.Dir(r.Dir)); err != nil {
		return fmt.Errorf("make a place for roots: %w", err)
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tine", r.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return fmt.Errorf("make an empty root: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dropRoot(r.Dir))
		}
	}()
	made := &madeRoot{units: make(map[string]madeUnit)}
	units, masks := unitsOf(r)
	made.masks = masks
	for _, u := range units {
		done, there, err := u.make(h, r.Dir)
		if err != nil {
			return err
		}
		if there {
			made.units[u.part.Path] = done
		}
	}
	if err := maskAll(r.Dir, r.Masks); err != nil {
		return err
	}
	if err := unix.Mount("", r.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	// A sandbox has copies of these mounts, and makes them its followers. A mount goes
	// away in a sandbox only when all that is mounted in it does.
	shared := uintptr(0)
	switch {
	case r.Live:
		h.keepRoot(r.Dir, made)
		shared = unix.MS_SHARED | unix.MS_REC
	case r.Open:
		shared = unix.MS_SHARED
	}
	if shared != 0 {
		if err := unix.Mount("", r.Dir, "", shared, ""); err != nil {
			return fmt.Errorf("keep the root open: %w", err)
		}
	}
	return nil
}

// setApart makes a folder one whose mounts no bind of a folder above it takes along.
// Each root that shows such a folder would have all roots before it in it, and what
// is mounted there twice could not be taken away.
func (h *helper) setApart(dir string) error {
	h.apart.Lock()
	defer h.apart.Unlock()
	if mounted(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_UNBINDABLE, "")
}

// maxRootFile bounds what is read of a root that comes in a file.
const maxRootFile = 4 << 20

// makeRootFile is makeRoot for a root that is too large for a packet.
func (h *helper) makeRootFile(r *control.Root) error {
	root, err := readRoot(r)
	if err != nil {
		return err
	}
	return h.makeRoot(root)
}

// readRoot reads a root that comes in a file.
func readRoot(r *control.Root) (*control.Root, error) {
	if r == nil || !filepath.IsAbs(r.File) {
		return nil, errors.New("no root is given")
	}
	f, err := os.Open(r.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var root control.Root
	if err := json.NewDecoder(io.LimitReader(f, maxRootFile)).Decode(&root); err != nil {
		return nil, fmt.Errorf("read the root: %w", err)
	}
	root.Dir = r.Dir
	return &root, nil
}

// within is where a path of the root is. The driver, which wrote the list of parts,
// made sure that no link of the host is on the way.
func within(root, path string) string { return filepath.Join(root, filepath.Clean("/"+path)) }

func (h *helper) addPart(root string, p control.Part) error {
	to := within(root, p.Path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mode := fs.FileMode(p.Mode & 0o777)
	if p.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky // Go has another bit for it than Unix
	}
	switch {
	case p.Link != "":
		return os.Symlink(p.Link, to)
	case p.Source != "":
		return h.bind(p, to)
	case p.File || p.Text != "":
		if mode == 0 {
			mode = 0o644
		}
		return os.WriteFile(to, []byte(p.Text), mode)
	}
	if mode == 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return errors.Join(os.Chmod(to, mode), ownAs(to, p.Like))
}

// ownAs gives a directory the owner of a host directory, unless that one is gone or
// this user namespace does not map its owner.
func ownAs(to string, like *control.Like) error {
	var s unix.Stat_t
	if like == nil || unix.Stat(like.Path, &s) != nil {
		return nil
	}
	err := os.Lchown(to, int(s.Uid), int(s.Gid))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// bind shows a file or directory of the host at a place of the root, with
// everything that is mounted below it.
func (h *helper) bind(p control.Part, to string) error {
	tree, err := h.take(p)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := place(tree, to); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show %s: %w", p.Source, err)
	}
	return nil
}

// place makes something that a tree can be mounted on, where there is nothing.
func place(tree int, to string) error {
	var s unix.Stat_t
	if err := unix.Fstat(tree, &s); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.MkdirAll(to, 0o755)
	}
	if _, there := os.Lstat(to); there != nil {
		return os.WriteFile(to, nil, 0o644)
	}
	return nil
}

// take returns the mount of a part, which is nowhere yet.
func (h *helper) take(p control.Part) (tree int, err error) {
	tree, err = unix.OpenTree(unix.AT_FDCWD, p.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("take %s: %w", p.Source, err)
	}
	defer func() {
		if err != nil {
			unix.Close(tree)
		}
	}()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if !p.Write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return -1, fmt.Errorf("protect %s: %w", p.Source, err)
	}
	if p.Owner != nil {
		if err := h.maps.apply(tree, *p.Owner); err != nil {
			return -1, fmt.Errorf("give %s to the user inside: %w", p.Source, err)
		}
	}
	return tree, nil
}

// maskAll covers paths with something empty that can't be read. A missing path needs
// no mask. A path that can't be covered is an error, never skipped.
func maskAll(root string, masks []string) error {
	if len(masks) == 0 {
		return nil
	}
	dir, file := filepath.Join(root, maskName, "dir"), filepath.Join(root, maskName, "file")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o000); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o000); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Dir(dir), 0o000); err != nil {
		return err
	}
	for _, m := range masks {
		// A link on the way leads to where the masked thing is as the host sees it;
		// in the root that may be shown elsewhere, so both are covered.
		at := within(root, m)
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("mask %s: %w", m, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			continue // it leads to a path that is masked by its own name
		}
		cover := file
		if info.IsDir() {
			cover = dir
		}
		if err := coverWith(cover, at); err != nil {
			return fmt.Errorf("mask %s: %w", m, err)
		}
		var was, is unix.Stat_t
		if unix.Stat(cover, &was) != nil || unix.Stat(at, &is) != nil || was.Ino != is.Ino || was.Dev != is.Dev {
			return fmt.Errorf("mask %s: it is still to be seen", m)
		}
	}
	return nil
}

// coverWith mounts a mask. It is read-only before it is anywhere, since sandboxes
// that follow the root have copies, and since a program with the number of root
// inside owns what is below the mask.
func coverWith(cover, at string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, cover, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// dropRoot takes a root away. Sandboxes that have it go on.
func dropRoot(dir string) error {
	if !strings.HasPrefix(dir, "/") {
		return errors.New("no root is given")
	}
	// First, or what is taken away here would be taken away from its sandboxes. What
	// is no mount is none that could be.
	if err := unix.Mount("", dir, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("take the root away: %w", err)
	}
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("take the root away: %w", err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
