package runner

import "golang.org/x/sys/unix"

// closeOnExec has no descriptor reach a program that the gateway itself has inherited,
// such as a pipe of the shell that started it. All that the gateway opens is closed on
// exec already, and what a program is given is a copy. Kernels before 5.11 can't.
func closeOnExec() { _ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }
