package image

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree makes all that was written to the filesystem of a folder last: one
// call instead of one a file.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
