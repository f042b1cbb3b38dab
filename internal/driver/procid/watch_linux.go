package procid

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pidfd watches through a descriptor that refers to the process whatever
// becomes of its number, and that becomes readable when it exits.
type pidfd struct {
	f  *os.File
	rc syscall.RawConn
}

// newWatcher watches a process. It owns fd, a pidfd of it or -1.
func newWatcher(id ID, fd int) Watcher {
	if fd < 0 {
		return newPoller(id) // an old kernel, or a strict seccomp profile
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return newPoller(id)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	rc, err := f.SyscallConn()
	if err != nil || f.SetReadDeadline(time.Time{}) != nil {
		f.Close()
		return newPoller(id)
	}
	return &pidfd{f: f, rc: rc}
}

func (p *pidfd) Wait(d time.Duration) (exited, ok bool) {
	if err := p.f.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, false
	}
	err := p.rc.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n == 1
	})
	switch {
	case err == nil:
		return true, true
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, true
	}
	return false, false
}

func (p *pidfd) Close() { p.f.Close() }

// forkExec starts a process and returns its pid, and a pidfd or -1.
func forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid, fd int, err error) {
	fd = -1
	a := *attr
	var sys syscall.SysProcAttr
	if a.Sys != nil {
		sys = *a.Sys
	}
	sys.PidFD = &fd
	a.Sys = &sys
	pid, err = syscall.ForkExec(path, argv, &a)
	return pid, fd, err
}

// openProcess returns a pidfd of a process that another program started, or -1.
func openProcess(pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	return fd
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
