package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tree makes the folders that children work on.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"in/file": "in", "in/sub/deep": "deep", "out/secret": "secret", "single/file": "one", "single/other": "two",
		"w/a": "a", "w/b": "b", "w/sub/c": "c", "w2/d": "d",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"in/out": "../out/secret", "in/outdir": "../out", "out/in": "../in/file", "w/out": "../out/secret", "named": "in",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *child) rules() Rules {
	return Rules{
		Read:  []string{c.dir + "/in", c.dir + "/single/file", c.dir + "/none", c.dir + "/in/file/none"},
		Write: []string{c.dir + "/w", c.dir + "/w2", "/dev/null"},
	}
}

func read(path string) error { _, err := os.ReadFile(path); return err }
func list(path string) error { _, err := os.ReadDir(path); return err }
func put(path string) error  { return os.WriteFile(path, []byte("new"), 0o600) }
func times(fd int) error {
	at := [2]unix.Timespec{{Sec: 1}, {Sec: 1}}
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	return known(errno)
}
func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func init() {
	children["files"] = func(c *child) {
		d := c.dir
		before := must(os.Open(d + "/out/secret"))
		folder := must(unix.Open(d+"/out", unix.O_RDONLY|unix.O_DIRECTORY, 0))
		path := must(unix.Open(d+"/out/secret", unix.O_PATH, 0))
		c.apply(c.rules())

		c.try("read", read(d+"/in/file"))
		c.try("read below", read(d+"/in/sub/deep"))
		c.try("read by another name", read(d+"/named/file"))
		c.try("list", list(d+"/in"))
		c.try("read one file", read(d+"/single/file"))
		c.try("read the file beside", read(d+"/single/other"))
		c.try("list around one file", list(d+"/single"))
		c.try("read outside", read(d+"/out/secret"))
		c.try("list outside", list(d+"/out"))
		c.try("read through ..", read(d+"/in/../out/secret"))
		c.try("read by a link", read(d+"/in/out"))
		c.try("read by a link to the folder", read(d+"/in/outdir/secret"))
		c.try("read in, by a link outside", read(d+"/out/in"))
		c.try("read a system's file", read("/etc/passwd"))
		c.try("read the process", read("/proc/self/environ"))
		_, err := before.Read(make([]byte, 1))
		c.try("read what was open", err)
		fd, err := unix.Openat(folder, "secret", unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		c.try("open in an open folder", err)
		_, err = unix.ReadDirent(folder, make([]byte, 4096))
		c.try("list an open folder", err)
		c.try("open again", open(c.proc(before), unix.O_RDONLY))
		c.try("open for good what was a path", open(c.procFD(path), unix.O_RDONLY))
		_, err = os.Stat(d + "/out/secret")
		c.try("stat outside", err) // as Landlock is

		c.try("write to what is read", put(d+"/in/file"))
		c.try("make beside what is read", put(d+"/in/new"))
		c.try("write outside", put(d+"/out/secret"))
		c.try("make outside", put(d+"/out/new"))
		c.try("cut by opening", open(d+"/in/file", unix.O_RDONLY|unix.O_TRUNC))
		c.try("cut by path", os.Truncate(d+"/out/secret", 0))
		c.try("cut what is written", os.Truncate(d+"/w/sub/c", 0))
		c.try("remove outside", os.Remove(d+"/out/secret"))
		c.try("write", put(d+"/w/a"))
		c.try("make", put(d+"/w/new"))
		c.try("make a folder", os.Mkdir(d+"/w/folder", 0o700))
		c.try("make a link", os.Symlink("../out/secret", d+"/w/link"))
		c.try("read by the new link", read(d+"/w/link"))
		c.try("make a pipe", unix.Mkfifo(d+"/w/fifo", 0o600))
		c.try("make a device", unix.Mknod(d+"/w/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		c.try("write to a device", put("/dev/null"))
		c.try("read a device", open("/dev/zero", unix.O_RDONLY))

		c.try("rename", os.Rename(d+"/w/new", d+"/w/newer"))
		c.try("rename across", os.Rename(d+"/w/b", d+"/w2/b"))
		c.try("rename out", os.Rename(d+"/w/a", d+"/out/a"))
		c.try("rename in", os.Rename(d+"/out/secret", d+"/w/secret"))
		c.try("exchange", unix.Renameat2(unix.AT_FDCWD, d+"/out/secret", unix.AT_FDCWD, d+"/w/a", unix.RENAME_EXCHANGE))
		c.try("link in", os.Link(d+"/out/secret", d+"/w/hard"))
		c.try("link an open file in", unix.Linkat(unix.AT_FDCWD, c.proc(before), unix.AT_FDCWD, d+"/w/hard2", unix.AT_SYMLINK_FOLLOW))
		c.try("link from what is read", os.Link(d+"/in/file", d+"/w/hard3"))
		c.try("remove", os.Remove(d+"/w/newer"))

		c.try("mode by path", os.Chmod(d+"/w/a", 0o644))
		c.try("mode outside", os.Chmod(d+"/out/secret", 0o644))
		c.try("mode of a path", unix.Fchmodat(path, "", 0o644, unix.AT_EMPTY_PATH))
		c.try("owner outside", os.Lchown(d+"/out/secret", os.Getuid(), os.Getgid()))
		c.try("times outside", os.Chtimes(d+"/out/secret", must(os.Stat("/")).ModTime(), must(os.Stat("/")).ModTime()))
		c.try("attribute outside", unix.Setxattr(d+"/out/secret", "user.x", []byte("y"), 0))
		own := must(os.OpenFile(d+"/w/a", os.O_RDWR, 0))
		c.try("mode of an open file", own.Chmod(0o640))
		c.try("times of an open file", times(int(own.Fd())))

		c.try("run", exec.Command(d+"/in/file").Run())
		c.try("run this program", exec.Command("/proc/self/exe").Run())
	}

	children["attributes"] = func(c *child) {
		rules := c.rules()
		rules.Attributes = true
		c.apply(rules)
		c.try("mode", os.Chmod(c.dir+"/w/a", 0o644))
		c.try("write outside", put(c.dir+"/out/secret"))
	}

	// The second time takes away, and gives nothing back.
	children["twice"] = func(c *child) {
		c.apply(c.rules())
		c.apply(Rules{Read: []string{c.dir + "/in/sub", c.dir + "/out"}, Write: []string{"/dev/null"}, Exec: []string{"/bin"}})
		c.try("read both", read(c.dir+"/in/sub/deep"))
		c.try("read the first", read(c.dir+"/in/file"))
		c.try("read the second", read(c.dir+"/out/secret"))
		c.try("write the first", put(c.dir+"/w/a"))
		c.try("run", exec.Command("/bin/true").Run())
	}

	children["programs"] = func(c *child) {
		rules := c.rules()
		self := must(os.Executable())
		rules.Exec = []string{self}
		c.apply(rules)
		c.try("run another", exec.Command("/bin/true").Run())
		c.try("run what is written", exec.Command(c.dir+"/w/a").Run())
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), childVar+"=run")
		out, err := cmd.Output()
		c.try("run", err)
		c.try("what it says: "+string(out), nil)
	}

	// A program that a confined one runs, which confines itself no more.
	children["run"] = func(c *child) {
		c.try("socket", socket(unix.AF_INET))
		c.try("read", read(c.dir+"/out/secret"))
		_, _ = os.Stdout.WriteString(c.out.Tries["socket"].Error() + ", " + c.out.Tries["read"].Error())
		os.Exit(0)
	}
}

func (c *child) proc(f *os.File) string   { return c.procFD(int(f.Fd())) }
func (c *child) procFD(number int) string { return "/proc/self/fd/" + strconv.Itoa(number) }

func TestFiles(t *testing.T) { each(t, testFiles) }

func testFiles(t *testing.T) {
	dir := tree(t)
	out := run(t, command(t, "files", dir))
	rename := since(out, abiRefer, 0)
	if out.Report.ABI < abiRefer {
		rename = syscall.EXDEV
	}
	out.want(t, map[string]syscall.Errno{
		"read": 0, "read below": 0, "read by another name": 0, "list": 0, "read one file": 0,
		"read the file beside": syscall.EACCES, "list around one file": syscall.EACCES, "read outside": syscall.EACCES,
		"list outside": syscall.EACCES, "read through ..": syscall.EACCES, "read by a link": syscall.EACCES,
		"read by a link to the folder": syscall.EACCES, "read in, by a link outside": 0, "read a system's file": syscall.EACCES,
		"read the process": syscall.EACCES, "read what was open": 0, "open in an open folder": syscall.EACCES,
		"list an open folder": 0, "open again": syscall.EACCES, "open for good what was a path": syscall.EACCES, "stat outside": 0,

		"write to what is read": syscall.EACCES, "make beside what is read": syscall.EACCES, "write outside": syscall.EACCES,
		"make outside": syscall.EACCES, "cut by opening": since(out, abiTruncate, syscall.EACCES),
		"cut by path": cut(out, syscall.EACCES), "cut what is written": cut(out, 0), "remove outside": syscall.EACCES,
		"write": 0, "make": 0, "make a folder": 0, "make a link": 0, "read by the new link": syscall.EACCES, "make a pipe": 0,
		"make a device": syscall.EACCES, "write to a device": 0, "read a device": syscall.EACCES,

		"rename": 0, "rename across": rename, "rename out": moved, "rename in": moved, "exchange": moved,
		"link in": moved, "link an open file in": moved, "link from what is read": moved, "remove": 0,

		"mode by path": syscall.EPERM, "mode outside": syscall.EPERM, "mode of a path": syscall.EPERM, "owner outside": syscall.EPERM,
		"times outside": syscall.EPERM, "attribute outside": syscall.EPERM, "mode of an open file": 0, "times of an open file": 0,
		"run": syscall.EPERM, "run this program": syscall.EPERM,
	})
	if want := []string{dir + "/none", dir + "/in/file/none"}; !slices.Equal(out.Report.Skipped, want) {
		t.Errorf("skipped %q, want %q", out.Report.Skipped, want)
	}
	if text, err := os.ReadFile(dir + "/out/secret"); string(text) != "secret" || err != nil {
		t.Errorf("the file outside has %q, %v", text, err)
	}
}

// cut is what an older kernel says where Landlock can't: no file is cut by its path.
func cut(o outcome, errno syscall.Errno) syscall.Errno {
	if o.Report.ABI < abiTruncate {
		return syscall.EPERM
	}
	return errno
}

func TestAttributes(t *testing.T) {
	run(t, command(t, "attributes", tree(t))).want(t, map[string]syscall.Errno{"mode": 0, "write outside": syscall.EACCES})
}

func TestTwice(t *testing.T) {
	run(t, command(t, "twice", tree(t))).want(t, map[string]syscall.Errno{
		"read both": 0, "read the first": syscall.EACCES, "read the second": syscall.EACCES, "write the first": syscall.EACCES, "run": syscall.EPERM,
	})
}

func TestPrograms(t *testing.T) {
	run(t, command(t, "programs", tree(t))).want(t, map[string]syscall.Errno{
		"run another": syscall.EACCES, "run what is written": syscall.EACCES, "run": 0,
		"what it says: permission denied, permission denied": 0,
	})
}
