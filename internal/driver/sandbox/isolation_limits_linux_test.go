//go:build amd64 || arm64

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// bomb makes an attempt that may end the sandbox, and reports whether it did.
func (c *cell) bomb(t *testing.T, tool string, args ...string) (o outcome, ended bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := c.peer.TryCall(ctx, tool, named(args))
	if err == nil {
		return outcomeOf(text), false
	}
	drivertest.Ended(t, c.inst)
	return outcome{errno: "ended", text: fmt.Sprint(c.inst.Err())}, true
}

// dies makes an attempt that takes more memory than there may be, and wants the sandbox
// to end of it: in the attempt, or a moment later where memory is polled.
func (c *cell) dies(t *testing.T, tool string, args ...string) {
	t.Helper()
	got, ended := c.bomb(t, tool, args...)
	if !ended {
		t.Log("it got", got.errno, got.text)
		drivertest.Ended(t, c.inst)
	}
	if err := c.inst.Err(); err == nil || !strings.Contains(err.Error(), "took more memory than servers.attacker.sandbox.memory lets it have") {
		t.Errorf("%s %q: it ended with %v", tool, args, err)
	}
}

// TestIsolationForkBomb starts processes and threads without end.
func TestIsolationForkBomb(t *testing.T) {
	p := newPrison(t, Options{})
	neighbour := p.enter(t)
	const most, wanted = 32, "1000"
	c := p.enter(t, func(s *driver.Spec) { options(*s).Pids = most })
	for name, flags := range map[string]int{"processes": 0, "as root of a namespace": unix.CLONE_NEWUSER} {
		t.Run(name, func(t *testing.T) {
			got := c.try(t, "fork", "count", wanted, "flags", fmt.Sprint(flags))
			var had int
			if _, err := fmt.Sscanf(got.text, "after %d:", &had); err != nil || got.errno != "EAGAIN" || had < 1 || had >= most {
				t.Errorf("it ends with %s %q, and may have %d processes", got.errno, got.text, most)
			}
			c.works(t)
		})
	}
	t.Run("a higher limit", func(t *testing.T) {
		c.fails(t, "EPERM", "limit", "which", fmt.Sprint(unix.RLIMIT_NPROC), "most", wanted)
	})
	t.Run("as many as it may", func(t *testing.T) {
		// For each gVisor has two threads, which must not be what ends it.
		c := p.enter(t, func(s *driver.Spec) { options(*s).Pids, options(*s).Memory = 320, 2<<30 })
		if got := c.gets(t, "fork", "count", "300"); got != "300" {
			t.Errorf("it has %s processes of 300", got)
		}
		c.works(t)
	})
	t.Run("threads", func(t *testing.T) {
		c.gets(t, "threads", "child", "1", "count", "8")
		c.fails(t, "exit", "threads", "child", "1", "count", wanted) // Go ends a program that gets no more of them
		c.works(t)
	})
	neighbour.works(t)
	p.enter(t).works(t)
}

// TestIsolationMemoryBomb takes more memory than it may have.
func TestIsolationMemoryBomb(t *testing.T) {
	p := newPrison(t, Options{})
	neighbour := p.enter(t)
	const most, much = 192 << 20, 256 << 20
	small := func(s *driver.Spec) { options(*s).Memory, options(*s).Disk = most, 2*much }
	for _, tt := range []struct {
		name, tool string
		args       []string
	}{
		{"memory", "eat", nil},
		{"files", "fill", []string{"path", "/tmp/file"}},
		{"files in /dev", "fill", []string{"path", "/dev/file"}},
		{"a file without a name", "memfd", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := p.enter(t, small)
			args := append(tt.args, "bytes", fmt.Sprint(much))
			if tt.name == "files in /dev" && rootful() {
				c.fails(t, "EACCES", tt.tool, args...) // it is another's there
				c.works(t)
				return
			}
			c.dies(t, tt.tool, args...)
		})
	}
	t.Run("less", func(t *testing.T) {
		c := p.enter(t, small)
		c.gets(t, "eat", "bytes", fmt.Sprint(most/3))
		c.gets(t, "fill", "path", "/tmp/file", "bytes", fmt.Sprint(most/4))
		c.works(t)
	})
	neighbour.works(t)
}

// TestIsolationForkedBomb has a child that does what ends it: its parent and its
// sibling don't.
func TestIsolationForkedBomb(t *testing.T) {
	p := newPrison(t, Options{})
	spec := func() driver.Spec {
		s := p.spec(t, func(s *driver.Spec) { options(*s).Memory, options(*s).Pids = 192<<20, 32 })
		s.State = filepath.Join(p.at("state"), "of-"+s.Session)
		return s
	}
	first := spec()
	if err := p.d.Seed(t.Context(), first, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	parent := p.start(t, first)
	parent.gets(t, "write", "path", "/tmp/file", "create", "1", "text", "before")
	snap := p.freeze(t, first, parent)
	var children []*cell
	for range 2 {
		s := spec()
		children = append(children, p.child(t, s, &snap))
	}
	if err := p.d.Discard(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	bomber, sibling := children[0], children[1]
	bomber.gets(t, "write", "path", "/tmp/file", "text", "child!")
	bomber.fails(t, "EAGAIN", "fork", "count", "1000")
	bomber.dies(t, "eat", "bytes", fmt.Sprint(256<<20))
	for name, c := range map[string]*cell{"the parent": parent, "the sibling": sibling} {
		if text := c.gets(t, "read", "path", "/tmp/file"); text != "before" {
			t.Errorf("%s has %q", name, text)
		}
		c.works(t)
	}
}

// freeze makes a snapshot as a session does.
func (p *prison) freeze(t *testing.T, spec driver.Spec, c *cell) driver.Snapshot {
	t.Helper()
	release, err := c.inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	snap, err := p.d.Freeze(t.Context(), spec, c.inst, p.at("state/snap"))
	if err != nil {
		t.Fatal(err)
	}
	snap.Hello = greetingText
	return snap
}

// TestIsolationDisk writes more than it may, wherever it may write.
func TestIsolationDisk(t *testing.T) {
	p := newPrison(t, Options{})
	const disk = 16 << 20
	c := p.enter(t, func(s *driver.Spec) { options(*s).Disk = disk })
	for _, dir := range []string{"/home/user", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", p.at("open")} {
		t.Run(dir, func(t *testing.T) {
			path := dir + "/filled"
			errnos := "ENOSPC EACCES ENOENT"
			if dir == "/dev" && !rootful() {
				errnos = "ok" // it is memory, which has a limit of its own
			}
			c.fails(t, errnos, "fill", "path", path, "bytes", fmt.Sprint(4*disk))
			c.works(t)
			c.try(t, "unlink", "path", path)
		})
	}
	t.Run("all of it together", func(t *testing.T) {
		var sum int64
		for _, path := range []string{"/dev/shm/filled", "/tmp/filled"} {
			c.fails(t, "ENOSPC", "fill", "path", path, "bytes", fmt.Sprint(4*disk))
			var mode, uid, gid, size int64
			if _, err := fmt.Sscanf(c.gets(t, "stat", "path", path), "mode %o uid %d gid %d size %d", &mode, &uid, &gid, &size); err != nil {
				t.Fatal(err)
			}
			if size == 0 {
				t.Errorf("nothing can be written to %s", path)
			}
			sum += size
		}
		if sum > disk {
			t.Errorf("it has %d bytes, and may have %d", sum, disk)
		}
		for _, path := range []string{"/dev/shm/filled", "/tmp/filled"} {
			c.gets(t, "unlink", "path", path)
		}
	})
	t.Run("devices work", func(t *testing.T) {
		c.gets(t, "write", "path", "/dev/null", "text", "x")
		c.gets(t, "write", "path", "/dev/shm/small", "create", "1", "text", "x")
	})
	t.Run("and goes on", func(t *testing.T) {
		c.gets(t, "fill", "path", "/home/user/small", "bytes", fmt.Sprint(disk/4))
	})
	t.Run("a file with a hole", func(t *testing.T) {
		c.try(t, "write", "path", "/tmp/hole", "create", "1", "text", "x")
		c.try(t, "truncate", "path", "/tmp/hole", "size", fmt.Sprint(int64(1)<<50))
		c.works(t)
	})
}

// TestIsolationFiles opens more than it may.
func TestIsolationFiles(t *testing.T) {
	p := newPrison(t, Options{})
	c := p.enter(t, func(s *driver.Spec) { options(*s).Files = 64 })
	c.fails(t, "EMFILE", "open", "count", "100")
	c.works(t)
}

// TestIsolationOutput writes more than can be read.
func TestIsolationOutput(t *testing.T) {
	const limit, logged = 256 << 10, 128 << 10
	p := newPrison(t, Options{MaxFrame: limit, LogLimit: logged})
	c := p.enter(t)
	t.Run("a huge line", func(t *testing.T) {
		c.gets(t, "babble", "bytes", "1", "length", fmt.Sprint(8<<20))
		if c.peer.TooLarge != 1 {
			t.Errorf("%d frames passed the limit", c.peer.TooLarge)
		}
	})
	t.Run("many lines", func(t *testing.T) {
		c.gets(t, "babble", "bytes", fmt.Sprint(2<<20), "length", "100")
		c.works(t)
	})
	t.Run("a huge answer", func(t *testing.T) {
		if _, err := c.peer.TryCall(t.Context(), "echo", map[string]any{"text": strings.Repeat("x", limit/2)}); err != nil {
			t.Error(err)
		}
		c.works(t)
	})
	dir := c.inst.Handle().Dir
	t.Run("standard error", func(t *testing.T) {
		c.gets(t, "complain", "bytes", fmt.Sprint(16<<20))
		testkit.Eventually(t, "the log is short", func() bool { return used(t, dir) < 4*logged })
		c.works(t)
	})
	for _, tt := range []struct{ name, how, fd string }{
		{"standard error made longer", "truncate", "2"}, {"room for standard error", "allocate", "2"}, {"far away in standard error", "far", "2"},
		{"mode of standard error", "chmod", "2"}, {"owner of standard error", "chown", "2"}, {"mode of standard output", "chmod", "1"}, {"a larger pipe", "pipe", "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := c.try(t, "grow", "how", tt.how, "fd", tt.fd, "bytes", fmt.Sprint(1<<30))
			t.Log(got.errno, got.text)
			testkit.Eventually(t, "the folder is small", func() bool { return used(t, dir) < 4*logged })
			for _, name := range []string{"in", "out", "stderr"} {
				var s unix.Stat_t
				if err := unix.Lstat(filepath.Join(dir, name), &s); err != nil || s.Mode&0o777 != 0o600 || int(s.Uid) != os.Geteuid() {
					t.Errorf("%s is of %d, with mode %o (%v)", name, s.Uid, s.Mode, err)
				}
			}
			c.works(t)
		})
	}
	logs, err := c.inst.Logs(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	logs.Close()
}

// used are the bytes of the disk that a folder takes.
func used(t testing.TB, dir string) int64 {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, e := range entries {
		var s unix.Stat_t
		if unix.Lstat(filepath.Join(dir, e.Name()), &s) == nil {
			sum += s.Blocks * 512
		}
	}
	return sum
}

// TestIsolationState puts into its state what could harm a process that copies it.
func TestIsolationState(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "secret", p.canary)
	spec := p.spec(t)
	spec.State, spec.Dirs = p.at("state/of-it"), []driver.StateDir{{Name: "data"}}
	if err := p.d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	c := p.start(t, spec)
	at := "/state/data/"
	c.gets(t, "write", "path", at+"file", "create", "1", "text", "mine")
	c.gets(t, "symlink", "from", p.at("secret"), "to", at+"link")
	c.gets(t, "symlink", "from", "../../../../secret", "to", at+"up")
	c.gets(t, "symlink", "from", p.world, "to", at+"folder")
	if rootful() { // an ordinary user gets an error
		c.gets(t, "write", "path", at+"unreadable", "create", "1", "text", "mine")
		c.gets(t, "chmod", "path", at+"unreadable", "mode", "0")
	}
	c.gets(t, "write", "path", at+"hole", "create", "1", "text", "x")
	c.gets(t, "truncate", "path", at+"hole", "size", fmt.Sprint(int64(1)<<36))
	c.gets(t, "write", "path", at+"a\nb\\ ;$(touch x)", "create", "1", "text", "mine")
	c.gets(t, "deep", "path", at, "count", "10")
	fifo := c.try(t, "mknod", "path", at+"fifo", "mode", "0o10666")
	t.Log("a FIFO:", fifo.errno)
	snap := p.freeze(t, spec, c)
	child := p.spec(t)
	child.State, child.Dirs = p.at("state/of-child"), spec.Dirs
	options(child).AllowRead = []string{p.at("open")} // the child does not see the secret
	t.Run("a copy", func(t *testing.T) {
		if err := p.d.Seed(t.Context(), child, driver.Source{From: &snap}); err != nil {
			t.Fatal(err)
		}
		var found []string
		_ = filepath.WalkDir(child.State, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil && info.Size() < 1<<20 && strings.Contains(content(t, path), p.canary) {
					found = append(found, path)
				}
			}
			return nil
		})
		if len(found) > 0 {
			t.Errorf("a link was followed: %v", found)
		}
		if text := content(t, dirsOf(child.State, "data", "file")); text != "mine" {
			t.Errorf("the file has %q", text)
		}
		var s unix.Stat_t
		if err := unix.Stat(dirsOf(child.State, "data", "hole"), &s); err != nil || s.Blocks*512 > 1<<20 {
			t.Errorf("a file with a hole takes %d bytes (%v)", s.Blocks*512, err)
		}
	})
	t.Run("thrown away", func(t *testing.T) {
		for _, err := range []error{p.d.Discard(t.Context(), snap), p.d.Erase(t.Context(), child)} {
			if err != nil {
				t.Error(err)
			}
		}
		if exists(p.at("state/snap")) || exists(child.State) {
			t.Error("something is left")
		}
		if content(t, p.at("secret")) != p.canary {
			t.Error("what a link led to was changed")
		}
	})
	c.works(t)
}

// child starts a server from a snapshot.
func (p *prison) child(t *testing.T, spec driver.Spec, from *driver.Snapshot) *cell {
	t.Helper()
	if err := p.d.Seed(t.Context(), spec, driver.Source{From: from}); err != nil {
		t.Fatal(err)
	}
	inst, err := p.d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopCell(t, inst) })
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Stream.Close() })
	return &cell{inst: inst, peer: drivertest.NewPeer(inst, link)}
}
