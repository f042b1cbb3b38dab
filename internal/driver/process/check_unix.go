//go:build linux || darwin

package process

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CheckPipes makes a named pipe in a folder and takes it away again: some
// filesystems, such as folders shared with a virtual machine, have none.
func CheckPipes(dir string) error {
	tmp, err := os.MkdirTemp(dir, ".tine-doctor-*")
	if err != nil {
		return fmt.Errorf("make a folder in %s: %w", dir, err)
	}
	defer os.RemoveAll(tmp)
	if err := unix.Mkfifo(filepath.Join(tmp, "pipe"), 0o600); err != nil {
		return fmt.Errorf("%s can't hold named pipes: %w", dir, err)
	}
	return nil
}
