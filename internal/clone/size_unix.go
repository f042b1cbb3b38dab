//go:build linux || darwin

package clone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Size counts the bytes and files of a tree, each file once and holes not, about
// as Tree would copy them. What vanishes or changes its kind meanwhile does not count.
func Size(src string) (bytes, files int64, err error) {
	fd, err := openat(unix.AT_FDCWD, src, openDir)
	if err != nil {
		return 0, 0, fmt.Errorf("measure %s: %w", src, rootError(src, err))
	}
	m := &measure{seen: make(map[id]bool)}
	if err := m.dir(fd, "."); err != nil {
		return 0, 0, fmt.Errorf("measure %s: %w", src, err)
	}
	return m.bytes, m.files, nil
}

type measure struct {
	bytes, files int64
	seen         map[id]bool // files with several names
}

// dir measures what is in a directory, and closes it.
func (m *measure) dir(fd int, at string) error {
	defer unix.Close(fd)
	err := readNames(fd, func(names []string) error {
		for _, name := range names {
			err := m.entry(fd, name, path.Join(at, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errChanged) {
				return err
			}
		}
		return nil
	})
	if errors.As(err, new(unix.Errno)) && !errors.As(err, new(*fs.PathError)) {
		return &fs.PathError{Op: "read", Path: at, Err: err}
	}
	return err
}

func (m *measure) entry(dir int, name, at string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: at, Err: err}
	}
	kind := uint32(st.Mode) & unix.S_IFMT
	if kind == unix.S_IFDIR {
		fd, err := openat(dir, name, openDir)
		if err != nil {
			return &fs.PathError{Op: "open", Path: at, Err: err}
		}
		return m.dir(fd, at)
	}
	if kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return nil
	}
	if st.Nlink > 1 {
		if m.seen[idOf(&st)] {
			return nil
		}
		m.seen[idOf(&st)] = true
	}
	m.files++
	if kind == unix.S_IFREG {
		m.bytes += weight(&st)
	}
	return nil
}

// renameChecked is renameNew for filesystems that can't do it in one step.
func renameChecked(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return linkError(from, to, fs.ErrExist)
	}
	return os.Rename(from, to)
}

func linkError(from, to string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
