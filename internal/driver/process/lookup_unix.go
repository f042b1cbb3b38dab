//go:build linux || darwin

package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/family"
)

const pathSeparators = "/"

const errNotAProgram = syscall.ENOEXEC

func runnable(path string, _ *family.Environment) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if st.IsDir() {
		return "", syscall.EISDIR
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", err
	}
	return path, nil
}
