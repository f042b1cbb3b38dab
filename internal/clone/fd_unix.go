//go:build linux || darwin

package clone

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

const openDir = unix.O_RDONLY | unix.O_DIRECTORY

// errChanged is the error of an entry that became another thing between two
// looks.
var errChanged = errors.New("it was replaced by something else meanwhile")

// openat opens a name in a directory. Another thing in that place, such as a link, is
// errChanged.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
			return fd, nil
		case unix.EINTR:
			continue
		case unix.ELOOP, unix.ENOTDIR, unix.ENXIO: // a link, no directory, a socket
			return -1, errChanged
		}
		return -1, err
	}
}

// readNames lists a directory from its start, some names at a time.
func readNames(fd int, some func([]string) error) error {
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		if err := some(names); err != nil {
			return err
		}
	}
}

func readlinkat(dir int, name string) (string, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, buf)
		if err == unix.EINVAL { // no link any more
			err = errChanged
		}
		if err != nil {
			return "", err
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}

// copyXattrs copies extended attributes as far as they can be had: what can't be
// set here, such as a label of a security module, is of the place and not of the
// file.
func (c *copier) copyXattrs(dst, src int) {
	if c.noXattr.Load() {
		return
	}
	n, err := unix.Flistxattr(src, nil)
	if errors.Is(err, unix.EOPNOTSUPP) {
		c.noXattr.Store(true)
	}
	if err != nil || n == 0 {
		return
	}
	list := make([]byte, n)
	if n, err = unix.Flistxattr(src, list); err != nil {
		return
	}
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		size, err := unix.Fgetxattr(src, string(name), nil)
		if err != nil {
			continue
		}
		value := make([]byte, size)
		if size, err = unix.Fgetxattr(src, string(name), value); err != nil {
			continue
		}
		_ = unix.Fsetxattr(dst, string(name), value[:size], 0)
	}
}
