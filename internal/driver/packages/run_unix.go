//go:build unix && !linux

package packages

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// bind makes a program end with its group. It is asked to; kill does not ask.
func bind(cmd *exec.Cmd) (kill func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	return func() { _ = signalGroup(cmd.Process.Pid, syscall.SIGKILL) }
}

func signalGroup(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(-pid, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}

// syncTree makes all files of a tree last.
func syncTree(string) error { return syscall.Sync() }
