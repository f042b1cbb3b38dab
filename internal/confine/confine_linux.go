package confine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var applying sync.Mutex

func apply(r Rules) (Report, error) {
	applying.Lock()
	defer applying.Unlock()
	return look().apply(r)
}

func (k kernel) apply(r Rules) (Report, error) {
	report := k.report(r)
	if k.abi > 0 && k.abi < abiThreads && !k.threads {
		return report, errors.New("confine all threads: this program uses cgo, with which Linux before 7.0 confines only one; build it with CGO_ENABLED=0")
	}
	// What is set for one thread is set for those that seccomp and Landlock copy it to.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := k.everywhere("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return report, err
	}
	if k.threads {
		if err := dropCapabilities(); err != nil {
			return report, err
		}
	}
	if k.abi > 0 {
		skipped, err := restrict(k, r)
		if err != nil {
			return report, err
		}
		report.Skipped = skipped
	}
	if k.seccomp {
		if err := filterCalls(r, k.abi); err != nil {
			return report, err
		}
	}
	return report, nil
}

func can(r Rules) Report { return look().report(r) }

// kernel is what this one offers.
type kernel struct {
	abi      int  // of Landlock
	signals  bool // whether scoped threads of one process can signal each other
	seccomp  bool
	threads  bool // whether Go can make a system call on all threads
	landlock string
	filter   string // why there is no Landlock, and no filter
}

func look() kernel {
	var k kernel
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		k.abi = int(abi)
	case unix.ENOSYS:
		k.landlock = "this kernel has no Landlock, as Linux has since 5.13"
	case unix.EOPNOTSUPP:
		k.landlock = "Landlock is switched off; add landlock to lsm= on the kernel's command line"
	default:
		k.landlock = fmt.Sprintf("Landlock can't be used: %v, as under an old container engine's filter", errno)
	}
	if k.abi >= abiScopes {
		// The second mend: until then the runtime could not signal its own threads.
		mends, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
		k.signals = k.abi >= abiThreads || errno == 0 && mends&(1<<1) != 0
	}
	k.seccomp, k.filter = filterWorks()
	_, _, errno = syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	k.threads = errno == 0
	return k
}

// everywhere makes a system call on all threads, or on this one where Go can't.
func (k kernel) everywhere(what string, call, a, b uintptr) error {
	var errno syscall.Errno
	if k.threads {
		_, _, errno = syscall.AllThreadsSyscall6(call, a, b, 0, 0, 0, 0)
	} else {
		_, _, errno = syscall.Syscall6(call, a, b, 0, 0, 0, 0)
	}
	if errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

// kept are the capabilities of root that its own files and processes may need.
const kept = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL

// dropCapabilities takes from root what Landlock and seccomp don't look at one by one.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	data[0] = unix.CapUserData{Effective: data[0].Effective & kept, Permitted: data[0].Permitted & kept}
	data[1] = unix.CapUserData{}
	header.Pid = 0
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

func (k kernel) report(r Rules) Report {
	out := Report{ABI: k.abi, Files: k.abi > 0 && (k.threads || k.abi >= abiThreads), Calls: k.seccomp}
	hold := func(ok bool, holds, missing string) {
		switch {
		case ok && holds != "":
			out.Holds = append(out.Holds, holds)
		case !ok && missing != "":
			out.Missing = append(out.Missing, missing)
		}
	}
	switch {
	case k.abi == 0:
		hold(false, "", "access to files ("+k.landlock+")")
	case !out.Files:
		hold(false, "", "access to files (this program uses cgo; build it with CGO_ENABLED=0)")
	default:
		hold(true, "files outside of the rules", "")
		hold(k.abi < abiRefer, "renames between any two folders", "")
		hold(k.abi >= abiTruncate, "", "emptying a file that may be read (Linux 6.2)")
		hold(k.abi >= abiNet, "TCP", "")
		hold(k.abi >= abiNet || k.seccomp && r.PairsOnly, "", "connecting a received TCP socket to another address (Linux 6.7)")
		hold(k.abi >= abiIoctl, "device control", "control of devices that may be opened (Linux 6.10)")
		hold(k.abi >= abiUnix && !r.PairsOnly, "Unix sockets of other programs", "")
		hold(k.abi >= abiUnix || k.seccomp && r.PairsOnly, "", "connecting Unix sockets of other programs (Linux 7.1)")
		if r.ScopeAbstract {
			hold(k.abi >= abiScopes, "abstract sockets of other processes", "connecting abstract sockets of other processes (Linux 6.12)")
		}
		if r.ScopeSignals {
			hold(k.abi >= abiScopes && k.signals, "signals to other processes", "signals to other processes (Linux 6.15)")
		}
	}
	if !k.seccomp {
		hold(false, "", "system calls ("+k.filter+")")
		return out
	}
	sockets := "sockets that are not Unix sockets"
	if r.PairsOnly {
		sockets = "all sockets but pairs"
	}
	hold(true, sockets, "")
	hold(len(r.Exec) == 0, "other programs", "")
	hold(!r.Attributes, "modes and owners of files by path", "")
	hold(true, "mounts, namespaces, io_uring, keys, access to other processes", "")
	hold(k.threads, "capabilities beyond files and signals", "capabilities of root (this program uses cgo; build it with CGO_ENABLED=0)")
	return out
}
