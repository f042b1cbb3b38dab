//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// idmaps are user namespaces that say whose the files of a mount are. They hold
// nothing but that.
type idmaps struct {
	mu  sync.Mutex
	all map[control.Owner]*os.File
}

// allIDs is how many ids there are.
const allIDs = 1<<32 - 1

// apply gives a mount that is nowhere yet another owner.
func (m *idmaps) apply(tree int, o control.Owner) error {
	f, err := m.of(o)
	if err != nil {
		return err
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(f.Fd())})
}

func (m *idmaps) of(o control.Owner) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.all[o]; f != nil {
		return f, nil
	}
	// It waits for its first byte, which never comes: the namespace ends with its
	// last process unless it is held open.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{runsc, idmapArg}, &syscall.ProcAttr{
		Files: []uintptr{r.Fd()},
		Sys: &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                swap(o.UID, o.InsideUID),
			GidMappings:                swap(o.GID, o.InsideGID),
			GidMappingsEnableSetgroups: true,
			Pdeathsig:                  syscall.SIGKILL,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make a map of owners: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("make a map of owners: %w", err)
	}
	if m.all == nil {
		m.all = make(map[control.Owner]*os.File)
	}
	m.all[o] = f
	return f, nil
}

// swap maps one id to another and back, and every other to itself.
func swap(a, b int) []syscall.SysProcIDMap {
	if a == b {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: allIDs}}
	}
	a, b = min(a, b), max(a, b)
	m := []syscall.SysProcIDMap{{ContainerID: a, HostID: b, Size: 1}, {ContainerID: b, HostID: a, Size: 1}}
	for _, r := range [][2]int{{0, a}, {a + 1, b}, {b + 1, allIDs}} {
		if r[1] > r[0] {
			m = append(m, syscall.SysProcIDMap{ContainerID: r[0], HostID: r[0], Size: r[1] - r[0]})
		}
	}
	return m
}

// idmapArg makes the binary wait, in its namespace, until it is killed.
const idmapArg = "tine-idmap"

func waitForNothing() {
	var b [1]byte
	for {
		if _, err := os.Stdin.Read(b[:]); err != nil && !errors.Is(err, syscall.EINTR) {
			os.Exit(0)
		}
	}
}
