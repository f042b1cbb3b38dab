//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestIsolationEnvironment looks for what only the gateway may have: its environment, its
// files and its place in the system.
func TestIsolationEnvironment(t *testing.T) {
	const name = "TINE_TEST_SECRET"
	t.Setenv(name, "hush-7b1f")
	p := newPrison(t, Options{})
	c := p.enter(t, func(s *driver.Spec) { s.Env = map[string]string{"GIVEN": "yes"} })
	t.Run("its own environment", func(t *testing.T) {
		got := strings.Split(c.gets(t, "environ"), "\n")
		for _, kv := range got {
			key, _, _ := strings.Cut(kv, "=")
			if !slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "GIVEN"}, key) {
				t.Errorf("it has %s", kv)
			}
		}
		if !slices.Contains(got, "GIVEN=yes") || !slices.Contains(got, "HOME=/home/user") {
			t.Errorf("it lacks what it was given: %q", got)
		}
	})
	t.Run("the environment of every process", func(t *testing.T) {
		if got := c.gets(t, "environs"); strings.Contains(got, "hush") || strings.Contains(got, name) || !strings.Contains(got, "GIVEN=yes") {
			t.Errorf("it reads %q", got)
		}
	})
	t.Run("the environment of the sandbox on the host", func(t *testing.T) {
		for _, id := range boxOf(t, c) {
			if got := content(t, fmt.Sprintf("/proc/%d/environ", id)); strings.Contains(got, "hush") {
				t.Errorf("process %d has %q", id, got)
			}
		}
	})
	t.Run("descriptors", func(t *testing.T) {
		got := c.gets(t, "inherited")
		var numbers []string
		for _, fd := range strings.Fields(got) {
			number, to, _ := strings.Cut(fd, "=")
			numbers = append(numbers, number)
			if strings.Contains(to, p.world) || strings.Contains(to, "state") {
				t.Errorf("it sees where its files are: %s", fd)
			}
		}
		if want := []string{"0", "1", "2"}; !slices.Equal(numbers, want) {
			t.Errorf("it was started with %s", got)
		}
	})
	t.Run("paths of the host", func(t *testing.T) {
		all := c.gets(t, "spy")
		for _, name := range []string{"cmdline", "version", "mounts", "filesystems", "swaps", "partitions", "diskstats", "modules", "keys", "cgroups"} {
			all += c.try(t, "read", "path", "/proc/"+name).text
		}
		for _, secret := range []string{p.dir, p.at("state"), "runsc", "tine-sandbox", content(t, "/proc/version"), strings.TrimSpace(content(t, "/proc/cmdline"))} {
			if strings.Contains(all, secret) {
				t.Errorf("%q is in /proc", secret)
			}
		}
	})
	t.Run("its standard files opened again", func(t *testing.T) {
		for fd := range 3 {
			if got := c.try(t, "list", "path", fmt.Sprintf("/proc/self/fd/%d/..", fd)); got.ok() {
				t.Errorf("descriptor %d is in a folder of %s", fd, got.text)
			}
		}
	})
	c.works(t)
}

// boxOf are the processes of a sandbox on the host.
func boxOf(t testing.TB, c *cell) []int {
	t.Helper()
	rec := recordOf(t, c)
	return []int{rec.PID, rec.Gofer.PID}
}

// TestIsolationNeighbours has two sessions that know of each other.
func TestIsolationNeighbours(t *testing.T) {
	p := newPrison(t, Options{})
	own := func(name string) func(*driver.Spec) {
		return func(s *driver.Spec) {
			s.State, s.Dirs = p.at("state/of-"+name), []driver.StateDir{{Name: "data"}}
			if err := p.d.Seed(t.Context(), *s, driver.Source{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, b := p.enter(t, own("a")), p.enter(t, own("b"))
	a.gets(t, "write", "path", "/state/data/file", "create", "1", "text", p.canary)
	a.gets(t, "write", "path", "/tmp/file", "create", "1", "text", p.canary)
	a.gets(t, "write", "path", p.at("open/of-a"), "create", "1", "text", p.canary)
	a.gets(t, "listen", "network", "tcp", "address", "127.0.0.1:4711")
	a.gets(t, "listen", "network", "unix", "address", "@neighbour")
	a.gets(t, "shm", "text", p.canary)
	if got := content(t, dirsOf(p.at("state/of-a"), "data", "file")); got != p.canary {
		t.Fatalf("its state has %q", got)
	}
	at := func(name string) string { return dirsOf(p.at("state/of-a"), "data", name) }
	pid := boxOf(t, a)[0]
	gone := "ESRCH ENOENT"
	b.all(t, []attempt{
		{"its state by the path of the host", "EACCES ENOENT", "read", []string{"path", at("file")}},
		{"its state by the path inside", "ENOENT", "read", []string{"path", "/state/data/file"}},
		{"its state from one's own", "ENOENT EACCES", "list", []string{"path", "/state/data/../../of-a"}},
		{"its temporary files", "ENOENT", "read", []string{"path", "/tmp/file"}},
		{"its changes of the root", "ENOENT", "read", []string{"path", p.at("open/of-a")}},
		{"its port", "ECONNREFUSED", "connect", []string{"network", "tcp", "address", "127.0.0.1:4711"}},
		{"its abstract socket", "ECONNREFUSED", "connect", []string{"network", "unix", "address", "@neighbour"}},
		{"its shared memory", "ENOENT", "shm", nil},
		{"to end its sandbox", gone, "kill", []string{"pid", strconv.Itoa(pid), "signal", "9"}},
		{"to end the gateway", gone, "kill", []string{"pid", strconv.Itoa(os.Getpid()), "signal", "9"}},
		{"to trace the gateway", "ESRCH EPERM", "ptrace", []string{"pid", strconv.Itoa(os.Getpid())}},
		{"to read the gateway's memory", "ESRCH EPERM ENOSYS", "vmread", []string{"pid", strconv.Itoa(os.Getpid())}},
		{"what the kernel says of the gateway", "ENOENT", "list", []string{"path", fmt.Sprintf("/proc/%d", os.Getpid())}},
		{"what the kernel says of its sandbox", "ENOENT", "read", []string{"path", fmt.Sprintf("/proc/%d/environ", pid)}},
		{"the gateway's root", "ENOENT", "list", []string{"path", fmt.Sprintf("/proc/%d/root", os.Getpid())}},
		{"a descriptor of the gateway", "ENOSYS ESRCH EPERM", "syscall", sys(unix.SYS_PIDFD_OPEN, strconv.Itoa(os.Getpid()))},
	})
	t.Run("its processes", func(t *testing.T) {
		list, self, _ := strings.Cut(b.gets(t, "processes"), " self ")
		if list != "["+self+"]" {
			t.Errorf("it sees processes %s, and is %s", list, self)
		}
	})
	t.Run("to end all processes", func(t *testing.T) {
		b.try(t, "kill", "pid", "-1", "signal", "9", "child", "1")
		a.works(t)
		if !recordOf(t, a).ID.Lives() {
			t.Error("the sandbox of the neighbour is gone")
		}
	})
	a.works(t)
	// It may have ended itself; other sandboxes go on.
	p.enter(t).works(t)
}

func recordOf(t testing.TB, c *cell) record {
	t.Helper()
	rec, err := records.Parse(c.inst.Handle().Data)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// sys are the arguments of a system call.
func sys(number int, args ...string) []string {
	all := []string{"number", strconv.Itoa(number)}
	for i, a := range args {
		all = append(all, strconv.Itoa(i), a)
	}
	return all
}

// TestIsolationPrivileges tries to become another user.
func TestIsolationPrivileges(t *testing.T) {
	p := newPrison(t, Options{})
	path := attacker.at(t)
	// Programs of the host that change the user that runs them.
	for name, mode := range map[string]os.FileMode{"suid": 0o755 | os.ModeSetuid, "sgid": 0o755 | os.ModeSetgid, "caps": 0o755} {
		copyFile(t, p.at("open/"+name), path)
		if err := os.Chmod(p.at("open/"+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if rootful() {
		all := "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"
		if err := unix.Setxattr(p.at("open/caps"), "security.capability", []byte(all), 0); err != nil {
			t.Fatal(err)
		}
	}
	c := p.enter(t)
	who := c.gets(t, "ids")
	t.Run("its user", func(t *testing.T) {
		want := "uid 1000 1000 1000 gid 1000 1000 1000 groups []"
		if !rootful() {
			want = "uid 0 0 0 gid 0 0 0 groups []" // by number alone
		}
		if !strings.HasPrefix(who, want+"\n") {
			t.Errorf("it is %s, want %s", who, want)
		}
	})
	t.Run("what it may do", func(t *testing.T) {
		for line := range strings.Lines(who) {
			if name, value, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Cap") && strings.Trim(value, "0\t\n") != "" {
				t.Errorf("it has %s", line)
			}
		}
		if !strings.Contains(who, "capget [{0 0 0} {0 0 0}]") || strings.Count(who, "Cap") < 4 {
			t.Errorf("it has %s", who)
		}
	})
	for _, name := range []string{"suid", "sgid", "caps"} {
		t.Run("a program of the host with "+name, func(t *testing.T) {
			got := c.try(t, "exec", "path", p.at("open/"+name), "args", "ids")
			if name == "caps" && rootful() && got.errno == "EPERM" {
				return // what it would need is out of reach
			}
			if !got.ok() || got.text != "ok\n"+who {
				t.Errorf("it became\n%s\nand was\n%s", got, who)
			}
		})
		t.Run("a copy of its own with "+name, func(t *testing.T) {
			own := "/tmp/" + name
			c.gets(t, "exec", "path", "/bin/cp", "args", p.at("open/"+name)+" "+own)
			c.try(t, "chmod", "path", own, "mode", "0o6755")
			c.try(t, "chown", "path", own, "uid", "0", "gid", "0")
			if got := c.gets(t, "exec", "path", own, "args", "ids"); got != "ok\n"+who {
				t.Errorf("it became\n%s\nand was\n%s", got, who)
			}
		})
	}
	for _, line := range []string{"su -c id", "mount -t tmpfs none /tmp", "passwd -d root", "sudo -n id", "newgrp root"} {
		name, args, _ := strings.Cut(line, " ")
		t.Run(name+" of the host", func(t *testing.T) {
			program, err := exec.LookPath(name)
			if err != nil {
				return // nor is it inside
			}
			if name == "su" && !rootful() || name == "newgrp" {
				// A program with the number of root may become root, which gains nothing.
				got := c.try(t, "exec", "path", program, "args", args, "input", p.at("open/suid")+" ids\n")
				if strings.Contains(got.text, "Cap") && strings.Count(got.text, "0000000000000000") < 4 {
					t.Errorf("it became %s", got.text)
				}
				return
			}
			c.fails(t, "exit error EACCES EPERM", "exec", "path", program, "args", args)
		})
	}
	// An ordinary user has the number of root: to stay what it is may succeed.
	root, other := "EPERM", "EPERM EINVAL"
	if !rootful() {
		root = "ok"
	}
	c.all(t, []attempt{
		{"to become root", root, "syscall", append(sys(unix.SYS_SETUID, "0"), "child", "1")},
		{"to become root for a while", root, "syscall", append(sys(unix.SYS_SETRESUID, "-1", "0", "-1"), "child", "1")},
		{"to be of root's group", root, "syscall", append(sys(unix.SYS_SETGID, "0"), "child", "1")},
		{"to become another", other, "syscall", append(sys(unix.SYS_SETUID, "4242"), "child", "1")},
		{"to be of another group", other, "syscall", append(sys(unix.SYS_SETRESGID, "4242", "4242", "4242"), "child", "1")},
		{"to have more groups", "EPERM", "syscall", append(sys(unix.SYS_SETGROUPS, "1", "b:4"), "child", "1")},
		{"to gain privileges again", "EINVAL", "syscall", append(sys(unix.SYS_PRCTL, strconv.Itoa(unix.PR_SET_NO_NEW_PRIVS), "0"), "child", "1")},
		{"to pass a capability on", "EPERM EINVAL", "syscall", append(sys(unix.SYS_PRCTL, strconv.Itoa(unix.PR_CAP_AMBIENT), strconv.Itoa(unix.PR_CAP_AMBIENT_RAISE), strconv.Itoa(unix.CAP_SYS_ADMIN)), "child", "1")},
		{"to open more files", "EPERM", "syscall", append(sys(unix.SYS_PRLIMIT64, "0", strconv.Itoa(unix.RLIMIT_NOFILE), "s:\xff\xff\xff\x7f\x00\x00\x00\x00\xff\xff\xff\x7f\x00\x00\x00\x00"), "child", "1")},
	})
	t.Run("to be more important", func(t *testing.T) {
		ours, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less what nice calls it
		if err != nil {
			t.Fatal(err)
		}
		c.try(t, "syscall", sys(unix.SYS_SETPRIORITY, "0", "0", "-20")...)
		for _, pid := range boxOf(t, c) {
			if got, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || got > ours {
				t.Errorf("process %d of the host is at %d, and the test at %d (%v)", pid, 20-got, 20-ours, err)
			}
		}
	})
	if got := c.gets(t, "ids"); got != who {
		t.Errorf("in the end it is\n%s\nand was\n%s", got, who)
	}
}
