//go:build unix

package node

import (
	"os/exec"
	"syscall"
)

// ownGroup has a program begin a process group, unless its attributes have it in another
// one. Programs such as npx start others and don't end them.
func ownGroup(cmd *exec.Cmd) bool {
	var attr syscall.SysProcAttr
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	if !attr.Setsid && !attr.Setpgid && !attr.Foreground {
		attr.Setpgid = true
	}
	cmd.SysProcAttr = &attr
	return attr.Setsid || attr.Setpgid && attr.Pgid == 0
}

func (p *process) terminate() { p.signal(syscall.SIGTERM) }
func (p *process) kill()      { p.signal(syscall.SIGKILL) }

func (p *process) signal(s syscall.Signal) {
	if p.group {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	} else {
		_ = p.cmd.Process.Signal(s)
	}
}

func (p *process) groupLives() bool { return syscall.Kill(-p.cmd.Process.Pid, 0) == nil }
