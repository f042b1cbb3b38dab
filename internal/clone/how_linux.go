package clone

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	seekData = unix.SEEK_DATA
	seekHole = unix.SEEK_HOLE
)

// how is what this machine can do, found out by trying.
type how struct {
	noShare sync.Map // of filesystems that are copied from and can't share with the copy
	noMove  atomic.Bool
}

func (h *how) create(_, dir int, name string, _ *unix.Stat_t) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// share makes the new file refer to the blocks of the old one, where the
// filesystem can, and reports whether it did.
func (h *how) share(dst, src int, st *unix.Stat_t) (bool, error) {
	if st.Size == 0 {
		return true, nil
	}
	if _, no := h.noShare.Load(uint64(st.Dev)); no {
		return false, nil
	}
	err := unix.IoctlFileClone(dst, src)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO):
		return false, err
	case errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return false, nil // only this one
	}
	h.noShare.Store(uint64(st.Dev), true)
	return false, nil
}

// small is up to where copying through memory costs less than asking the kernel
// to do it.
const small = 64 << 10

// move lets the kernel copy.
func (h *how) move(dst, src int, off int64, n int) (int64, error) {
	if n <= small || h.noMove.Load() {
		return 0, errors.ErrUnsupported
	}
	from, to := off, off
	moved, err := again(func() (int, error) { return unix.CopyFileRange(src, &from, dst, &to, n, 0) })
	switch {
	case err == nil && moved == 0:
		// The end, or a filesystem that makes its files up as they are read.
		return 0, errors.ErrUnsupported
	case err == nil:
		return int64(moved), nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return 0, err
	}
	h.noMove.Store(true)
	return 0, errors.ErrUnsupported
}

// fifo makes a FIFO like the one that has the name. What programs had written into that one and
// not read yet is theirs.
func (d *dir) fifo(name string, st *unix.Stat_t) (bool, error) {
	if err := unix.Mkfifoat(d.dst, name, 0o600); err != nil {
		return false, d.fail("make the copy of", name, err)
	}
	if err := d.dressName(name, st); err != nil {
		return false, err
	}
	// No other process knows the copy yet, so that the name is no link.
	if err := unix.Fchmodat(d.dst, name, uint32(st.Mode)&0o7777, 0); err != nil {
		return false, d.fail("set the mode of", name, err)
	}
	return true, nil
}

// renameNew renames where nothing is in the way.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return renameChecked(from, to)
	}
	return linkError(from, to, err)
}
