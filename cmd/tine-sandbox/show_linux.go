//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// A sandbox that was made before its owner was known has an empty place in an open
// root for each directory. What is mounted there in the helper's mount namespace is
// mounted by the kernel in the gofer's too, which opens a directory when the program
// starts or goes on, and not before. The helper checks that the mount is there, since
// a sandbox must never run on anything else.

// show puts the parts of an open root where one sandbox has their places. However
// it ends, the root is gone then, and the sandbox has what it has for good.
func (h *helper) show(b *box, r *control.Root) (err error) {
	if r == nil || !filepath.IsAbs(r.Dir) {
		return errors.New("no root is given")
	}
	var at unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, r.Dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &at); err != nil || at.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return errors.Join(errors.New("its root was not kept open"), err)
	}
	defer func() { err = errors.Join(err, dropRoot(r.Dir)) }()
	for _, p := range r.Parts {
		if p.Source == "" || p.Inside == "" {
			return fmt.Errorf("%s in the root: there is nothing to show", p.Path)
		}
		if err := h.bind(p, within(r.Dir, p.Path)); err != nil {
			return fmt.Errorf("%s in the root: %w", p.Path, err)
		}
	}
	late := time.Now().Add(showWait)
	for {
		err := shown(b.gofer, r.Parts)
		if err == nil || time.Now().After(late) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// showWait is how long a gofer may take to go into the root that it has made,
// which may be after its sandbox is there.
const showWait = time.Second

// shown looks that what a gofer sees are the parts.
func shown(gofer int, parts []control.Part) error {
	sees, err := unix.Open(fmt.Sprintf("/proc/%d/root", gofer), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at what the sandbox sees: %w", err)
	}
	defer unix.Close(sees)
	for _, p := range parts {
		if err := seen(sees, p); err != nil {
			return err
		}
	}
	return nil
}

// seen looks that a part is what is at its place in a root.
func seen(sees int, p control.Part) error {
	var want, is unix.Statx_t
	const id = unix.STATX_INO | unix.STATX_TYPE
	if err := unix.Statx(unix.AT_FDCWD, p.Source, 0, id, &want); err != nil {
		return fmt.Errorf("look at %s: %w", p.Source, err)
	}
	fd, err := unix.Openat2(sees, p.Inside, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return fmt.Errorf("look at %s in the sandbox: %w", p.Inside, err)
	}
	defer unix.Close(fd)
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, id, &is); err != nil {
		return fmt.Errorf("look at %s in the sandbox: %w", p.Inside, err)
	}
	if want.Ino != is.Ino || want.Dev_major != is.Dev_major || want.Dev_minor != is.Dev_minor || want.Mode&unix.S_IFMT != is.Mode&unix.S_IFMT {
		return fmt.Errorf("%s is not what the sandbox sees at %s", p.Source, p.Inside)
	}
	return nil
}
