//go:build !unix

package model

import "os/exec"

func ownGroup(*exec.Cmd) {}

func endGroup(cmd *exec.Cmd) { cmd.Process.Kill() } // it may be gone
