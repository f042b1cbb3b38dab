//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

const stopSignal = syscall.SIGTERM

func detach(cmd *exec.Cmd, how string) {
	if how != "child" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
}
