package clone

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// SEEK_HOLE and SEEK_DATA of sys/unistd.h.
const (
	seekHole = 3
	seekData = 4
)

// how is what this machine can do, found out by trying.
type how struct {
	noShare sync.Map // of filesystems that are copied from and can't share with the copy
	shared  sync.Map // descriptors of files that create made whole
}

// create makes the new file, as a clone where the filesystem can.
func (h *how) create(src, dir int, name string, st *unix.Stat_t) (int, error) {
	if _, no := h.noShare.Load(uint64(st.Dev)); !no && st.Size > 0 {
		err := unix.Fclonefileat(src, dir, name, unix.CLONE_NOFOLLOW)
		switch {
		case err == nil:
			return h.open(dir, name)
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO):
			return -1, err
		}
		h.noShare.Store(uint64(st.Dev), true)
	}
	for {
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// open opens a clone, which has its mode already and may not let us write.
func (h *how) open(dir int, name string) (int, error) {
	if err := unix.Fchmodat(dir, name, 0o600, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	fd, err := openat(dir, name, unix.O_WRONLY)
	if err == nil {
		h.shared.Store(fd, true)
	}
	return fd, err
}

// share reports whether create has done it all.
func (h *how) share(dst, _ int, st *unix.Stat_t) (bool, error) {
	_, done := h.shared.LoadAndDelete(dst)
	return done || st.Size == 0, nil
}

// move would let the kernel copy; here it does not.
func (h *how) move(int, int, int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// renameNew renames where nothing is in the way.
func renameNew(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) {
		return renameChecked(from, to)
	}
	return linkError(from, to, err)
}

// fifo leaves a FIFO out: macOS makes none relative to a directory.
func (d *dir) fifo(string, *unix.Stat_t) (bool, error) { return false, nil }
