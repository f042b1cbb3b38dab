package packages

import (
	"os/exec"
	"syscall"
)

// bind keeps a program from seeing our Ctrl-C: it is ended by us.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// syncTree has nothing to call here; the record alone is synced.
func syncTree(string) error { return nil }
