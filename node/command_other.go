//go:build !unix

package node

import "os/exec"

func ownGroup(*exec.Cmd) bool       { return false }
func (p *process) terminate()       { p.kill() }
func (p *process) kill()            { _ = p.cmd.Process.Kill() }
func (p *process) groupLives() bool { return false }
