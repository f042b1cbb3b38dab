//go:build unix

package image

import (
	"fmt"
	"os"
	"syscall"
)

// inode tells files at the same place apart.
func inode(info os.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	return ""
}
