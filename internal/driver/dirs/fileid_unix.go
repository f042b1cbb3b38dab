//go:build linux || darwin

package dirs

import (
	"io/fs"
	"syscall"
)

// fileID tells one file from another.
type fileID struct{ dev, ino uint64 }

// idOf returns the identity of a file, and whether it has several names.
func idOf(st fs.FileInfo) (id fileID, several bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, false
	}
	return fileID{uint64(sys.Dev), uint64(sys.Ino)}, sys.Nlink > 1
}
