//go:build unix

package layout

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

func TestProgramsBringWhatTheyNeed(t *testing.T) {
	h := machine(t,
		// An interpreter of one's own, and one behind links.
		"/home/me/.pyenv/versions/3.12/bin/python3.12=\x7fELF", "/home/me/.pyenv/versions/3.12/lib/python3.12/os.py", "/home/me/.pyenv/versions/3.11/x",
		"/home/me/bin/py -> ../.pyenv/versions/3.12/bin/python3.12",
		"/home/me/bin/mine=\x7fELF", "/home/me/.local/bin/python3.13=\x7fELF", "/home/me/.local/lib/python3.13/os.py", "/home/me/.local/lib/other/x",
		// A package with a script, and one without.
		"/home/me/proj/package.json", "/home/me/proj/dist/deep/x.js", "/home/me/proj/node_modules/dep/i.js", "/home/me/proj/node_modules/linked -> ../../linked", "/home/me/linked/package.json", "/home/me/node_modules/up/i.js",
		"/home/me/loose/s.py", "/home/me/loose/data", "/home/me/s.py", "/tmp/s.py", "/tmp/else", "/tmp/d/s.py", "/home/me/package.json",
		// Installed for all projects.
		"/home/me/.npm-global/lib/node_modules/srv/dist/i.js=#!/usr/bin/env node\n", "/home/me/.npm-global/lib/node_modules/srv/package.json", "/home/me/.npm-global/bin/srv -> ../lib/node_modules/srv/dist/i.js", "/home/me/.npm-global/etc/npmrc",
		// An environment of Python, with a package that is elsewhere.
		"/home/me/venv/pyvenv.cfg=home = /home/me/.pyenv/versions/3.12/bin\nversion = 3.12\n", "/home/me/venv/bin/python -> /home/me/.pyenv/versions/3.12/bin/python3.12", "/home/me/venv/bin/srv=#!/home/me/venv/bin/python\n",
		"/home/me/venv/lib/python3.12/site-packages/e.pth=/home/me/edited/src\nimport x\n/home/me\n", "/home/me/edited/src/m.py",
		// Shebangs.
		"/home/me/tools/run=#! /home/me/interp/bin/lang -x\n", "/home/me/interp/bin/lang=\x7fELF", "/home/me/interp/lib/l", "/home/me/tools/more",
		"/nix/store/a/bin/p=\x7fELF", "/nix/store/b/l", "/usr/local/bin/nixed -> /nix/store/a/bin/p",
		"/work/mod/go.mod", "/work/mod/cmd/s.sh", "/work/cwd/f", "/work/x/a.jar", "/work/y/b.jar",
	)
	for name, tt := range map[string]struct {
		command string
		cwd     string
		env     []string
		shown   map[string]string
	}{
		"an interpreter of one's own": {"/home/me/.pyenv/versions/3.12/bin/python3.12 -m x", "", nil, map[string]string{
			"/home/me/.pyenv/versions/3.12/lib/python3.12/os.py": "/home/me/.pyenv/versions/3.12/lib/python3.12/os.py", "/home/me/.pyenv/versions/3.11": "", "/home/me/notes": ""}},
		"an interpreter behind a link": {"/home/me/bin/py", "", nil, map[string]string{
			"/home/me/bin/py": "-> ../.pyenv/versions/3.12/bin/python3.12", "/home/me/.pyenv/versions/3.12/lib": "/home/me/.pyenv/versions/3.12/lib", "/home/me/bin/mine": ""}},
		"a binary":                                      {"/home/me/bin/mine", "", nil, map[string]string{"/home/me/bin/mine": "/home/me/bin/mine", "/home/me/bin/py": "", "/home/me/notes": ""}},
		"an interpreter among other's":                  {"/home/me/.local/bin/python3.13", "", nil, map[string]string{"/home/me/.local/lib/python3.13/os.py": "/home/me/.local/lib/python3.13/os.py", "/home/me/.local/lib/other": "", "/home/me/.local/state": ""}},
		"a script of a package":                         {"/usr/bin/node --flag /home/me/proj/dist/deep/x.js", "", nil, map[string]string{"/home/me/proj/package.json": "/home/me/proj/package.json", "/home/me/proj/node_modules/dep/i.js": "/home/me/proj/node_modules/dep/i.js", "/home/me/linked/package.json": "/home/me/linked/package.json", "/home/me/node_modules/up/i.js": "/home/me/node_modules/up/i.js", "/home/me/package.json": "", "/home/me/notes": ""}},
		"a script by a path of its cwd":                 {"/usr/bin/node deep/../deep/x.js", "/home/me/proj/dist", nil, map[string]string{"/home/me/proj/package.json": "/home/me/proj/package.json"}},
		"a script of no package":                        {"/usr/bin/python3 -u /home/me/loose/s.py /work/cwd/f", "", nil, map[string]string{"/home/me/loose/data": "/home/me/loose/data", "/work": "", "/home/me/notes": ""}},
		"a script in a home":                            {"/usr/bin/python3 /home/me/s.py", "", nil, map[string]string{"/home/me/s.py": "/home/me/s.py", "/home/me/notes": ""}},
		"a script in a place of all":                    {"/usr/bin/python3 /tmp/s.py", "", nil, map[string]string{"/tmp/s.py": "/tmp/s.py", "/tmp/else": ""}},
		"a script in a folder there":                    {"/usr/bin/python3 /tmp/d/s.py", "", nil, map[string]string{"/tmp/d/s.py": "/tmp/d/s.py", "/tmp/else": "", "/tmp": "dir"}},
		"a module is no script":                         {"/usr/bin/python3 -Im /home/me/loose/s.py", "", nil, map[string]string{"/home/me/loose": ""}},
		"code is no script":                             {"/usr/bin/node -e /home/me/proj/dist/deep/x.js", "", nil, map[string]string{"/home/me/proj": ""}},
		"what is required, and a script":                {"/usr/bin/node -r /home/me/loose/s.py /home/me/proj/dist/deep/x.js /work/cwd/f", "", nil, map[string]string{"/home/me/loose/data": "/home/me/loose/data", "/home/me/proj/package.json": "/home/me/proj/package.json", "/work": ""}},
		"arguments of a program that is no interpreter": {"/usr/bin/tool /home/me/loose/s.py", "", nil, map[string]string{"/home/me/loose": ""}},
		"a program of a package for all projects": {"/home/me/.npm-global/bin/srv", "", nil, map[string]string{
			"/home/me/.npm-global/bin/srv": "-> ../lib/node_modules/srv/dist/i.js", "/home/me/.npm-global/lib/node_modules/srv/package.json": "/home/me/.npm-global/lib/node_modules/srv/package.json", "/home/me/.npm-global/etc": ""}},
		"the interpreter of an environment": {"/home/me/venv/bin/python -m x", "", nil, map[string]string{
			"/home/me/venv/pyvenv.cfg": "/home/me/venv/pyvenv.cfg", "/home/me/venv/bin/python": "/home/me/venv/bin/python", "/home/me/.pyenv/versions/3.12/lib/python3.12/os.py": "/home/me/.pyenv/versions/3.12/lib/python3.12/os.py", "/home/me/edited/src/m.py": "/home/me/edited/src/m.py", "/home/me/notes": ""}},
		"a program of an environment": {"/home/me/venv/bin/srv", "", nil, map[string]string{
			"/home/me/venv/pyvenv.cfg": "/home/me/venv/pyvenv.cfg", "/home/me/.pyenv/versions/3.12/bin/python3.12": "/home/me/.pyenv/versions/3.12/bin/python3.12"}},
		"a script with an interpreter of its own": {"/home/me/tools/run", "", nil, map[string]string{"/home/me/interp/bin/lang": "/home/me/interp/bin/lang", "/home/me/interp/lib/l": "/home/me/interp/lib/l", "/home/me/tools/more": "/home/me/tools/more"}},
		"a store of packages":                     {"/usr/local/bin/nixed", "", nil, map[string]string{"/nix/store/b/l": "/nix/store/b/l"}},
		"a folder it runs in":                     {"/usr/bin/tool", "/work/cwd", nil, map[string]string{"/work/cwd/f": "/work/cwd/f", "/work/mod": ""}},
		"a home it runs in":                       {"/usr/bin/tool", "/home/me", nil, map[string]string{"/home/me": "dir", "/home/me/notes": ""}},
		"its home inside":                         {"/usr/bin/tool", "/home/user", nil, map[string]string{"/home/user": "dir"}},
		"folders of its environment":              {"/usr/bin/python3", "", []string{"PYTHONPATH=/home/me/loose:/home/me:x"}, map[string]string{"/home/me/loose/data": "/home/me/loose/data", "/home/me/notes": ""}},
		"classes of Java":                         {"/usr/bin/java -cp /work/x/a.jar:/work/y/* Main", "", nil, map[string]string{"/work/x/a.jar": "/work/x/a.jar", "/work/y/b.jar": "/work/y/b.jar", "/work/cwd": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(tt.command, "java") {
				h.add(t, "/usr/bin/java=\x7fELF")
			}
			line := strings.Fields(tt.command)
			w := wanted(h, line[0], line[1:]...)
			w.Cwd, w.Env = tt.cwd, tt.env
			plan(t, w).want(t, h, tt.shown)
		})
	}
}

func TestWritingIsAPartOfItsOwn(t *testing.T) {
	h := machine(t, "/srv/more/x")
	w := wanted(h, "/usr/bin/tool")
	w.AllowRead, w.AllowWrite = []string{"/srv", "/srv/data/a"}, []string{"/srv/data"}
	l := plan(t, w)
	if p := l.part("/srv/data"); p == nil || !p.Write || p.Source != "/srv/data" {
		t.Errorf("/srv/data: %+v", p)
	}
	for _, p := range l.Parts {
		if p.Path != "/srv/data" && (p.Write || p.Source != "" && within(p.Path, "/srv/data")) {
			t.Errorf("%+v", p)
		}
	}
	l.want(t, h, map[string]string{"/srv/more/x": "/srv/more/x"})
}

func TestDigestChangesWithWhatIsSeen(t *testing.T) {
	h := machine(t, "/home/me/proj/package.json", "/home/me/proj/node_modules/.package-lock.json", "/home/me/proj/x.js")
	first := wanted(h, "/usr/bin/node", "/home/me/proj/x.js")
	was := plan(t, first).Digest
	if again := plan(t, first).Digest; again != was {
		t.Fatal("it changed by itself")
	}
	later := time.Now().Add(time.Hour)
	for _, at := range []string{"/var/lib/dpkg/status", "/usr/bin/node", "/home/me/proj/node_modules/.package-lock.json", "/home/me/proj/x.js"} {
		if err := os.Chtimes(h.at(at), later, later); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(at, "/home/") { // what is not the system's is compared by its content
			if plan(t, first).Digest != was {
				t.Errorf("%s was touched, and the digest changed", at)
			}
			h.add(t, at+"=something else")
		}
		now := plan(t, first).Digest
		if now == was {
			t.Errorf("%s changed, and the digest did not", at)
		}
		was = now
	}
	for name, change := range map[string]func(w *Wanted){
		"a part": func(w *Wanted) { w.AllowRead = []string{"/srv"} }, "a mask": func(w *Wanted) { w.DenyRead = []string{"/opt/x"} }, "a text": func(w *Wanted) { w.Hostname = "x" },
	} {
		w := first
		change(&w)
		if plan(t, w).Digest == was {
			t.Errorf("%s changed, and the digest did not", name)
		}
	}
	for _, at := range []string{"/home/me/notes", "/home/me/proj/package.json", "/home/me/proj"} {
		if err := os.Chtimes(h.at(at), later, later); err != nil {
			t.Fatal(err)
		}
		if plan(t, first).Digest != was {
			t.Errorf("it changed with %s", at)
		}
	}
}

// What is in a folder that is shown comes and goes, and the digest stays: also where
// the folder had to be split because something in it is denied.
func TestDigestIsNotOfWhatIsInAFolder(t *testing.T) {
	h := machine(t, "/srv/notes/a", "/srv/notes/private/k", "/srv/notes/sub/x", "/srv/root/bin/srv=\x7fELF", "/srv/root/etc/x")
	split := wanted(h, "/usr/bin/tool")
	split.AllowRead, split.DenyRead = []string{"/srv/notes"}, []string{"/srv/notes/private", "/srv/notes/sub/later"}
	home := wanted(h, "/usr/bin/tool")
	home.AllowRead = []string{"/home/me"}
	all := wanted(h, "/usr/bin/tool")
	all.Mode = Host
	dir := wanted(h, "/bin/srv")
	dir.Mode, dir.Dir = Dir, "/srv/root"
	was := map[string]string{}
	roots := map[string]Wanted{"a folder that is split": split, "a home": home, "the host": all, "a directory": dir}
	for name, w := range roots {
		was[name] = plan(t, w).Digest
	}
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"a new file", func() error { return os.WriteFile(h.at("/srv/notes/n2"), nil, 0o644) }},
		{"one that is the first", func() error { return os.WriteFile(h.at("/srv/notes/0"), nil, 0o644) }},
		{"one renamed", func() error { return os.Rename(h.at("/srv/notes/a"), h.at("/srv/notes/z")) }},
		{"one removed", func() error { return os.Remove(h.at("/srv/notes/sub/x")) }},
		{"what is denied gone", func() error { return os.RemoveAll(h.at("/srv/notes/private")) }},
		{"what is denied made", func() error { return os.WriteFile(h.at("/srv/notes/sub/later"), nil, 0o644) }},
		{"keys made", func() error { return os.Mkdir(h.at("/home/me/.aws"), 0o700) }},
		{"keys gone", func() error { return os.RemoveAll(h.at("/home/me/.ssh")) }},
		{"a new user", func() error { return os.Mkdir(h.at("/home/new"), 0o755) }},
		{"a new folder of the host", func() error { return os.Mkdir(h.at("/data/new"), 0o755) }},
		{"a new folder of the root", func() error { return os.Mkdir(h.at("/srv/root/new"), 0o755) }},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		for name, w := range roots {
			if plan(t, w).Digest != was[name] {
				t.Errorf("%s: the digest of %s changed", change.name, name)
			}
		}
	}
	h.add(t, "/srv/root/bin/srv=\x7fELF, but another")
	if plan(t, dir).Digest == was["a directory"] {
		t.Error("the program of a root changed, and the digest did not")
	}
}

// What comes to a directory that had to be split is seen, and the root is still
// the same one.
func TestDigestOfWhatWasSplit(t *testing.T) {
	h := machine(t, "/srv/mine/x.js", "/var/cache/y")
	w := wanted(h, "/usr/bin/node", "/srv/mine/x.js")
	w.Mode = Host
	shows := func(l *Layout, at string) bool {
		return slices.ContainsFunc(l.Parts, func(p control.Part) bool { return p.Source == at && p.Of != "" })
	}
	was := plan(t, w)
	if shows(was, "/var/new") || !shows(was, "/var/cache") {
		t.Fatalf("/var is not in pieces: %+v", was.Parts)
	}
	if err := os.Mkdir(h.at("/var/new"), 0o755); err != nil {
		t.Fatal(err)
	}
	is := plan(t, w)
	if !shows(is, "/var/new") {
		t.Errorf("what is new is not shown: %+v", is.Parts)
	}
	if is.Digest != was.Digest {
		t.Error("the digest has changed")
	}
}

func TestDigestOfAnImageIsTheImages(t *testing.T) {
	h := machine(t, "/images/a/bin/srv=\x7fELF", "/images/b/bin/srv=\x7fELF")
	digest := func(dir, image string) string {
		w := wanted(h, "/bin/srv")
		w.Mode, w.Dir, w.Image = Dir, dir, image
		return plan(t, w).Digest
	}
	if digest("/images/a", "1") != digest("/images/b", "1") || digest("/images/a", "1") == digest("/images/a", "2") {
		t.Error("where it was unpacked counts, or what it is does not")
	}
}

// What is in a folder with another path here is found by that path, links and all,
// and only where it really is does not count.
func TestMovedFolders(t *testing.T) {
	digest := ""
	for _, state := range []string{"/home/me/.local/state/tine", "/srv/other"} {
		store := state + "/sandbox/packages"
		h := machine(t, store+"/key-1/venv/bin/python -> /p/python/cpython/bin/python3.12", store+"/key-1/venv/pyvenv.cfg=home = /p/python/cpython/bin\n", store+"/key-1/venv/bin/srv=#!/p/sum/venv/bin/python\n",
			store+"/python/cpython/bin/python3.12=\x7fELF", store+"/python/cpython/lib/os.py", store+"/key-2/other")
		// Packages of another gateway are not older or newer.
		later := time.Now().Add(time.Duration(len(state)) * time.Hour)
		for at, when := range map[string]time.Time{store + "/key-1/venv/pyvenv.cfg": later, store + "/python/cpython/bin/python3.12": later} {
			if err := os.Chtimes(h.at(at), when, when); err != nil {
				t.Fatal(err)
			}
		}
		same := time.Unix(1, 0)
		for _, at := range []string{"/var/lib/dpkg/status", "/usr/bin/python3.11", "/usr/bin/node"} {
			if err := os.Chtimes(h.at(at), same, same); err != nil {
				t.Fatal(err)
			}
		}
		w := wanted(h, "/p/sum/venv/bin/python", "/p/sum/venv/bin/srv")
		w.Hide, w.Reads = []string{state}, []string{"/p/sum", "/p/python/cpython"}
		w.Moves = map[string]string{"/p/sum": store + "/key-1", "/p/python": store + "/python"}
		l := plan(t, w)
		l.want(t, h, map[string]string{
			"/p/sum/venv/bin/srv": store + "/key-1/venv/bin/srv", "/p/python/cpython/lib/os.py": store + "/python/cpython/lib/os.py",
			store: "", store + "/key-1": "", store + "/key-2/other": "",
		})
		for _, p := range l.Parts {
			if strings.HasPrefix(p.Source, "/p/") || within(state, p.Source) && !strings.HasPrefix(p.Path, "/p/") {
				t.Errorf("%+v", p)
			}
		}
		if digest != "" && l.Digest != digest {
			t.Error("where the gateway keeps its packages counts")
		}
		digest = l.Digest
	}
}
