//go:build linux && (amd64 || arm64)

package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refused are the system calls that a confined process has no use for, and that get around
// the rules, reach other processes, or change the machine. Those of one processor alone are
// in refusedHere.
var refused = []uint32{
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	// memory and queues that are shared by name
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	// mounts and namespaces; clone is looked at by its flags
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_UNSHARE,
	// files without a path, or of others
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// sockets and files by another way
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// keys
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// the kernel and the machine
	unix.SYS_BPF, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_VHANGUP,
}

// attributes change a file's mode, owner, times or attributes by its path.
var attributes = []uint32{
	unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
	unix.SYS_FILE_SETATTR,
}

// lastCall is the newest system call that this list was written for. What is newer does
// not exist for a confined process. On amd64 this also covers the calls of x32.
const lastCall = unix.SYS_RSEQ_SLICE_YIELD

// namespaces are the flags of clone that make one.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// filter is the program that decides on every system call.
func filter(r Rules, abi int) []bpf.Instruction {
	prog := []bpf.Instruction{
		// Programs of another processor have other numbers, such as those of i386 on amd64.
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: machine, SkipTrue: 1},
		fail(unix.ENOSYS),
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastCall, SkipTrue: 1},
		fail(unix.ENOSYS),
	}
	// on adds what is done for one call; it must end in a decision.
	on := func(call uint32, then ...bpf.Instruction) {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(len(then))})
		prog = append(prog, then...)
	}
	refuse := func(calls ...uint32) {
		for _, call := range calls {
			on(call, fail(unix.EPERM))
		}
	}
	refuse(refused...)
	refuse(refusedHere...)
	if len(r.Exec) == 0 {
		refuse(unix.SYS_EXECVE, unix.SYS_EXECVEAT)
	}
	if !r.Attributes {
		refuse(attributes...)
		refuse(attributesHere...)
		// Without a path the times are those of an open file.
		on(unix.SYS_UTIMENSAT,
			argument(1), bpf.JumpIf{Cond: bpf.JumpNotEqual, SkipTrue: 3},
			upper(1), bpf.JumpIf{Cond: bpf.JumpNotEqual, SkipTrue: 1},
			allow, fail(unix.EPERM))
	}
	if abi > 0 && abi < abiTruncate {
		refuse(unix.SYS_TRUNCATE) // Landlock does not look at it yet
	}
	// The kernel looks at the lower halves of these numbers.
	if r.PairsOnly {
		for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN} {
			on(call, fail(unix.EACCES))
		}
		// A pair of datagram sockets could still send to others.
		on(unix.SYS_SOCKETPAIR,
			argument(0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_UNIX, SkipTrue: 5},
			argument(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketType},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
			allow, fail(unix.EACCES))
	} else {
		for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
			on(call,
				argument(0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_UNIX, SkipTrue: 1},
				allow, fail(unix.EACCES))
		}
	}
	// A received TCP socket could be connected anew by sending, which Landlock does not see.
	on(unix.SYS_SENDTO, without(3, unix.MSG_FASTOPEN)...)
	on(unix.SYS_SENDMSG, without(2, unix.MSG_FASTOPEN)...)
	on(unix.SYS_SENDMMSG, without(3, unix.MSG_FASTOPEN)...)
	on(unix.SYS_CLONE, without(0, namespaces)...)
	// Input for the shell that this program was started from.
	on(unix.SYS_IOCTL,
		argument(1), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipTrue: 1},
		allow, fail(unix.EPERM))
	return append(prog, allow)
}

const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
	socketType = 0xf // the rest of that argument are flags
)

var allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}

func fail(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// argument loads the lower half of an argument, upper the other.
func argument(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offsetArgs + 8*n, Size: 4} }
func upper(n uint32) bpf.Instruction    { return bpf.LoadAbsolute{Off: offsetArgs + 8*n + 4, Size: 4} }

// without allows a call in whose argument none of these bits are set.
func without(n, bits uint32) []bpf.Instruction {
	return []bpf.Instruction{argument(n), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipTrue: 1}, allow, fail(unix.EPERM)}
}

// filterCalls applies the filter to all threads.
func filterCalls(r Rules, abi int) error {
	raw, err := bpf.Assemble(filter(r, abi))
	if err != nil {
		return fmt.Errorf("make a filter of system calls: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("filter system calls: %w", errno)
	case thread != 0:
		return fmt.Errorf("filter system calls: thread %d has a filter that others have not", thread)
	}
	return nil
}

// filterWorks reports whether there can be a filter, and why not.
func filterWorks() (bool, string) {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 {
		return false, "this kernel has no filters (seccomp): " + errno.Error()
	}
	return true, ""
}
