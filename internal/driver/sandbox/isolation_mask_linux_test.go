//go:build amd64 || arm64

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// ofHomes are places of a home that must be masked.
var ofHomes = []string{
	".ssh/id_ed25519", ".aws/credentials", ".config/gcloud/credentials.db", ".gnupg/private-keys-v1.d/key", ".kube/config", ".docker/config.json",
	".azure/token", ".config/gh/hosts.yml", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".vault-token", ".cargo/credentials.toml",
	".claude.json", ".claude/.credentials.json", ".bash_history", ".password-store/a.gpg", ".local/share/keyrings/login.keyring",
}

// masksHold looks from inside that nothing of what must be masked is to be seen:
// there is a canary in every place. gVisor can leave out a mount without a word.
func masksHold(t *testing.T) {
	p := newPrison(t, Options{})
	secret := []string{p.at("deny.txt"), p.at("deny/file"), p.at("state/file"), filepath.Join(p.dir, "secret")}
	for _, name := range ofHomes {
		p.put(t, "home/"+name, p.canary)
		secret = append(secret, p.at("home/"+name))
	}
	p.put(t, "home/visible", "anybody may read this")
	// Others' homes, and what is private to the system.
	places := []string{"/root", "/home", "/var/log", "/var/spool", "/var/backups", "/etc/ssl/private", "/var/lib/docker", "/run"}
	if rootful() {
		for _, dir := range places {
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				continue
			}
			at, err := os.MkdirTemp(dir, "tine-canary")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(at) })
			if err := os.Chmod(at, 0o755); err != nil {
				t.Fatal(err)
			}
			putFile(t, filepath.Join(at, "file"), p.canary)
			secret = append(secret, filepath.Join(at, "file"))
		}
	}
	for _, root := range []string{RootAllow, RootHost} {
		t.Run("root "+root, func(t *testing.T) {
			c := p.enter(t, func(s *driver.Spec) {
				options(*s).Root = root
				if root == RootHost && strings.HasPrefix(p.world, "/srv/") {
					options(*s).AllowRead = nil // it is there already
				}
			})
			// That the rest is seen shows that masks are what hides it.
			for _, name := range []string{"open/file", "home/visible"} {
				if got := c.gets(t, "read", "path", p.at(name)); got != "anybody may read this" {
					t.Errorf("%s has %q inside", name, got)
				}
			}
			for _, path := range secret {
				c.fails(t, "EACCES ENOENT", "read", "path", path)
			}
			for _, dir := range append([]string{p.world}, places...) {
				if found := c.gets(t, "find", "path", dir, "text", p.canary); found != "" {
					t.Errorf("to be seen inside: %s", found)
				}
			}
			c.works(t)
		})
	}
}

func TestIsolationMasks(t *testing.T) { masksHold(t) }

// TestIsolationWays tries every other way to a file that is masked.
func TestIsolationWays(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "home/.ssh/id", p.canary)
	for at, to := range map[string]string{"open/link": "../deny.txt", "open/folder": "../deny", "open/absolute": p.at("deny.txt"), "open/up": "../open/../deny", "alias": "deny"} {
		if err := os.Symlink(to, p.at(at)); err != nil {
			t.Fatal(err)
		}
	}
	c := p.enter(t, func(s *driver.Spec) { s.Cwd = p.at("open") })
	file, folder := p.at("deny.txt"), p.at("deny")
	hidden := "EACCES ENOENT"
	c.all(t, []attempt{
		{"the file", hidden, "read", []string{"path", file}},
		{"the folder", hidden, "list", []string{"path", folder}},
		{"in the folder", hidden, "read", []string{"path", folder + "/file"}},
		{"a path with dots", hidden, "read", []string{"path", p.at("open/../deny/../deny/./file")}},
		{"a link of the host", hidden, "read", []string{"path", p.at("open/link")}},
		{"an absolute link of the host", hidden, "read", []string{"path", p.at("open/absolute")}},
		{"a link of the host to the folder", hidden, "read", []string{"path", p.at("open/folder/file")}},
		{"a link of the host with dots", hidden, "read", []string{"path", p.at("open/up/file")}},
		{"another name of the folder", hidden, "read", []string{"path", p.at("alias/file")}},
		{"root of the process", hidden, "read", []string{"path", "/proc/self/root" + file}},
		{"root of the first process", hidden, "read", []string{"path", "/proc/1/root" + folder + "/file"}},
		{"root of a thread", hidden, "read", []string{"path", "/proc/thread-self/root" + file}},
		{"working directory", hidden, "read", []string{"path", "/proc/self/cwd/../deny/file"}},
		{"relative to the working directory", hidden, "read", []string{"path", "../deny.txt"}},
		{"a hard link of what is in it", hidden, "link", []string{"from", folder + "/file", "to", "/tmp/hard"}},
		{"by a handle", "EPERM ENOSYS ENOTSUP EACCES", "handle", []string{"path", file}},
		{"keys in the home", hidden, "read", []string{"path", p.at("home/.ssh/id")}},
		{"the state folder", hidden, "list", []string{"path", p.at("state")}},
		{"its own instance", hidden, "list", []string{"path", p.at("state/i1")}},
		{"its own standard input", hidden, "read", []string{"path", p.at("state/i1/in")}},
		{"its own record", hidden, "read", []string{"path", p.at("state/i1/sandbox.json")}},
		{"its own config", hidden, "read", []string{"path", p.at("state/i1/config.json")}},
		{"the driver's folder", hidden, "list", []string{"path", p.dir}},
		{"gVisor's records", hidden, "list", []string{"path", filepath.Join(p.dir, "run")}},
		{"roots of others", hidden, "list", []string{"path", filepath.Join(p.dir, "roots")}},
		{"the masks themselves", hidden, "list", []string{"path", "/.tine-mask"}},
	})
	t.Run("a link made inside", func(t *testing.T) {
		c.gets(t, "symlink", "from", folder, "to", "/tmp/soft")
		c.fails(t, hidden, "read", "path", "/tmp/soft/file")
		c.gets(t, "symlink", "from", "../../../../../.."+file, "to", "/tmp/softer")
		c.fails(t, hidden, "read", "path", "/tmp/softer")
	})
	t.Run("a hard link", func(t *testing.T) {
		// A program with the number of root may link the mask, which is empty.
		c.try(t, "link", "from", file, "to", "/tmp/hard")
		c.try(t, "link", "from", "/proc/self/root"+file, "to", "/tmp/harder", "flags", "0x400")
		p.leaks(t, c, "/tmp/hard", "/tmp/harder")
	})
	t.Run("a mode for the mask", func(t *testing.T) {
		// A program with the number of root owns the mask; there is nothing below it.
		c.try(t, "chmod", "path", file, "mode", "0o777")
		c.try(t, "chmod", "path", folder, "mode", "0o777")
		p.leaks(t, c, file, folder+"/file")
	})
	t.Run("the mask moved away", func(t *testing.T) {
		c.try(t, "rename", "from", file, "to", p.at("open/moved"))
		c.try(t, "rename", "from", folder, "to", p.at("open/moved-folder"))
		p.leaks(t, c, file, folder+"/file", p.at("open/moved"), p.at("open/moved-folder/file"))
	})
	t.Run("the mask removed", func(t *testing.T) {
		c.try(t, "unlink", "path", file)
		c.try(t, "unlink", "path", folder, "flags", "0x200")
		c.try(t, "mkdir", "path", folder)
		p.leaks(t, c, file, folder+"/file")
	})
	t.Run("the world moved", func(t *testing.T) {
		c.try(t, "rename", "from", p.world, "to", "/tmp/moved")
		p.leaks(t, c, "/tmp/moved/deny.txt", "/tmp/moved/deny/file", file, folder+"/file")
	})
	c.works(t)
	if content(t, file) != p.canary || content(t, folder+"/file") != p.canary {
		t.Error("what was masked is changed on the host")
	}
}

// leaks looks whether paths have what no sandbox may see.
func (p *prison) leaks(t *testing.T, c *cell, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if got := c.try(t, "read", "path", path); strings.Contains(got.text, p.canary) {
			t.Errorf("%s is to be seen", path)
		}
	}
}

// TestIsolationReplaced replaces what is masked while a sandbox sees its folder: a
// mask is of a place, and not of the file that is there.
func TestIsolationReplaced(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "home/.npmrc", "old")
	p.put(t, "home/.aws/credentials", "old")
	c := p.enter(t)
	// As editors write a file.
	p.put(t, "open/new", p.canary)
	for _, name := range []string{"deny.txt", "home/.npmrc"} {
		p.put(t, "new", p.canary)
		if err := os.Rename(p.at("new"), p.at(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"deny", "home/.aws"} {
		if err := os.RemoveAll(p.at(name)); err != nil {
			t.Fatal(err)
		}
		p.put(t, name+"/file", p.canary)
	}
	p.leaks(t, c, p.at("deny.txt"), p.at("home/.npmrc"), p.at("deny/file"), p.at("home/.aws/file"))
	c.works(t)
}

// TestIsolationLater makes what must be masked after the sandbox was made.
func TestIsolationLater(t *testing.T) {
	p := newPrison(t, Options{})
	c := p.enter(t, func(s *driver.Spec) { options(*s).DenyRead = append(options(*s).DenyRead, p.at("open/later")) })
	p.put(t, "home/.ssh/id", p.canary)
	p.put(t, "open/later", p.canary)
	p.put(t, "state/later", p.canary)
	p.leaks(t, c, p.at("home/.ssh/id"), p.at("open/later"), p.at("state/later"))
	c.works(t)
}

// TestIsolationMaskInWritable has masks in a folder that may be written to, where
// no copy in memory is in between.
func TestIsolationMaskInWritable(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "write/secret.txt", p.canary)
	p.put(t, "write/sub/secret/file", p.canary)
	p.put(t, "write/mine", "mine")
	makeOpen(t, p.at("write/sub"))
	file, folder := p.at("write/secret.txt"), p.at("write/sub/secret")
	c := p.enter(t, func(s *driver.Spec) {
		options(*s).AllowWrite = []string{p.at("write")}
		options(*s).DenyRead = append(options(*s).DenyRead, file, folder)
	})
	c.all(t, []attempt{
		{"the file", "EACCES", "read", []string{"path", file}},
		{"the folder", "EACCES", "list", []string{"path", folder}},
		{"written to", "EACCES EROFS", "write", []string{"path", file, "text", "mine"}},
		{"made in the folder", "EACCES EROFS", "write", []string{"path", folder + "/mine", "create", "1", "text", "mine"}},
		{"removed", "EBUSY EACCES EPERM EROFS", "unlink", []string{"path", file}},
		{"the folder removed", "EBUSY EACCES EPERM EROFS", "unlink", []string{"path", folder, "flags", "0x200"}},
		{"moved", "EBUSY EACCES EPERM EROFS EXDEV", "rename", []string{"from", file, "to", p.at("write/moved")}},
		{"moved over", "EBUSY EACCES EPERM EROFS EXDEV", "rename", []string{"from", p.at("write/mine"), "to", file}},
		{"linked", "EACCES EPERM EXDEV EBUSY EROFS", "link", []string{"from", file, "to", p.at("write/hard")}},
		{"given a mode", "EPERM EROFS EACCES", "chmod", []string{"path", file, "mode", "0o777"}},
		{"the folder given a mode", "EPERM EROFS EACCES", "chmod", []string{"path", folder, "mode", "0o777"}},
	})
	t.Run("the folder around it moved", func(t *testing.T) {
		c.try(t, "rename", "from", p.at("write/sub"), "to", p.at("write/other"))
		p.leaks(t, c, folder+"/file", p.at("write/other/secret/file"))
	})
	c.works(t)
	if content(t, file) != p.canary {
		t.Error("what was masked is changed on the host")
	}
}

// TestRootHostChanges starts servers while directories of the host, which are shown
// piece by piece because something in them is not, come and go.
func TestRootHostChanges(t *testing.T) {
	p := newPrison(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() {
		for ctx.Err() == nil {
			var all []string
			for range 8 {
				at, err := os.MkdirTemp("/var", "tine-comes-and-goes")
				if err != nil {
					return // nothing there is an ordinary user's
				}
				all = append(all, at)
			}
			time.Sleep(time.Millisecond) // they are there for a moment
			for _, at := range all {
				os.Remove(at)
			}
		}
	})
	defer churn.Wait()
	defer cancel()
	for range 8 {
		p.enter(t, func(s *driver.Spec) { options(*s).Root = RootHost }).works(t)
	}
}

// TestIsolationManyParts has a root that is too large for one packet to the helper.
func TestIsolationManyParts(t *testing.T) {
	p := newPrison(t, Options{})
	for i := range 1500 {
		p.put(t, fmt.Sprintf("open/many/file-%d", i), "anybody may read this")
	}
	p.put(t, "open/many/secret", p.canary)
	c := p.enter(t, func(s *driver.Spec) { options(*s).DenyRead = append(options(*s).DenyRead, p.at("open/many/secret")) })
	c.gets(t, "read", "path", p.at("open/many/file-1499"))
	p.leaks(t, c, p.at("open/many/secret"))
	left, err := filepath.Glob(filepath.Join(p.d.rootsDir(), "*.json"))
	if err != nil || len(left) > 0 {
		t.Errorf("files of the root are left: %v %v", left, err)
	}
	c.works(t)
}
