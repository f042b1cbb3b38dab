package layout

import (
	"io/fs"
	"syscall"
	"time"
)

// changedAt is the change time of a path. No program can set it, unlike the time of
// modification, which a copy may take over.
func changedAt(path string) (at time.Time, ok bool) {
	var s syscall.Stat_t
	if syscall.Lstat(path, &s) != nil {
		return time.Time{}, false
	}
	return time.Unix(s.Ctim.Unix()), true
}

// ownerOf are the numbers of a file's owner and group.
func ownerOf(info fs.FileInfo) (uid, gid uint32) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Uid, s.Gid
	}
	return 0, 0
}
