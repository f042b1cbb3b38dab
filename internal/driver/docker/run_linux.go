package docker

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"
)

// peer is the process that listens at the engine's socket; 0 where it is unknown, as
// where systemd holds the socket.
func (e *engine) peer() int {
	path, ok := strings.CutPrefix(e.host, "unix://")
	if !ok {
		return 0
	}
	c, err := net.DialTimeout("unix", path, 5*time.Second)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	var cred *syscall.Ucred
	raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || cred == nil || cred.Pid <= 1 {
		return 0
	}
	return int(cred.Pid)
}

// run tells one run of the engine from the next: by the process at the other end
// of its socket and when that began.
func (e *engine) run() string {
	pid := e.peer()
	if pid == 0 {
		return ""
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// After the name in parentheses, which may have anything in it; the twentieth
	// field from there is when it began.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fmt.Sprintf("%d:%s", pid, fields[19])
}

// podmanLimit is what Podman gives containers, though it may have less itself and
// then can't start any.
const podmanLimit = 1 << 20

// ceilings are the limits of a Podman that has less than it gives.
func (e *engine) ceilings() []*units.Ulimit {
	pid := e.peer()
	if pid == 0 {
		return nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil
	}
	var all []*units.Ulimit
	for line := range strings.Lines(string(b)) {
		for text, name := range map[string]string{"Max open files": "nofile", "Max processes": "nproc"} {
			rest, ok := strings.CutPrefix(line, text)
			if !ok {
				continue
			}
			fields := strings.Fields(rest)
			if len(fields) < 2 {
				continue
			}
			if hard, err := strconv.ParseInt(fields[1], 10, 64); err == nil && hard < podmanLimit {
				all = append(all, &units.Ulimit{Name: name, Soft: hard, Hard: hard})
			}
		}
	}
	return all
}
