//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/testkit"
)

// hostView is what the host has below a path: a line for each file, with its content.
func hostView(t testing.TB, at string) string {
	t.Helper()
	return viewOf(at, func(dir string) ([]string, bool) {
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names, err == nil
	}, func(file string) string { return content(t, file) })
}

// view is what a sandbox has below a path.
func (c *cell) view(t testing.TB, at string) string {
	t.Helper()
	return viewOf(at, func(dir string) ([]string, bool) {
		got := c.try(t, "list", "path", dir)
		return strings.Fields(got.text), got.ok()
	}, func(file string) string {
		if got := c.try(t, "read", "path", file); !got.ok() {
			return got.errno
		} else {
			return got.text
		}
	})
}

func viewOf(at string, list func(string) ([]string, bool), read func(string) string) string {
	names, isDir := list(at)
	if !isDir {
		return at + ": " + read(at) + "\n"
	}
	var all strings.Builder
	for _, name := range names {
		if name != "denied" && name != maskFolder {
			all.WriteString(viewOf(filepath.Join(at, name), list, read))
		}
	}
	return all.String()
}

// maskFolder is in the root of a sandbox, and of none of its folders.
const maskFolder = ".tine-mask"

// fillShown makes a folder, which changeShown changes in every way there is.
func (p *prison) fillShown(t testing.TB, name string) string {
	t.Helper()
	if err := os.RemoveAll(p.at(name + "/sub")); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"added", "elsewhere"} {
		if err := os.RemoveAll(filepath.Join(p.at(name), at)); err != nil {
			t.Fatal(err)
		}
	}
	p.put(t, name+"/denied", p.canary)
	p.put(t, name+"/sub/denied", p.canary)
	for _, file := range []string{"replaced", "removed", "edited", "grown", "sub/replaced", "sub/removed", "sub/edited", "sub/deep/replaced", "gone/file", "moved/file"} {
		p.put(t, name+"/"+file, "old "+file)
	}
	return p.at(name)
}

func (p *prison) changeShown(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	replaceFile(t, dir+"/denied", p.canary)
	replaceFile(t, dir+"/sub/denied", p.canary)
	replaceFile(t, dir+"/replaced", "new, and longer than the old one")
	replaceFile(t, dir+"/sub/replaced", "new")
	replaceFile(t, dir+"/sub/deep/replaced", "new")
	must(os.Remove(dir + "/removed"))
	must(os.Remove(dir + "/sub/removed"))
	must(os.RemoveAll(dir + "/gone"))
	must(os.Rename(dir+"/moved", dir+"/elsewhere"))
	putFile(t, dir+"/edited", "new")
	putFile(t, dir+"/sub/edited", "new, and longer than the old one")
	putFile(t, dir+"/grown", content(t, dir+"/grown")+" and more")
	putFile(t, dir+"/added", "new")
	putFile(t, dir+"/sub/added", "new")
	putFile(t, dir+"/sub/made/added", "new")
}

// replaceFile writes a file as editors and git do.
func replaceFile(t testing.TB, path, text string) {
	t.Helper()
	putFile(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestShownIsAsOnTheHost changes what a sandbox is shown, after the sandbox has
// looked at all of it, in every way in which a sandbox goes on or begins.
func TestShownIsAsOnTheHost(t *testing.T) {
	for name, change := range map[string]func(s *driver.Spec, dir string){
		"allow_read":         func(s *driver.Spec, dir string) { options(*s).AllowRead = []string{dir} },
		"below":              func(s *driver.Spec, dir string) { options(*s).AllowRead = []string{filepath.Dir(dir)} },
		"something denied":   func(s *driver.Spec, dir string) { options(*s).DenyRead = []string{dir + "/denied"} },
		"denied in a folder": func(s *driver.Spec, dir string) { options(*s).DenyRead = []string{dir + "/sub/denied"} },
		"beside the config":  func(s *driver.Spec, dir string) { options(*s).AllowRead = []string{dir} },
		"one file":           func(s *driver.Spec, dir string) { options(*s).AllowRead = []string{dir + "/replaced", dir + "/edited"} },
	} {
		t.Run(name, func(t *testing.T) {
			var private []string
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			p := newPrison(t, Options{Log: log, Private: func() []string { return private }})
			if name == "beside the config" {
				private = []string{p.at("srv/notes/denied")}
			}
			dir := p.fillShown(t, "srv/notes")
			spec := p.spec(t, func(s *driver.Spec) {
				s.State = s.Dir + "-state"
				options(*s).Slots, s.Log = 1, log
				change(s, dir)
			})
			seen := []string{dir}
			if name == "one file" {
				seen = options(spec).AllowRead
			}
			p.goesThrough(t, spec, func(c *cell, when string) {
				t.Helper()
				for _, at := range seen {
					if got, want := c.view(t, at), hostView(t, at); got != want {
						t.Errorf("%s it sees\n%s\nand the host has\n%s", when, got, want)
					}
				}
				p.leaks(t, c, append(private, options(spec).DenyRead...)...)
			}, func() { p.fillShown(t, "srv/notes") }, func() { p.changeShown(t, dir) })
		})
	}
}

// goesThrough has a server look at something before and after a change: while it
// runs, after it rested, in a fork, and in others that begin later, one of them on a slot.
func (p *prison) goesThrough(t *testing.T, spec driver.Spec, look func(c *cell, when string), reset, change func()) {
	t.Helper()
	s := &shelved{T: t, b: p.bench, d: p.d, dir: t.TempDir(), slots: 1}
	if err := p.d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	first := p.start(t, spec)
	look(first, "at first")
	slots := s.ahead(1)
	change()
	look(first, "while it runs")

	other := spec
	other.Dir, other.State, other.Session = spec.Dir+"-slot", spec.State+"-slot", "ses_slot"
	if err := p.d.Seed(t.Context(), other, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	onSlot := p.start(t, other)
	look(onSlot, "on a slot")
	if rec, err := records.Parse(onSlot.inst.Handle().Data); err != nil || len(slots) == 1 && rec.Sandbox != slots[0] {
		t.Errorf("the slot was not used: %v", err)
	}

	reset()
	look(first, "after another change")
	m := &boxMember{spec: spec, inst: first.inst.(*instance)}
	snap := s.freeze(m, "snap")
	change()
	child := spec
	child.Dir, child.State, child.Session = spec.Dir+"-fork", spec.State+"-fork", "ses_fork"
	look(p.child(t, child, snap), "in a fork")
	look(first, "after a fork")

	reset()
	look(first, "after one more change")
	if err := first.inst.(driver.Suspender).Suspend(t.Context(), greetingText); err != nil {
		t.Fatal(err)
	}
	change()
	look(p.start(t, spec), "after it rested")
}

// TestShownWhereTheProgramWorks has a server that works in the folder that changes.
// gVisor remembers the list of such a folder; what is in it is found by name, also
// in a fork.
func TestShownWhereTheProgramWorks(t *testing.T) {
	private := []string{}
	p := newPrison(t, Options{Private: func() []string { return private }})
	dir := p.fillShown(t, "srv/notes")
	private = append(private, dir+"/denied")
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowRead, s.Cwd = nil, dir })
	c.view(t, dir)
	p.changeShown(t, dir)
	for name, want := range map[string]string{
		"replaced": "new, and longer than the old one", "added": "new", "edited": "new", "elsewhere/file": "old moved/file", "sub/made/added": "new",
	} {
		if got := c.gets(t, "read", "path", filepath.Join(dir, name)); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"removed", "gone/file", "moved/file", "sub/removed"} {
		c.fails(t, "ENOENT", "read", "path", filepath.Join(dir, name))
	}
	p.leaks(t, c, dir+"/denied")
}

// TestShownWithNewSecrets adds files and folders to a home that a sandbox sees, and
// keys among them, which it never sees.
func TestShownWithNewSecrets(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "home/.npmrc", p.canary)
	p.put(t, "home/old/file", "old")
	at := func(name string) string { return p.at("home/" + name) }
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowRead = []string{p.at("home")} })
	c.view(t, p.at("home"))
	secrets := []string{at("key.pem"), at("new/.env"), at("new/deep/.env"), at(".npmrc"), at(".aws/credentials")}
	for _, path := range secrets {
		putFile(t, path, p.canary)
	}
	p.put(t, "home/plain", "plain")
	p.put(t, "home/new/plain", "plain")
	for range 2 {
		for _, name := range []string{"plain", "new/plain"} {
			if got := c.gets(t, "read", "path", at(name)); got != "plain" {
				t.Errorf("%s has %q", name, got)
			}
		}
		p.leaks(t, c, secrets...)
		for _, path := range secrets {
			replaceFile(t, path, p.canary)
		}
		p.put(t, "home/more", "so that the sandbox's root is made anew")
	}
	if err := os.RemoveAll(at("old")); err != nil {
		t.Fatal(err)
	}
	p.put(t, "home/old", "a file where a folder was")
	if got := c.gets(t, "read", "path", at("old")); got != "a file where a folder was" {
		t.Errorf("it has %q", got)
	}
	p.leaks(t, c, secrets...)
}

// TestShownFolderReplaced puts another folder in the place of one that is shown, and
// takes it away for a while.
func TestShownFolderReplaced(t *testing.T) {
	p := newPrison(t, Options{})
	p.put(t, "srv/notes/file", "old")
	p.put(t, "srv/other/file", "new")
	dir := p.at("srv/notes")
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowRead = []string{dir} })
	reads := func(want string) {
		t.Helper()
		if got := c.gets(t, "read", "path", dir+"/file"); got != want {
			t.Errorf("it reads %q, want %q", got, want)
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(p.at(from), p.at(to)); err != nil {
			t.Fatal(err)
		}
	}
	reads("old")
	move("srv/notes", "srv/before")
	c.fails(t, "ENOENT", "read", "path", dir+"/file")
	move("srv/other", "srv/notes")
	reads("new")
	move("srv/notes", "srv/other")
	move("srv/before", "srv/notes")
	reads("old")
}

// TestRootsAreDropped has a server whose config changes: the root that no sandbox
// has any more goes.
func TestRootsAreDropped(t *testing.T) {
	p := newPrison(t, Options{})
	roots := func() string {
		entries, err := os.ReadDir(p.d.rootsDir())
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(len(entries))
	}
	for range 3 {
		p.mkdir(t, fmt.Sprint("more", p.cells))
		c := p.enter(t, func(s *driver.Spec) { options(*s).AllowRead = []string{p.at(fmt.Sprint("more", p.cells-1))} })
		c.works(t)
		if err := c.inst.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	keeps := p.enter(t)
	settles(t, "1", roots)
	keeps.works(t)
}

// TestRootThatCannotFollow has a helper that can't bring a root up to date, as those of
// earlier versions: a sandbox that starts has another one.
func TestRootThatCannotFollow(t *testing.T) {
	logs := new(testkit.Log)
	p := newPrison(t, Options{Log: logs.Logger()})
	p.put(t, "srv/file", "old")
	sees := func(s *driver.Spec) {
		s.Log = logs.Logger()
		options(*s).AllowRead, options(*s).DenyRead = []string{p.at("srv")}, []string{p.at("srv/denied")}
	}
	first := p.enter(t, sees)
	// The helper knows of no root there.
	root := first.inst.(*instance).root
	if _, _, err := root.key.helper.call(t.Context(), control.Request{Op: control.OpDrop, Root: &control.Root{Dir: p.d.roots.dir(root.key.digest)}}); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, p.at("srv/file"), "new")
	if got := first.gets(t, "read", "path", p.at("srv/file")); got != "old" {
		t.Errorf("without its root it reads %q", got)
	}
	if got := p.enter(t, sees).gets(t, "read", "path", p.at("srv/file")); got != "new" {
		t.Errorf("the next sandbox reads %q", got)
	}
	replaceFile(t, p.at("srv/file"), "newer")
	if got := first.gets(t, "read", "path", p.at("srv/file")); got != "old" {
		t.Errorf("without its root it reads %q", got)
	}
	if n := logs.Count("level=WARN", "attacker", "not kept up to date"); n != 1 {
		t.Errorf("it warns %d times:\n%s", n, logs)
	}
	if n := logs.Count("level=WARN", "attacker", "have another one"); n != 1 {
		t.Errorf("it warns %d times of its root:\n%s", n, logs)
	}
}
