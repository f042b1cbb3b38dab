//go:build amd64 || arm64

package sandbox

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
)

func number(n int) string { return strconv.Itoa(n) }

// TestIsolationKernel asks the kernel for what only its owner may have.
func TestIsolationKernel(t *testing.T) {
	p := newPrison(t, Options{})
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowWrite = []string{p.at("write")} })
	none := "EPERM EACCES ENOSYS EOPNOTSUPP ENOTSUP ENODEV EINVAL"
	alone := func(name, errnos string, nr int, args ...string) attempt {
		return attempt{name, errnos, "syscall", append(sys(nr, args...), "child", "1")}
	}
	c.all(t, []attempt{
		alone("mount", "EPERM", unix.SYS_MOUNT, "s:tmpfs", "s:/tmp", "s:tmpfs", "0", "0"),
		alone("bind", "EPERM", unix.SYS_MOUNT, "s:"+p.at("deny"), "s:/tmp", "0", number(unix.MS_BIND), "0"),
		alone("mount again", "EPERM", unix.SYS_MOUNT, "0", "s:/", "0", number(unix.MS_REMOUNT), "0"),
		alone("unmount", "EPERM EINVAL", unix.SYS_UMOUNT2, "s:"+p.at("deny"), number(unix.MNT_DETACH)),
		alone("unmount the writable", "EPERM", unix.SYS_UMOUNT2, "s:"+p.at("write"), number(unix.MNT_DETACH)),
		alone("unmount the root", "EPERM EINVAL", unix.SYS_UMOUNT2, "s:/", number(unix.MNT_DETACH)),
		alone("open a tree", none, unix.SYS_OPEN_TREE, number(unix.AT_FDCWD), "s:/", "1"),
		alone("a filesystem's context", none, unix.SYS_FSOPEN, "s:tmpfs", "0"),
		alone("chroot", "EPERM", unix.SYS_CHROOT, "s:"+p.at("open")),
		alone("pivot_root", "EPERM", unix.SYS_PIVOT_ROOT, "s:/tmp", "s:/tmp"),
		alone("mount namespace", "EPERM", unix.SYS_UNSHARE, number(unix.CLONE_NEWNS)),
		alone("network namespace", "EPERM", unix.SYS_UNSHARE, number(unix.CLONE_NEWNET)),
		alone("process namespace", "EPERM EINVAL", unix.SYS_UNSHARE, number(unix.CLONE_NEWPID)),
		alone("hostname", "EPERM", unix.SYS_SETHOSTNAME, "s:mine", "4"),
		alone("clock", "EPERM", unix.SYS_CLOCK_SETTIME, "0", "b:16"),
		alone("time of day", none, unix.SYS_SETTIMEOFDAY, "b:16", "0"),
		alone("reboot", none, unix.SYS_REBOOT, "0xfee1dead", "672274793", "0x1234567"),
		alone("kernel module", none, unix.SYS_INIT_MODULE, "b:16", "16", "s:"),
		alone("kernel module of a file", none, unix.SYS_FINIT_MODULE, "0", "s:", "0"),
		alone("another kernel", none, unix.SYS_KEXEC_LOAD, "0", "0", "0", "0"),
		alone("swap", none, unix.SYS_SWAPON, "s:/tmp/swap", "0"),
		alone("accounting", none, unix.SYS_ACCT, "s:/tmp/acct"),
		alone("quota", none, unix.SYS_QUOTACTL, "0x80000700", "s:/dev/vda", "0", "b:64"),
		alone("a program in the kernel", none, unix.SYS_BPF, "0", "b:64", "64"),
		alone("performance counters", none, unix.SYS_PERF_EVENT_OPEN, "b:128", "0", "-1", "-1", "0"),
		alone("io_uring", none, unix.SYS_IO_URING_SETUP, "8", "b:120"),
		alone("faults of others", none, unix.SYS_USERFAULTFD, "0"),
		alone("watch every file", none, unix.SYS_FANOTIFY_INIT, "0", "0"),
		alone("files by handles", none, unix.SYS_OPEN_BY_HANDLE_AT, number(unix.AT_FDCWD), "b:128", "0"),
		alone("hang up the terminal", none, unix.SYS_VHANGUP),
		alone("move pages", none, unix.SYS_MOVE_PAGES, "1", "0", "0", "0", "0", "0"),
		alone("compare descriptors", "ENOSYS EPERM ESRCH", unix.SYS_KCMP, "1", number(os.Getpid()), "0", "0", "0"),
		alone("keys of another", none+" ENOKEY", unix.SYS_KEYCTL, "11", "1", "b:64", "64"),
		alone("request a key", none+" ENOKEY", unix.SYS_REQUEST_KEY, "s:user", "s:secret", "0", "0"),
	})
	t.Run("a mask through a new mount", func(t *testing.T) {
		got := c.try(t, "mounts", "source", p.at("deny"), "flags", number(unix.MS_BIND), "read", "/file")
		if got.errno != "EPERM" {
			t.Errorf("it mounts: %s %q", got.errno, got.text)
		}
	})
	t.Run("the name of the machine", func(t *testing.T) {
		if host, err := os.Hostname(); err == nil && strings.Contains(c.gets(t, "read", "path", "/proc/sys/kernel/hostname"), host) {
			t.Errorf("it sees %s", host)
		}
		if got := c.gets(t, "read", "path", "/etc/hostname"); got != "sandbox\n" {
			t.Errorf("it is %q", got)
		}
	})
}

// TestIsolationFilesOfTheKernel opens what the kernel shows as files.
func TestIsolationFilesOfTheKernel(t *testing.T) {
	p := newPrison(t, Options{})
	if rootful() {
		// A device in a folder that it sees.
		for name, dev := range map[string]uint64{"disk": unix.Mkdev(254, 0), "mem": unix.Mkdev(1, 1), "null": unix.Mkdev(1, 3)} {
			mode := uint32(unix.S_IFCHR)
			if name == "disk" {
				mode = unix.S_IFBLK
			}
			for _, dir := range []string{"open/", "write/"} {
				if err := unix.Mknod(p.at(dir+name), mode|0o666, int(dev)); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(p.at(dir+name), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowWrite = []string{p.at("write")} })
	t.Run("devices", func(t *testing.T) {
		known := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr", "net", "fuse", "console"}
		for _, name := range strings.Fields(c.gets(t, "list", "path", "/dev")) {
			if !slices.Contains(known, name) {
				t.Errorf("there is /dev/%s", name)
			}
		}
	})
	no := "EACCES EPERM ENOENT ENXIO ENODEV EROFS EIO"
	var all []attempt
	for _, path := range []string{
		"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/kvm", "/dev/fuse", "/dev/mapper/control", "/dev/cpu/0/msr",
		"/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/1/mem/x", "/proc/sched_debug", "/proc/timer_list", "/proc/keys", "/proc/bus/pci/devices", "/sys/kernel/debug/x", "/sys/firmware/acpi/tables/DSDT", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/proc/self/root/dev/vda", p.at("open/disk"), p.at("open/mem"), p.at("open/null"), p.at("write/disk"), p.at("write/mem"), p.at("write/null"),
	} {
		all = append(all, attempt{"read " + path, no, "read", []string{"path", path}})
	}
	for _, path := range []string{
		"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/self/uid_map/x",
		"/sys/power/state", "/sys/kernel/uevent_helper", "/sys/class/net/lo/mtu", "/sys/fs/cgroup/release_agent", "/sys/devices/system/cpu/online",
	} {
		all = append(all, attempt{"write " + path, no + " EINVAL ENOTDIR", "write", []string{"path", path, "text", "1"}})
	}
	for name, mode := range map[string]string{"block": "0o60666", "character": "0o20666"} {
		all = append(all, attempt{"make a " + name + " device", "EPERM", "mknod", []string{"path", "/tmp/device", "mode", mode, "major", "1", "minor", "1"}})
	}
	for i := range all {
		all[i].errnos += " ENOTDIR"
	}
	c.all(t, all)
	t.Run("a network device", func(t *testing.T) {
		// gVisor has one of its own, which is of no use without a capability.
		c.fails(t, no+" EBADFD", "read", "path", "/dev/net/tun")
	})
	t.Run("memory of the first process", func(t *testing.T) {
		// It is the program itself; what is beyond it is not there.
		c.fails(t, "EIO EACCES EPERM EFAULT", "read", "path", "/proc/1/mem")
	})
}

// TestIsolationNamespaces is root in a namespace of its own, where the kernel lets
// a program do more, and tries again.
func TestIsolationNamespaces(t *testing.T) {
	p := newPrison(t, Options{})
	c := p.enter(t)
	// It may be refused as a whole, which is fine too.
	in := func(t *testing.T, tool string, args ...string) outcome {
		t.Helper()
		got := c.try(t, "namespaces", append([]string{"tool", tool}, args...)...)
		if got.ok() {
			return outcomeOf(got.text)
		}
		if !slices.Contains([]string{"EPERM", "EINVAL", "ENOSYS", "EACCES", "exit"}, got.errno) {
			t.Errorf("it ends with %s %s", got.errno, got.text)
		}
		return got
	}
	for _, tt := range []struct {
		name string
		tool string
		args []string
	}{
		{"a mask bound elsewhere", "mounts", []string{"source", p.at("deny"), "flags", number(unix.MS_BIND), "read", "/file"}},
		{"the world bound elsewhere", "mounts", []string{"source", p.world, "flags", number(unix.MS_BIND | unix.MS_REC), "read", "/deny/file"}},
		{"the root bound elsewhere", "mounts", []string{"source", "/", "flags", number(unix.MS_BIND), "read", p.at("deny.txt")}},
		{"an overlay", "mounts", []string{"source", "none", "type", "overlay", "data", "lowerdir=" + p.world, "read", "/deny/file"}},
		{"a mount of the kind of gVisor's", "mounts", []string{"source", "none", "type", "9p", "data", "trans=fd,rfdno=0,wfdno=1", "read", p.at("deny.txt")}},
		{"the disk", "mounts", []string{"source", "/dev/vda", "type", "ext4", "read", p.at("deny.txt")}},
		{"what is masked", "read", []string{"path", p.at("deny.txt")}},
		{"by a handle", "handle", []string{"path", p.at("deny.txt")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := in(t, tt.tool, tt.args...); strings.Contains(got.text, p.canary) {
				t.Error("it is to be seen")
			}
		})
	}
	for _, tt := range []struct {
		name string
		tool string
		args []string
	}{
		{"a device", "mknod", []string{"path", "/tmp/device", "mode", "0o60666", "major", "254", "minor", "0"}},
		{"to give a file away", "chown", []string{"path", p.at("open/file"), "uid", "4242", "gid", "4242"}},
		{"the clock", "syscall", sys(unix.SYS_CLOCK_SETTIME, "0", "b:16")},
		{"a module", "syscall", sys(unix.SYS_INIT_MODULE, "b:16", "16", "s:")},
		{"the gateway", "kill", []string{"pid", number(os.Getpid()), "signal", "9"}},
		{"a host far away", "connect", []string{"network", "tcp", "address", "192.0.2.7:443"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := in(t, tt.tool, tt.args...); got.ok() {
				t.Errorf("it succeeds: %s", got.text)
			}
		})
	}
	if exists("/tmp/device") {
		t.Error("the device is on the host")
	}
	c.works(t)
}
