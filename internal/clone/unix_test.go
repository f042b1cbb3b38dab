//go:build linux || darwin

package clone

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func stat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(path, err)
	}
	return st
}

// trees returns a source and where its copy goes.
func trees(t testing.TB, files map[string]string) (src, dst string) {
	t.Helper()
	parent := t.TempDir()
	src = filepath.Join(parent, "src")
	put(t, src, files)
	t.Cleanup(func() { Remove(parent) })
	return src, filepath.Join(parent, "dst")
}

func mustTree(t testing.TB, dst, src string) {
	t.Helper()
	if err := Tree(t.Context(), dst, src, Options{Workers: 4}); err != nil {
		t.Fatal(err)
	}
}

func TestModesAndLinks(t *testing.T) {
	src, dst := trees(t, map[string]string{"f": "f", "d/x": "x", "s/": "", "ro/x": "x", "locked/x": "x", "sticky/": ""})
	for name, target := range map[string]string{"abs": "/etc/passwd", "up": "../../..", "loop": "loop", "none": "nowhere", "d/in": "x", "dirlink": "d", "long": strings.Repeat("x", 1000)} {
		if err := os.Symlink(target, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]uint32{"f": 0o4751, "d/x": 0, "s": 0o2770, "sticky": 0o1777} {
		if err := unix.Chmod(filepath.Join(src, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 { // what can't be read can't be copied
		if err := os.Chmod(filepath.Join(src, "d/x"), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(src, "ro"), 0o500); err != nil {
		t.Fatal(err)
	}
	mustTree(t, dst, src)
	if got, want := describe(t, dst), describe(t, src); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHardLinks(t *testing.T) {
	src, dst := trees(t, map[string]string{"a": "same", "large": strings.Repeat("l", 2<<20), "single": "s", "locked/deep/x": "x", "d/": "", "e/f/g/": ""})
	for name, old := range map[string]string{"b": "a", "d/c": "a", "e/f/g/large": "large", "d/large": "large", "d/x": "locked/deep/x", "e/x": "locked/deep/x"} {
		if err := os.Link(filepath.Join(src, old), filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(src, "single"), filepath.Join(src, "..", "outside")); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(filepath.Join(src, "locked"), 0); err != nil {
			t.Fatal(err)
		}
	}
	mustTree(t, dst, src)
	if got, want := describe(t, dst), describe(t, src); got != want {
		t.Errorf("got\n%.2000s\nwant\n%.2000s", got, want)
	}
	for _, names := range [][]string{{"a", "b", "d/c"}, {"large", "e/f/g/large", "d/large"}, {"locked/deep/x", "d/x", "e/x"}} {
		first := stat(t, filepath.Join(dst, names[0]))
		if int(first.Nlink) != len(names) {
			t.Errorf("%s has %d names", names[0], first.Nlink)
		}
		for _, name := range names {
			if st := stat(t, filepath.Join(dst, name)); idOf(&st) != idOf(&first) {
				t.Errorf("%s is not %s", name, names[0])
			}
		}
	}
	if st := stat(t, filepath.Join(dst, "single")); st.Nlink != 1 {
		t.Error("the copy is linked to the source")
	}
	bytes, files, err := Size(src)
	if err != nil || bytes != 4+2<<20+1+1 || files != 4 {
		t.Errorf("size %d in %d files, %v", bytes, files, err)
	}
}

func TestSparse(t *testing.T) {
	src, dst := trees(t, map[string]string{"x/": ""})
	const size = 1 << 30
	f, err := os.Create(filepath.Join(src, "x/holes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, 10 << 20, size - 5} {
		if _, err := f.WriteAt([]byte("there"), off); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	if err := os.Truncate(filepath.Join(src, "x/holes"), size+1<<20); err != nil {
		t.Fatal(err)
	}
	put(t, src, map[string]string{"x/only": ""})
	if err := os.Truncate(filepath.Join(src, "x/only"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, filepath.Join(src, "x/holes")); st.Blocks*512 > 1<<20 {
		missing(t, "the filesystem has no holes")
	}
	mustTree(t, dst, src)
	for _, name := range []string{"x/holes", "x/only"} {
		was, is := stat(t, filepath.Join(src, name)), stat(t, filepath.Join(dst, name))
		if is.Size != was.Size || is.Blocks > was.Blocks+16 {
			t.Errorf("%s: %d bytes in %d blocks, want %d in %d", name, is.Size, is.Blocks, was.Size, was.Blocks)
		}
	}
	g, err := os.Open(filepath.Join(dst, "x/holes"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for off, want := range map[int64]string{0: "there\x00", 10<<20 - 1: "\x00there\x00", size - 6: "\x00there\x00"} {
		b := make([]byte, len(want))
		if _, err := g.ReadAt(b, off); err != nil || string(b) != want {
			t.Errorf("at %d: %q, %v", off, b, err)
		}
	}
	if bytes, _, err := Size(src); err != nil || bytes > 1<<20 {
		t.Errorf("holes count as %d bytes, %v", bytes, err)
	}
}

func TestXattrs(t *testing.T) {
	src, dst := trees(t, map[string]string{"f": "f", "d/": ""})
	for _, name := range []string{"f", "d", "."} {
		if err := unix.Setxattr(filepath.Join(src, name), "user.tine", []byte("of "+name), 0); err != nil {
			missing(t, err)
		}
	}
	mustTree(t, dst, src)
	for _, name := range []string{"f", "d", "."} {
		b := make([]byte, 100)
		n, err := unix.Getxattr(filepath.Join(dst, name), "user.tine", b)
		if err != nil || string(b[:n]) != "of "+name {
			t.Errorf("%s: %q, %v", name, b[:max(n, 0)], err)
		}
	}
}

func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "only root gives files away")
	}
	src, dst := trees(t, map[string]string{"f": "f", "d/g": "g"})
	if err := os.Symlink("f", filepath.Join(src, "l")); err != nil {
		t.Fatal(err)
	}
	names := []string{"f", "d", "l", "d/g", "."}
	for n, name := range names {
		if err := os.Lchown(filepath.Join(src, name), 1000+n, 2000+n); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Chmod(filepath.Join(src, "f"), 0o6755); err != nil {
		t.Fatal(err)
	}
	mustTree(t, dst, src)
	for n, name := range names {
		if st := stat(t, filepath.Join(dst, name)); int(st.Uid) != 1000+n || int(st.Gid) != 2000+n {
			t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
	if got, want := describe(t, dst), describe(t, src); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Where the parent passes its group on, ours is still that of the source.
	if err := errors.Join(os.Chown(filepath.Dir(dst), 0, 4000), unix.Chmod(filepath.Dir(dst), 0o2755)); err != nil {
		t.Fatal(err)
	}
	put(t, src, map[string]string{"mine": "m"})
	if err := os.Lchown(filepath.Join(src, "mine"), 0, 0); err != nil {
		t.Fatal(err)
	}
	mustTree(t, dst+"2", src)
	if st := stat(t, filepath.Join(dst+"2", "mine")); st.Uid != 0 || st.Gid != 0 {
		t.Errorf("it belongs to %d:%d", st.Uid, st.Gid)
	}
}

func TestFIFOsAreMadeAnewAndSocketsLeftOut(t *testing.T) {
	src, dst := trees(t, map[string]string{"d/f": "f"})
	fifo := filepath.Join(src, "d/fifo")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), unix.Chmod(fifo, 0o622), os.Link(fifo, filepath.Join(src, "d/same"))); err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "s") // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	l, err := net.Listen("unix", filepath.Join(short, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Rename(filepath.Join(short, "s"), filepath.Join(src, "socket")); err != nil {
		missing(t, err)
	}
	mustTree(t, dst, src)
	alone(t, dst, "d")
	if runtime.GOOS == "darwin" {
		alone(t, filepath.Join(dst, "d"), "f")
		return
	}
	was, is, same := stat(t, fifo), stat(t, filepath.Join(dst, "d/fifo")), stat(t, filepath.Join(dst, "d/same"))
	if is.Mode != was.Mode || is.Mtim != was.Mtim || is.Uid != was.Uid || same.Ino != is.Ino || is.Ino == was.Ino {
		t.Errorf("the FIFO %+v was copied as %+v and %+v", was, is, same)
	}
}

func TestDevicesAreRefused(t *testing.T) {
	src, dst := trees(t, map[string]string{"d/f": "f"})
	if err := unix.Mknod(filepath.Join(src, "d/null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		missing(t, err)
	}
	err := Tree(t.Context(), dst, src, Options{})
	if err == nil || !strings.Contains(err.Error(), "d/null is a device") {
		t.Errorf("got %v", err)
	}
	alone(t, filepath.Dir(dst), "src")
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		return // to root nothing is unreadable
	}
	for _, name := range []string{"d/f", "d/e"} {
		src, dst := trees(t, map[string]string{"d/f": "f", "d/e/g": "g"})
		if err := os.Chmod(filepath.Join(src, name), 0); err != nil {
			t.Fatal(err)
		}
		err := Tree(t.Context(), dst, src, Options{})
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v", err)
		}
		alone(t, filepath.Dir(dst), "src")
	}
}

// A tree that is deeper than a path may be long, and than there may be open
// files in a process with the usual limit.
func TestDeep(t *testing.T) {
	src, dst := trees(t, map[string]string{"x/": ""})
	const depth = 1000
	fd, err := openat(unix.AT_FDCWD, src, openDir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range depth {
		if err := unix.Mkdirat(fd, "deep", 0o755); err != nil {
			t.Fatal(n, err)
		}
		next, err := openat(fd, "deep", openDir)
		unix.Close(fd)
		if err != nil {
			t.Fatal(n, err)
		}
		fd = next
	}
	at, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(at)
	unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 256
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	err = Tree(t.Context(), dst, src, Options{})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, files, err := Size(dst); err != nil || files != 1 {
		t.Errorf("%d files, %v", files, err)
	}
	if err := errors.Join(Remove(src), Remove(dst)); err != nil {
		t.Error(err)
	}
}

// missing ends a test whose machine lacks what it needs: it skips, and fails in
// CI.
func missing(t *testing.T, what any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}
