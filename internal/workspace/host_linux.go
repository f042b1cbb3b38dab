package workspace

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const openNonblock = syscall.O_NONBLOCK

func hostTimes(st fs.FileInfo) (created, accessed time.Time) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return st.ModTime(), st.ModTime()
	}
	return st.ModTime(), time.Unix(s.Atim.Unix())
}

// born tells when a file was made, where the filesystem knows.
func born(dir *os.Root, base string) (time.Time, bool) {
	var st unix.Statx_t
	err := withHandle(dir, func(fd int) error {
		return unix.Statx(fd, base, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	})
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}, false
	}
	return time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)), true
}

// renameNew moves what is at one spot to another that is free, as one act.
func (f *folder) renameNew(from, to spot[*os.Root]) error {
	err := withHandle(from.dir, func(a int) error {
		return withHandle(to.dir, func(b int) error {
			return unix.Renameat2(a, from.base, b, to.base, unix.RENAME_NOREPLACE)
		})
	})
	// Some filesystems don't have it.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return f.renameChecked(from, to)
	}
	return err
}
