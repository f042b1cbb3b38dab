package main

import (
	"golang.org/x/sys/unix"
)

// doubtfulFilesystem names the filesystem of a folder and why state should not
// be on it; empty where it may.
func doubtfulFilesystem(dir string) (kind, why string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", ""
	}
	switch kind := unix.ByteSliceToString(st.Fstypename[:]); kind {
	case "nfs", "smbfs", "afpfs", "webdav", "ftp":
		return kind, "locks and pipes are not reliable over a network"
	case "tmpfs", "ramfs", "mfs":
		return kind, "what it holds is gone after a reboot"
	}
	return "", ""
}

func addressInUse(error) bool { return false } // EADDRINUSE says it all
