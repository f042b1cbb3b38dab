package confine

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The versions of Landlock that began to refuse something.
const (
	abiRefer    = 2 // renames and links between folders
	abiTruncate = 3
	abiNet      = 4 // TCP
	abiIoctl    = 5 // of devices
	abiScopes   = 6
	abiThreads  = 8 // not a right: all threads at once
	abiUnix     = 9 // sockets by path
)

const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readAll  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	execAll  = readAll | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// writeAll has neither devices nor their control nor execution.
	writeAll = readAll | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	// ofFiles are the rights over something that is no folder.
	ofFiles = readFile | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
)

// handled is all that a version can refuse.
func (k kernel) handled(r Rules) unix.LandlockRulesetAttr {
	all := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1}
	for _, right := range []struct {
		since int
		bit   uint64
	}{
		{abiRefer, unix.LANDLOCK_ACCESS_FS_REFER},
		{abiTruncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{abiIoctl, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{abiUnix, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		if k.abi >= right.since {
			all.Handled_access_fs |= right.bit
		}
	}
	if k.abi >= abiNet {
		all.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if k.abi >= abiScopes && r.ScopeAbstract {
		all.Scoped |= unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	if k.signals && r.ScopeSignals {
		all.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
	}
	return all
}

// restrict applies the rules over files and TCP, and returns the paths that do not exist.
func restrict(k kernel, r Rules) (skipped []string, err error) {
	attr := k.handled(r)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make rules of Landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, list := range []struct {
		paths []string
		right uint64
	}{
		{r.Read, readAll}, {r.Write, writeAll}, {r.Exec, execAll}, {r.Sockets, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		for _, path := range list.paths {
			err := permit(int(fd), path, list.right&attr.Handled_access_fs)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) {
				skipped = append(skipped, path)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("allow %s: %w", path, err)
			}
		}
	}
	if k.abi >= abiThreads {
		_, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, unix.LANDLOCK_RESTRICT_SELF_TSYNC, 0)
	} else {
		_, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	}
	if errno != 0 {
		return nil, fmt.Errorf("apply rules of Landlock: %w", errno)
	}
	return skipped, nil
}

// permit adds rights over a path to rules. The path is what it leads to now.
func permit(rules int, path string, right uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		right &= ofFiles
	}
	if right == 0 {
		return nil // the kernel can't refuse it
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: right, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
