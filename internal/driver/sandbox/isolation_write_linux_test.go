//go:build amd64 || arm64

package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestIsolationWriting changes what it sees, which no other program may notice. Inside
// the attempts may succeed: what is written is kept in memory.
func TestIsolationWriting(t *testing.T) {
	p := newPrison(t, Options{})
	for _, name := range []string{"appended", "truncated", "mode", "owner", "time", "xattr", "mapped", "removed", "moved", "linked", "covered"} {
		p.put(t, "open/"+name, "as it was")
	}
	p.mkdir(t, "open/dir")
	before := listing(t, p.at("open"))
	c := p.enter(t)
	at := func(name string) string { return p.at("open/" + name) }
	for _, a := range []attempt{
		{"append", "", "write", []string{"path", at("appended"), "append", "1", "text", "mine"}},
		{"overwrite", "", "write", []string{"path", at("file"), "text", "mine"}},
		{"truncate", "", "truncate", []string{"path", at("truncated"), "size", "0"}},
		{"change the mode", "", "chmod", []string{"path", at("mode"), "mode", "0o4777"}},
		{"change the owner", "", "chown", []string{"path", at("owner"), "uid", "12345", "gid", "12345"}},
		{"change the time", "", "utimes", []string{"path", at("time")}},
		{"set an attribute", "", "setxattr", []string{"path", at("xattr"), "name", "user.mine", "text", "mine"}},
		{"write through memory", "", "mmap", []string{"path", at("mapped"), "text", "mine"}},
		{"create", "", "write", []string{"path", at("created"), "create", "1", "text", "mine"}},
		{"make a directory", "", "mkdir", []string{"path", at("made")}},
		{"make a link", "", "symlink", []string{"from", "/etc/passwd", "to", at("soft")}},
		{"make a hard link", "", "link", []string{"from", at("linked"), "to", at("hard")}},
		{"make a FIFO", "", "mknod", []string{"path", at("fifo"), "mode", "0o10666"}},
		{"remove", "", "unlink", []string{"path", at("removed")}},
		{"remove a directory", "", "unlink", []string{"path", at("dir"), "flags", "0x200"}},
		{"move", "", "rename", []string{"from", at("moved"), "to", at("elsewhere")}},
		{"move over another", "", "rename", []string{"from", at("elsewhere"), "to", at("covered")}},
	} {
		t.Run(a.name, func(t *testing.T) {
			c.try(t, a.tool, a.args...)
			if after := listing(t, p.at("open")); after != before {
				t.Errorf("the host has\n%s\nand had\n%s", after, before)
			}
		})
	}
	t.Run("what was written is there inside", func(t *testing.T) {
		if got := c.gets(t, "read", "path", at("created")); got != "mine" {
			t.Errorf("it has %q", got)
		}
	})
	t.Run("the system", func(t *testing.T) {
		name := filepath.Base(p.world)
		for _, dir := range []string{"/", "/etc", "/usr", "/usr/bin", "/tmp", "/home", "/home/user", "/var/tmp", "/opt", "/state", "/workspace"} {
			c.try(t, "write", "path", filepath.Join(dir, name+"-mine"), "create", "1", "text", "mine")
			if exists(filepath.Join(dir, name+"-mine")) {
				t.Errorf("it is in %s of the host", dir)
			}
		}
	})
	c.works(t)
}

// listing is all that there is to know about the files of a folder.
func listing(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		attrs := make([]byte, 1024)
		n, _ := unix.Listxattr(path, attrs)
		text := ""
		if d.Type().IsRegular() {
			text = content(t, path)
		}
		all.WriteString(strings.Join([]string{path, d.Type().String(), time.Unix(s.Mtim.Unix()).String(), fs.FileMode(s.Mode).String(), string(rune('0' + s.Nlink)), string(attrs[:max(n, 0)]), text}, " ") + "\n")
		if s.Uid != uint32(os.Geteuid()) {
			all.WriteString("of another\n")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestIsolationAllowWrite has a folder that may be written to: only that, and not
// more than a program of its user could do there.
func TestIsolationAllowWrite(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "outside", "as it was")
	p.put(t, "write/file", "as it was")
	for at, to := range map[string]string{"write/out": p.at("outside"), "write/up": "../outside", "write/shadow": "/etc/shadow"} {
		if err := os.Symlink(to, p.at(at)); err != nil {
			t.Fatal(err)
		}
	}
	c := p.enter(t, func(s *driver.Spec) {
		options(*s).AllowRead, options(*s).AllowWrite = []string{p.at("open")}, []string{p.at("write")}
	})
	at := func(name string) string { return p.at("write/" + name) }
	t.Run("it may be written to", func(t *testing.T) {
		c.gets(t, "write", "path", at("made"), "create", "1", "text", "mine")
		if got := content(t, at("made")); got != "mine" {
			t.Errorf("the host has %q", got)
		}
		var s unix.Stat_t
		if err := unix.Stat(at("made"), &s); err != nil || s.Uid != uint32(os.Geteuid()) {
			t.Errorf("it is of %d on the host (%v)", s.Uid, err)
		}
	})
	c.all(t, []attempt{
		{"the folder above", "ENOENT EACCES", "read", []string{"path", at("../outside")}},
		{"a link of the host out of it", "ENOENT EACCES", "write", []string{"path", at("out"), "text", "mine"}},
		{"a relative link of the host", "ENOENT EACCES", "write", []string{"path", at("up"), "text", "mine"}},
		{"a link of the host to the system", "ENOENT EACCES", "read", []string{"path", at("shadow")}},
		{"a device", "EPERM EACCES", "mknod", []string{"path", at("disk"), "mode", "0o60666", "major", "254", "minor", "0"}},
		{"a character device", "EPERM EACCES", "mknod", []string{"path", at("mem"), "mode", "0o20666", "major", "1", "minor", "1"}},
		{"to give away", "EPERM EINVAL", "chown", []string{"path", at("made"), "uid", "12345", "gid", "12345"}},
		{"a hard link out of it", "EXDEV ENOENT", "link", []string{"from", at("made"), "to", p.at("open/hard")}},
		{"to move it out", "EXDEV", "rename", []string{"from", at("made"), "to", "/tmp/moved"}},
		{"to move it away", "EBUSY EXDEV EACCES EPERM", "rename", []string{"from", p.at("write"), "to", "/tmp/moved"}},
		{"to remove it", "EBUSY ENOTEMPTY EACCES EPERM", "unlink", []string{"path", p.at("write"), "flags", "0x200"}},
		{"file capabilities", "EPERM ENOTSUP EINVAL EACCES", "setxattr", []string{"path", at("made"), "name", "security.capability", "text", "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"}},
		{"a trusted attribute", "EPERM ENOTSUP EACCES", "setxattr", []string{"path", at("made"), "name", "trusted.overlay.opaque", "text", "y"}},
	})
	t.Run("a program that makes others root", func(t *testing.T) {
		c.try(t, "chmod", "path", at("made"), "mode", "0o6755")
		info, err := os.Stat(at("made"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("the host has a file of mode %v, which is the gateway's", info.Mode())
		}
	})
	t.Run("a link made inside leads nowhere outside", func(t *testing.T) {
		c.gets(t, "symlink", "from", p.at("outside"), "to", at("inside"))
		c.fails(t, "ENOENT EACCES", "write", "path", at("inside"), "text", "mine")
	})
	if got := content(t, p.at("outside")); got != "as it was" {
		t.Errorf("what is beside it has %q", got)
	}
	c.works(t)
}
