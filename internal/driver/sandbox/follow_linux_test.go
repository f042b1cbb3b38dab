//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// follower is a sandbox that sees a folder entry by entry, a file that is named, and
// what else a test names.
type follower struct {
	*prison
	*cell
	t    *testing.T
	logs *testkit.Log
	dir  string // notes, in which something is denied
}

func newFollower(t *testing.T, prepare func(p *prison), change ...func(s *driver.Spec, p *prison)) *follower {
	t.Helper()
	logs := new(testkit.Log)
	p := newPrison(t, Options{Log: logs.Logger()})
	f := &follower{prison: p, t: t, logs: logs, dir: p.at("srv/notes")}
	p.put(t, "srv/notes/denied", p.canary)
	p.put(t, "srv/notes/hidden/key", p.canary)
	p.put(t, "srv/notes/file", "old")
	p.put(t, "srv/named", "old")
	if prepare != nil {
		prepare(p)
	}
	f.cell = p.enter(t, func(s *driver.Spec) {
		s.Log = logs.Logger()
		options(*s).AllowRead = []string{f.dir, p.at("srv/named")}
		options(*s).DenyRead = []string{f.dir + "/denied", f.dir + "/hidden"}
		for _, c := range change {
			c(s, p)
		}
	})
	f.others("old")
	return f
}

func (f *follower) reads(name, want string) {
	f.t.Helper()
	got := f.try(f.t, "read", "path", f.at(name))
	text := got.text
	if !got.ok() {
		text = got.errno
	}
	if text != want {
		f.t.Errorf("%s has %q, want %q", name, text, want)
	}
}

// follows replaces what else is shown: the sandbox sees it, and nothing that is hidden.
func (f *follower) follows(text string) {
	f.t.Helper()
	replaceFile(f.t, f.at("srv/named"), text)
	replaceFile(f.t, f.dir+"/file", text)
	f.put(f.t, "srv/notes/added "+text, text)
	f.others(text)
	f.reads("srv/notes/added "+text, text)
}

func (f *follower) others(text string) {
	f.t.Helper()
	f.reads("srv/named", text)
	f.reads("srv/notes/file", text)
	f.leaks(f.t, f.cell, f.dir+"/denied", f.dir+"/hidden/key", f.dir+"/hidden", f.at("state/file"))
}

func (f *follower) quiet() {
	f.t.Helper()
	if n := f.logs.Count("level=WARN"); n > 0 {
		f.t.Errorf("it warns:\n%s", f.logs)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFollowsAMode gives a folder that is shown entry by entry another mode.
func TestFollowsAMode(t *testing.T) {
	f := newFollower(t, nil)
	for mode, text := range map[os.FileMode]string{0o711: "one", 0o755: "two"} {
		must(t, os.Chmod(f.dir, mode))
		if got := f.gets(t, "stat", "path", f.dir); !strings.HasPrefix(got, fmt.Sprintf("mode 40%o ", mode)) {
			t.Errorf("with mode %o on the host it sees %s", mode, got)
		}
		f.follows(text)
	}
	f.quiet()
}

// TestFollowsANamedLink points a link that allow_read names elsewhere. What it led to
// stays, since the program may be running from there.
func TestFollowsANamedLink(t *testing.T) {
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/one/file", "one")
		p.put(t, "srv/two/file", "two")
		must(t, os.Symlink("one", p.at("srv/current")))
	}, func(s *driver.Spec, p *prison) {
		options(*s).AllowRead = append(options(*s).AllowRead, p.at("srv/current"))
	})
	leads := func(to string) {
		t.Helper()
		must(t, os.Symlink(to, f.at("srv/next")), os.Rename(f.at("srv/next"), f.at("srv/current")))
	}
	f.reads("srv/current/file", "one")
	leads("two")
	f.reads("srv/current/file", "two")
	f.reads("srv/one/file", "one")
	f.follows("new")
	leads("nowhere")
	f.reads("srv/current/file", "ENOENT")
	f.follows("newer")
	leads("one")
	f.reads("srv/current/file", "one")
	must(t, os.RemoveAll(f.at("srv/two")))
	f.reads("srv/two/file", "ENOENT")
	f.follows("newest")
	f.quiet()
}

// TestFollowsWhatIsGone takes away what is named, and brings it back.
func TestFollowsWhatIsGone(t *testing.T) {
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/other", "other")
		p.put(t, "srv/deep/down/file", "deep")
	}, func(s *driver.Spec, p *prison) {
		options(*s).AllowRead = append(options(*s).AllowRead, p.at("srv/other"), p.at("srv/deep/down"))
	})
	must(t, os.Rename(f.at("srv/other"), f.at("srv/away")), os.Rename(f.at("srv/deep"), f.at("srv/depth")))
	f.reads("srv/other", "ENOENT")
	f.reads("srv/deep/down/file", "ENOENT")
	f.follows("new")
	// A folder where a file was, and a file where a folder was.
	f.put(t, "srv/other/file", "a folder")
	f.put(t, "srv/deep", "a file")
	f.reads("srv/other/file", "a folder")
	f.follows("newer")
	must(t, os.RemoveAll(f.at("srv/other")), os.Remove(f.at("srv/deep")))
	must(t, os.Rename(f.at("srv/away"), f.at("srv/other")), os.Rename(f.at("srv/depth"), f.at("srv/deep")))
	f.reads("srv/other", "other")
	f.reads("srv/deep/down/file", "deep")
	f.follows("newest")
	// The folder with what is hidden in it.
	must(t, os.Rename(f.dir, f.dir+"-away"))
	f.reads("srv/notes/file", "ENOENT")
	must(t, os.Rename(f.dir+"-away", f.dir))
	f.follows("last")
	f.quiet()
}

// TestFollowsWhatIsHidden has a hidden folder that becomes a file, and the other way
// round: neither is ever seen.
func TestFollowsWhatIsHidden(t *testing.T) {
	f := newFollower(t, nil)
	for _, text := range []string{"new", "newer"} {
		must(t, os.RemoveAll(f.dir+"/hidden"), os.Remove(f.dir+"/denied"))
		f.put(t, "srv/notes/hidden", f.canary)
		f.put(t, "srv/notes/denied/key", f.canary)
		f.leaks(t, f.cell, f.dir+"/hidden", f.dir+"/denied/key")
		f.follows(text)
		f.leaks(t, f.cell, f.dir+"/denied/key")
		must(t, os.RemoveAll(f.dir+"/denied"), os.Remove(f.dir+"/hidden"))
		f.put(t, "srv/notes/hidden/key", f.canary)
		f.put(t, "srv/notes/denied", f.canary)
		f.follows(text + " again")
	}
	f.quiet()
}

// TestFollowsADeniedLink points a link that deny_read names at something that is
// shown: it is hidden from then on.
func TestFollowsADeniedLink(t *testing.T) {
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/open/one/key", p.canary)
		p.put(t, "srv/open/two/key", "two")
		p.put(t, "srv/open/plain", "plain")
		must(t, os.Symlink("open/one", p.at("srv/secret")))
	}, func(s *driver.Spec, p *prison) {
		options(*s).AllowRead = append(options(*s).AllowRead, p.at("srv/open"))
		options(*s).DenyRead = append(options(*s).DenyRead, p.at("srv/secret"))
	})
	f.leaks(t, f.cell, f.at("srv/open/one/key"))
	f.reads("srv/open/two/key", "two")
	must(t, os.Symlink("open/two", f.at("srv/next")), os.Rename(f.at("srv/next"), f.at("srv/secret")))
	replaceFile(t, f.at("srv/open/two/key"), f.canary)
	f.leaks(t, f.cell, f.at("srv/open/two/key"))
	f.reads("srv/open/plain", "plain")
	f.follows("new")
}

// TestStartsLeaveHiddenWhatIs starts another sandbox with the same root when a link that
// deny_read names leads elsewhere: what it led to stays hidden from the one that runs.
func TestStartsLeaveHiddenWhatIs(t *testing.T) {
	var spec func(s *driver.Spec)
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/notes/one", p.canary)
		must(t, os.Symlink("one", p.at("srv/notes/secret")))
	}, func(s *driver.Spec, p *prison) {
		options(*s).DenyRead = append(options(*s).DenyRead, p.at("srv/notes/secret"))
		box := *options(*s)
		spec = func(s *driver.Spec) { s.Options = &box }
	})
	f.leaks(t, f.cell, f.at("srv/notes/one"))
	f.put(t, "srv/notes/two", f.canary)
	must(t, os.Symlink("two", f.at("srv/next")), os.Rename(f.at("srv/next"), f.at("srv/notes/secret")))
	f.leaks(t, f.cell, f.at("srv/notes/one"), f.at("srv/notes/two"))
	other := f.enter(t, spec)
	f.leaks(t, other, f.at("srv/notes/two"))
	f.leaks(t, f.cell, f.at("srv/notes/one"), f.at("srv/notes/two"))
	f.follows("new")
	f.leaks(t, f.cell, f.at("srv/notes/one"), f.at("srv/notes/two"))
}

// TestFollowsAFolderThatBecomesALink puts a link in the place of a folder in which
// something is hidden, and takes that back when another sandbox has started.
func TestFollowsAFolderThatBecomesALink(t *testing.T) {
	var spec func(s *driver.Spec)
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/notes/deep/er/key", p.canary)
		p.put(t, "srv/notes/deep/er/keys/key", p.canary)
		p.put(t, "srv/notes/deep/er/plain", "plain")
	}, func(s *driver.Spec, p *prison) {
		options(*s).DenyRead = append(options(*s).DenyRead, p.at("srv/notes/deep/er/key"), p.at("srv/notes/deep/er/keys"))
		box := *options(*s)
		spec = func(s *driver.Spec) { s.Options = &box }
	})
	check := func(c *cell, names ...string) {
		t.Helper()
		for _, name := range names {
			at := f.at("srv/notes/" + name + "/er")
			if got := c.gets(t, "read", "path", at+"/plain"); got != "plain" {
				t.Errorf("%s has %q", name, got)
			}
			f.leaks(t, c, at+"/key", at+"/keys/key", at+"/keys")
		}
	}
	check(f.cell, "deep")
	must(t, os.Rename(f.at("srv/notes/deep"), f.at("srv/notes/real")), os.Symlink("real", f.at("srv/notes/deep")))
	check(f.cell, "deep", "real")
	check(f.enter(t, spec), "deep", "real")
	check(f.cell, "deep", "real")
	must(t, os.Remove(f.at("srv/notes/deep")), os.Rename(f.at("srv/notes/real"), f.at("srv/notes/deep")))
	check(f.cell, "deep")
	f.follows("new")
	f.quiet()
}

// TestFoldersKeepModeAndOwner hides something in a folder that the program may not
// enter: it may not enter it then either.
func TestFoldersKeepModeAndOwner(t *testing.T) {
	closed := "EACCES"
	if os.Geteuid() != 0 {
		closed = "private" // the program runs as the gateway's user
	}
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/notes/priv/in/key", p.canary)
		p.put(t, "srv/notes/priv/in/file", "private")
		must(t, os.Chmod(p.at("srv/notes/priv"), 0o700))
	}, func(s *driver.Spec, p *prison) {
		options(*s).DenyRead = append(options(*s).DenyRead, p.at("srv/notes/priv/in/key"))
	})
	private := func(want string) {
		t.Helper()
		f.reads("srv/notes/priv/in/file", want)
		f.leaks(t, f.cell, f.at("srv/notes/priv/in/key"))
	}
	private(closed)
	must(t, os.Chmod(f.at("srv/notes/priv"), 0o755))
	private("private")
	must(t, os.Chmod(f.at("srv/notes/priv"), 0o700))
	private(closed)
	if closed == "EACCES" {
		must(t, os.Chown(f.at("srv/notes/priv"), 1000, 0)) // the program's number
		private("private")
	}
	f.follows("new")
	f.quiet()
}

// TestFollowsBesideWhatItWrites takes away a folder that the sandbox may write to: it
// keeps what it has, says so once, and all else is followed.
func TestFollowsBesideWhatItWrites(t *testing.T) {
	f := newFollower(t, func(p *prison) {
		p.put(t, "srv/notes/out/file", "mine")
		makeOpen(t, p.at("srv/notes/out"))
	}, func(s *driver.Spec, p *prison) {
		options(*s).AllowWrite = []string{p.at("srv/notes/out")}
	})
	out := f.at("srv/notes/out")
	f.follows("new")
	f.quiet()
	must(t, os.Rename(out, f.at("srv/away")))
	for i := range 3 {
		f.gets(t, "write", "path", filepath.Join(out, "more"), "create", "1", "text", fmt.Sprint(i))
		if got := content(t, f.at("srv/away/more")); got != fmt.Sprint(i) {
			t.Errorf("the host has %q", got)
		}
	}
	f.follows("newer")
	if n := f.logs.Count("level=WARN", "attacker", out, "new session"); n != 1 {
		t.Errorf("it warns %d times:\n%s", n, f.logs)
	}
	f.put(t, "srv/notes/out", "a file")
	f.follows("newest")
	if got := f.gets(t, "read", "path", out+"/file"); got != "mine" {
		t.Errorf("it reads %q", got)
	}
}

// TestSaysWhatItCannotFollow fills a folder that is shown entry by entry with more than
// can be shown: the log names it, once, and so does that of the server.
func TestSaysWhatItCannotFollow(t *testing.T) {
	f := newFollower(t, nil)
	many := f.at("srv/notes/many")
	must(t, os.Mkdir(many, 0o755))
	for i := range 2100 {
		must(t, os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o644))
	}
	f.reads("srv/notes/many/7", "") // it is live
	f.quiet()
	for i := range 2100 {
		must(t, os.Rename(filepath.Join(many, fmt.Sprint(i)), filepath.Join(f.dir, fmt.Sprint(i))))
	}
	for range 3 {
		f.others("old")
	}
	if n := f.logs.Count("level=WARN", "attacker", f.dir, "new session"); n != 1 {
		t.Errorf("it warns %d times:\n%s", n, f.logs)
	}
	b, err := f.inst.Logs(1 << 20)
	must(t, err)
	defer b.Close()
	var own bytes.Buffer
	if _, err := own.ReadFrom(b); err != nil || strings.Count(own.String(), f.dir) != 1 {
		t.Errorf("the server's own log has %q, %v", own.String(), err)
	}
	for i := range 2100 {
		must(t, os.Remove(filepath.Join(f.dir, fmt.Sprint(i))))
	}
	f.follows("new")
}

// TestSaysThatAnAdoptedOneDoesNotFollow has a gateway adopt what another left.
func TestSaysThatAnAdoptedOneDoesNotFollow(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "srv/notes/denied", p.canary)
	p.put(t, "srv/notes/file", "old")
	dir := p.at("srv/notes")
	inst, err := p.d.Start(t.Context(), p.spec(t, func(s *driver.Spec) {
		options(*s).AllowRead, options(*s).DenyRead = []string{dir}, []string{dir + "/denied"}
	}))
	must(t, err)
	must(t, inst.Leave(), p.d.Close())
	logs := new(testkit.Log)
	next := p.driver(Options{Hide: []string{p.at("state")}, Log: logs.Logger()})
	inst, err = next.Adopt(t.Context(), inst.Handle(), logs.Logger())
	must(t, err)
	c := newCell(t, inst)
	for range 3 {
		c.works(t)
	}
	if n := logs.Count("level=WARN", "attacker", dir, "new session"); n != 1 {
		t.Errorf("it warns %d times:\n%s", n, logs)
	}
	replaceFile(t, dir+"/file", "new")
	if got := c.gets(t, "read", "path", dir+"/file"); got != "old" {
		t.Errorf("it reads %q", got)
	}
	p.leaks(t, c, dir+"/denied")
}

// TestFollowsAnInnerPart has a part that lies in a folder of the root, and puts others
// in the places of both.
func TestFollowsAnInnerPart(t *testing.T) {
	logs := new(testkit.Log)
	p := newPrison(t, Options{Log: logs.Logger()})
	b, err := os.ReadFile(attacker.at(t))
	must(t, err)
	p.put(t, "image/srv/app.conf", "of the root")
	p.put(t, "image/srv/more", "more")
	p.put(t, "app.conf", "old")
	must(t, os.MkdirAll(p.at("image/bin"), 0o755), os.WriteFile(p.at("image/bin/attacker"), b, 0o755), os.MkdirAll(p.at("image"+p.world), 0o755))
	p.put(t, "image"+p.at("app.conf"), "of the root")
	c := p.enter(t, func(s *driver.Spec) {
		s.Log = logs.Logger()
		s.Command, options(*s).Root = "/bin/attacker", p.at("image")
		options(*s).AllowRead, options(*s).DenyRead = []string{p.at("app.conf")}, nil
	})
	reads := func(at, want string) {
		t.Helper()
		if got := c.gets(t, "read", "path", at); got != want {
			t.Errorf("%s has %q, want %q", at, got, want)
		}
	}
	reads(p.at("app.conf"), "old")
	reads("/srv/more", "more")
	replaceFile(t, p.at("app.conf"), "new")
	reads(p.at("app.conf"), "new")
	// The folder around it.
	top := "/" + strings.Split(p.world, "/")[1]
	must(t, os.Rename(p.at("image"+top), p.at("image/old")))
	p.put(t, "image"+p.at("app.conf"), "of another root")
	p.put(t, "image/srv/more", "still more")
	reads("/srv/more", "still more")
	reads(p.at("app.conf"), "new")
	if n := logs.Count("level=WARN"); n > 0 {
		t.Errorf("it warns:\n%s", logs)
	}
}

// TestFollowsWithMasks has a file of a project in a folder that is too large to be shown
// entry by entry, so that it has a mask alone: this is made anew with the next change.
func TestFollowsWithMasks(t *testing.T) {
	p := newPrison(t, Options{})
	for i := range 2100 {
		p.put(t, fmt.Sprint("home/project/", i), "")
	}
	p.put(t, "home/project/.env", p.canary)
	p.put(t, "home/other/.env", p.canary)
	p.put(t, "home/other/plain", "plain")
	env, other := p.at("home/project/.env"), p.at("home/other/.env")
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowRead = []string{p.at("home")} })
	p.leaks(t, c, env, other)
	replaceFile(t, env, p.canary)
	must(t, os.Remove(other))
	p.put(t, "home/plain", "plain")
	p.leaks(t, c, env)
	c.gets(t, "read", "path", p.at("home/plain"))
	p.put(t, "home/other/.env", p.canary)
	p.leaks(t, c, env, other)
	c.gets(t, "read", "path", p.at("home/other/plain"))
}

// TestFollowsInSilence reads what is hidden all the time, while what is shown around it
// is changed and another sandbox with the same root has it brought up to date.
func TestFollowsInSilence(t *testing.T) {
	f := newFollower(t, nil)
	other := f.enter(t, func(s *driver.Spec) {
		options(*s).AllowRead = []string{f.dir, f.at("srv/named")}
		options(*s).DenyRead = []string{f.dir + "/denied", f.dir + "/hidden"}
	})
	if other.inst.(*instance).root.root != f.inst.(*instance).root.root {
		t.Fatal("they have different roots")
	}
	var changes sync.WaitGroup
	done := make(chan struct{})
	changes.Go(func() {
		defer close(done)
		for i := range 12 {
			text := fmt.Sprint(i)
			must(t, os.Chmod(f.dir, []os.FileMode{0o711, 0o755}[i%2]))
			must(t, os.RemoveAll(f.dir+"/hidden"))
			if i%2 == 0 {
				f.put(t, "srv/notes/hidden", f.canary)
			} else {
				f.put(t, "srv/notes/hidden/key", f.canary)
				must(t, os.Rename(f.dir, f.dir+"-away"))
				f.gets(t, "echo", "text", text)
				must(t, os.Rename(f.dir+"-away", f.dir))
			}
			replaceFile(t, f.dir+"/denied", f.canary)
			f.put(t, "srv/notes/added "+text, text)
			f.gets(t, "echo", "text", text)
		}
	})
	for {
		f.leaks(t, other, f.dir+"/denied", f.dir+"/hidden", f.dir+"/hidden/key")
		select {
		case <-done:
			changes.Wait()
			f.quiet()
			return
		default:
		}
	}
}

// TestStartsHideNewKeys makes a file of a project right before another sandbox starts.
func TestStartsHideNewKeys(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "home/code/app/main.go", "main")
	home := func(s *driver.Spec) { options(*s).AllowRead = []string{p.at("home")} }
	p.enter(t, home).works(t)
	for _, name := range []string{"home/code/app/.env", "home/code/new/.env", "home/code/app/.vscode/mcp.json"} {
		p.put(t, name, p.canary)
		c := p.enter(t, home)
		p.leaks(t, c, p.at(name))
		if got := c.gets(t, "read", "path", p.at("home/code/app/main.go")); got != "main" {
			t.Errorf("it reads %q", got)
		}
	}
}
