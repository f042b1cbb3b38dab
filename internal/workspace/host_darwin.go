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
	return time.Unix(s.Birthtimespec.Unix()), time.Unix(s.Atimespec.Unix())
}

func born(*os.Root, string) (time.Time, bool) { return time.Time{}, false }

// renameNew moves what is at one spot to another that is free, as one act.
func (f *folder) renameNew(from, to spot[*os.Root]) error {
	err := withHandle(from.dir, func(a int) error {
		return withHandle(to.dir, func(b int) error {
			return unix.RenameatxNp(a, from.base, b, to.base, unix.RENAME_EXCL)
		})
	})
	// Some filesystems don't have it.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return f.renameChecked(from, to)
	}
	return err
}
