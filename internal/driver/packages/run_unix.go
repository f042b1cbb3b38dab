//go:build unix && !linux

package packages

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// bind makes a program end with its group.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
}

// syncTree makes all files of a tree last.
func syncTree(string) error { return syscall.Sync() }
