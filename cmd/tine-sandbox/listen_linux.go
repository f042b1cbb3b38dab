//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// listenAgain answers one request for another listener in the network of a
// sandbox, whose file comes with it: for a gateway that did not start it.
//
// A process of its own does this, outside of the helper: the helper of an ordinary
// user is in a user namespace that has no power over the one in which an earlier
// helper made that network. The gateway has it over both, but only a process with a
// single thread may go there, and no program in Go has a single thread; a copy of it
// that runs nothing but system calls has.
func listenAgain() error {
	unix.CloseOnExec(control.Socket)
	conn, err := control.Open(os.NewFile(control.Socket, "control"))
	if err != nil {
		return err
	}
	var req control.Request
	files, err := conn.Read(&req)
	if err != nil {
		return err
	}
	defer control.Close(files)
	rep := control.Reply{ID: req.ID}
	var out []*os.File
	if len(files) != 1 || req.Network == nil {
		err = errors.New("no network is given")
	} else {
		out, err = listenIn(files[0], req.Network)
	}
	if err != nil {
		rep.Error = err.Error()
	}
	return conn.Write(rep, out...)
}

// listenIn makes a listener in a network namespace.
func listenIn(ns *os.File, n *control.Network) ([]*os.File, error) {
	at, err := n.Listen()
	if err != nil {
		return nil, err
	}
	owner, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return nil, fmt.Errorf("find the owner of the network of the sandbox: %w", err)
	}
	defer unix.Close(owner)
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Fstat(owner, &theirs), unix.Stat("/proc/self/ns/user", &ours)); err != nil {
		return nil, err
	}
	if theirs.Ino == ours.Ino && theirs.Dev == ours.Dev {
		owner = -1
	}
	// A number that the copy, which has the same files, gives to the listener.
	fd, err := unix.FcntlInt(ns.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "proxy")
	if err := copyListens(owner, int(ns.Fd()), fd, at); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen at %s in the network of the sandbox: %w", at, err)
	}
	return []*os.File{f}, nil
}

// copyListens has a copy of this process make the listener.
func copyListens(user, network, fd int, at netip.AddrPort) error {
	port := at.Port()
	addr := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port<<8 | port>>8, Addr: at.Addr().As4()}
	pid, errno := forkAndListen(user, network, fd, &addr)
	if errno != 0 {
		return errno
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	switch {
	case ws.Signaled():
		return fmt.Errorf("it was ended by signal %d", ws.Signal())
	case ws.ExitStatus() != 0:
		return syscall.Errno(ws.ExitStatus())
	}
	return nil
}

// forkAndListen returns in the parent alone. The child has none of the threads
// that Go needs: it may do nothing but system calls, on the stack that is there.
//
//go:noinline
//go:norace
func forkAndListen(user, network, fd int, addr *unix.RawSockaddrInet4) (pid int, errno syscall.Errno) {
	one := int32(1)
	p, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.CLONE_FILES|unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || p != 0 {
		return int(p), errno
	}
	var s uintptr
	if user >= 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_SETNS, uintptr(user), unix.CLONE_NEWUSER, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_SETNS, uintptr(network), unix.CLONE_NEWNET, 0)
	}
	if errno == 0 {
		s, _, errno = syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_SETSOCKOPT, s, unix.SOL_SOCKET, unix.SO_REUSEADDR, uintptr(unsafe.Pointer(&one)), 4, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_BIND, s, uintptr(unsafe.Pointer(addr)), unix.SizeofSockaddrInet4)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_LISTEN, s, backlog, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, s, uintptr(fd), unix.O_CLOEXEC)
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
}
