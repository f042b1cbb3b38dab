//go:build unix

package model

import (
	"os/exec"
	"syscall"
)

// ownGroup has the program start in a group of its own, so that what it starts ends
// with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// endGroup kills the program and what it started.
func endGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it may be gone
