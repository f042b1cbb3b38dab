package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// namespaces is what a child has of its own to see a workspace at another path:
// mounts, and for an ordinary user users as well, without which it may not mount.
type namespaces int

const (
	ownMounts namespaces = iota + 1
	ownUsers
)

// mountArg is what this program is called when it is started to become a server:
//
//	tine-mount SOURCE POINT CWD PROGRAM ARGV...
//
// Without a program it only tries.
const mountArg = "tine-mount"

// Main returns, unless this program was started to become a server that sees a workspace
// at a path of its own, or to watch over a command. A program that sets Options.Self calls
// it before anything else.
func Main() {
	if len(os.Args) >= 4 && os.Args[0] == execArg {
		supervise(os.Args[1:])
	}
	if len(os.Args) < 4 || os.Args[0] != mountArg {
		return
	}
	err := become(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "tine:", err)
	os.Exit(127)
}

// become mounts and runs the program in the place of this one. It returns where
// there is none, or where it fails.
func become(source, point, cwd string, program []string) error {
	runtime.LockOSThread() // capabilities are a thread's
	// What is mounted here stays here; what the host mounts later is seen.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make the mounts the program's own: %w", err)
	}
	if err := unix.Mount(source, point, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount the workspace at %s: %w", point, err)
	}
	if cwd != "" {
		if err := unix.Chdir(cwd); err != nil {
			return fmt.Errorf("go to %s: %w", cwd, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("drop what only the mount needed: %w", err)
	}
	if len(program) < 2 {
		return nil
	}
	err := syscall.Exec(program[0], program[1:], os.Environ())
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("command %q can't be run: the interpreter that its first line names is missing; install it: %w", program[0], err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("command %q is not a program for this machine; a script must begin with a line such as #!/bin/sh: %w", program[0], err)
	}
	return fmt.Errorf("start %q: %w", program[0], err)
}

// attributes has a child be in namespaces of its own.
func (n namespaces) attributes(sys *syscall.SysProcAttr) {
	sys.Cloneflags |= unix.CLONE_NEWNS
	if n != ownUsers {
		return
	}
	sys.Cloneflags |= unix.CLONE_NEWUSER
	sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	// A user that is not root would lose with the exec what it needs to mount.
	sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
}

// through has a program be started by way of the one that mounts.
func (m *mount) through(path string, argv []string, attr *syscall.ProcAttr) (string, []string) {
	m.how.attributes(attr.Sys)
	all := append([]string{mountArg, m.source, m.point, attr.Dir, path}, argv...)
	attr.Dir = "" // it may be below the mount
	return m.self, all
}

// writable looks that this user may make something in a folder.
func writable(dir string) error { return unix.Access(dir, unix.W_OK) }

// probe finds out which namespaces this user may make.
func probe(self string) (namespaces, error) {
	if self == "" {
		return 0, errors.New("nothing can be mounted here")
	}
	dir, err := os.MkdirTemp("", "tine-mount-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(dir)
	for _, how := range []namespaces{ownMounts, ownUsers} {
		if how == ownMounts && os.Geteuid() != 0 {
			continue
		}
		if err = how.try(self, dir); err == nil {
			return how, nil
		}
	}
	if os.Geteuid() == 0 {
		return 0, fmt.Errorf("root may not mount here: %w", err)
	}
	return 0, fmt.Errorf("this user may not make user namespaces, which a mount needs: %w", err)
}

// probeTime bounds a try, on a machine that is very busy.
const probeTime = 30 * time.Second

func (n namespaces) try(self, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	c := exec.CommandContext(ctx, self)
	c.Args = []string{mountArg, dir, dir, ""}
	c.SysProcAttr = &syscall.SysProcAttr{}
	n.attributes(c.SysProcAttr)
	out, err := c.CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return errors.New(strings.TrimPrefix(text, "tine: "))
	}
	return err
}
