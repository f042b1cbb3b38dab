//go:build linux && (amd64 || arm64) && !nogvisor

package runsc

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
	for _, p := range r.Parts {
		err := h.addPart(r.Dir, p)
		if p.Of != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s in the root: %w", p.Path, err)
		}
	}
	if err := maskAll(r.Dir, r.Masks); err != nil {
		return err
	}
	if err := unix.Mount("", r.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	if r.Open {
		// A sandbox has copies of this mount, and makes them its followers.
		if err := unix.Mount("", r.Dir, "", unix.MS_SHARED, ""); err != nil {
			return fmt.Errorf("keep the root open: %w", err)
		}
	}
	return nil
}

// maxRootFile bounds what is read of a root that comes in a file.
const maxRootFile = 4 << 20

// makeRootFile is makeRoot for a root that is too large for a packet.
func (h *helper) makeRootFile(r *control.Root) error {
	if r == nil || !filepath.IsAbs(r.File) {
		return errors.New("no root is given")
	}
	f, err := os.Open(r.File)
	if err != nil {
		return err
	}
	defer f.Close()
	var root control.Root
	if err := json.NewDecoder(io.LimitReader(f, maxRootFile)).Decode(&root); err != nil {
		return fmt.Errorf("read the root: %w", err)
	}
	root.Dir = r.Dir
	return h.makeRoot(&root)
}

// within is where a path of the root is. Whoever wrote the list of parts saw to
// it that no link of the host is on the way.
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
	return os.Chmod(to, mode)
}

// bind shows a file or directory of the host at a place of the root, with
// everything that is mounted below it.
func (h *helper) bind(p control.Part, to string) error {
	info, err := os.Stat(p.Source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if _, there := os.Lstat(to); there != nil {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, p.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("take %s: %w", p.Source, err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if !p.Write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("protect %s: %w", p.Source, err)
	}
	if p.Owner != nil {
		if err := h.maps.apply(tree, *p.Owner); err != nil {
			return fmt.Errorf("give %s to the user inside: %w", p.Source, err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show %s: %w", p.Source, err)
	}
	return nil
}

// maskAll covers paths with something empty that nobody may read. What is not
// there needs no mask. One that can't be covered is an error: nobody may believe
// that it is.
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
		if err := unix.Mount(cover, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mask %s: %w", m, err)
		}
		// Who has the number of root inside owns it.
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mask %s: %w", m, err)
		}
		var was, is unix.Stat_t
		if unix.Stat(cover, &was) != nil || unix.Stat(at, &is) != nil || was.Ino != is.Ino || was.Dev != is.Dev {
			return fmt.Errorf("mask %s: it is still to be seen", m)
		}
	}
	return nil
}

// dropRoot takes a root away. Sandboxes that have it go on.
func dropRoot(dir string) error {
	if !strings.HasPrefix(dir, "/") {
		return errors.New("no root is given")
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
