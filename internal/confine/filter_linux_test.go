//go:build linux && (amd64 || arm64)

package confine

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// decide is what a filter says of a call: an error, or 0.
func decide(t *testing.T, r Rules, abi int, arch, number uint32, args ...uint64) unix.Errno {
	t.Helper()
	prog := filter(r, abi)
	if _, err := bpf.Assemble(prog); err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	// The machine here reads numbers as networks write them, and the kernel as it has them.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetCall:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+4:], uint32(a>>32))
	}
	answer, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	switch uint32(answer) & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return 0
	case unix.SECCOMP_RET_ERRNO:
		return unix.Errno(answer & unix.SECCOMP_RET_DATA)
	}
	t.Fatalf("call %d: %#x is neither allowed nor an error", number, answer)
	return 0
}

func TestFilterOfNumbers(t *testing.T) {
	never := slices.Concat(refused, refusedHere)
	programs := []uint32{unix.SYS_EXECVE, unix.SYS_EXECVEAT}
	paths := slices.Concat(attributes, attributesHere)
	for number := range uint32(lastCall + 1) {
		if number == unix.SYS_SOCKET || number == unix.SYS_SOCKETPAIR {
			continue // not without a family
		}
		want := unix.Errno(0)
		if slices.Contains(never, number) || slices.Contains(programs, number) || slices.Contains(paths, number) {
			want = unix.EPERM
		}
		if got := decide(t, Rules{}, abiUnix, machine, number); got != want {
			t.Errorf("call %d: %v, want %v", number, got, want)
		}
		if slices.Contains(programs, number) || slices.Contains(paths, number) {
			want = 0
		}
		if got := decide(t, Rules{Exec: []string{"/bin"}, Attributes: true}, abiUnix, machine, number); got != want {
			t.Errorf("call %d with programs and attributes: %v, want %v", number, got, want)
		}
	}
	for _, number := range []uint32{lastCall + 1, 512, 520, 547, 0x40000000, 0x40000000 | unix.SYS_SOCKET, 1<<32 - 1} {
		if got := decide(t, Rules{}, abiUnix, machine, number); got != unix.ENOSYS {
			t.Errorf("call %#x, which is not of this list: %v", number, got)
		}
	}
	for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
		for number := range uint32(500) {
			if got := decide(t, Rules{}, abiUnix, arch, number, unix.AF_UNIX); got != unix.ENOSYS {
				t.Fatalf("call %d of machine %#x: %v", number, arch, got)
			}
		}
	}
}

func TestFilterOfArguments(t *testing.T) {
	const high = 1 << 32
	pairs := Rules{PairsOnly: true}
	for _, tt := range []struct {
		name   string
		rules  Rules
		abi    int
		number uint32
		args   []uint64
		want   unix.Errno
	}{
		{"unix", Rules{}, 9, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, 0},
		{"unix, other half", Rules{}, 9, unix.SYS_SOCKET, []uint64{high | unix.AF_UNIX}, 0},
		{"inet", Rules{}, 9, unix.SYS_SOCKET, []uint64{unix.AF_INET}, unix.EACCES},
		{"inet, other half", Rules{}, 9, unix.SYS_SOCKET, []uint64{high | unix.AF_INET}, unix.EACCES},
		{"no family", Rules{}, 9, unix.SYS_SOCKET, []uint64{0}, unix.EACCES},
		{"a pair", Rules{}, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, 0},
		{"a pair of another family", Rules{}, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, unix.EACCES},
		{"pairs: unix", pairs, 9, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, unix.EACCES},
		{"pairs: connect", pairs, 9, unix.SYS_CONNECT, nil, unix.EACCES},
		{"pairs: a pair", pairs, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}, 0},
		{"pairs: of packets", pairs, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, 0},
		{"pairs: of datagrams", pairs, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, unix.EACCES},
		{"pairs: raw, which is datagrams", pairs, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_RAW}, unix.EACCES},
		{"pairs: inet", pairs, 9, unix.SYS_SOCKETPAIR, []uint64{unix.AF_INET, unix.SOCK_STREAM}, unix.EACCES},
		{"a thread", Rules{}, 9, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD}, 0},
		{"a fork", Rules{}, 9, unix.SYS_CLONE, []uint64{unix.CLONE_VFORK | unix.CLONE_VM | uint64(unix.SIGCHLD)}, 0},
		{"a user namespace", Rules{}, 9, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, unix.EPERM},
		{"a network namespace", Rules{}, 9, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, unix.EPERM},
		{"clone3", Rules{}, 9, unix.SYS_CLONE3, nil, 0},
		{"send", Rules{}, 9, unix.SYS_SENDTO, []uint64{0, 0, 0, unix.MSG_NOSIGNAL}, 0},
		{"send and connect", Rules{}, 9, unix.SYS_SENDTO, []uint64{0, 0, 0, unix.MSG_NOSIGNAL | unix.MSG_FASTOPEN}, unix.EPERM},
		{"send messages and connect", Rules{}, 9, unix.SYS_SENDMMSG, []uint64{0, 0, 0, unix.MSG_FASTOPEN}, unix.EPERM},
		{"terminal", Rules{}, 9, unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, 0},
		{"terminal input", Rules{}, 9, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, unix.EPERM},
		{"console input", Rules{}, 9, unix.SYS_IOCTL, []uint64{0, high | unix.TIOCLINUX}, unix.EPERM},
		{"times of an open file", Rules{}, 9, unix.SYS_UTIMENSAT, []uint64{3, 0}, 0},
		{"times by path", Rules{}, 9, unix.SYS_UTIMENSAT, []uint64{3, 0x1000}, unix.EPERM},
		{"times by a high path", Rules{}, 9, unix.SYS_UTIMENSAT, []uint64{3, high}, unix.EPERM},
		{"times with attributes", Rules{Attributes: true}, 9, unix.SYS_UTIMENSAT, []uint64{3, 0x1000}, 0},
		{"truncate", Rules{}, abiTruncate, unix.SYS_TRUNCATE, nil, 0},
		{"truncate that Landlock does not see", Rules{}, abiTruncate - 1, unix.SYS_TRUNCATE, nil, unix.EPERM},
	} {
		if got := decide(t, tt.rules, tt.abi, machine, tt.number, tt.args...); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
