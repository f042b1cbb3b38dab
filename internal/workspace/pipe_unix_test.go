//go:build linux || darwin

package workspace

import "syscall"

func makePipe(path string) error { return syscall.Mkfifo(path, 0o600) }
