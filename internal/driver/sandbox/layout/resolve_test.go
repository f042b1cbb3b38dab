//go:build unix

package layout

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// realPath is for temporary folders that lie behind a link.
func realPath(t *testing.T, at string) string {
	t.Helper()
	at, err := filepath.EvalSymlinks(at)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestResolveAsksWhoeverKeepsVersions(t *testing.T) {
	h := fake(t, "/versions/3.12/bin/python3=\x7fELF", "/versions/3.12/lib/x", "/plain/tool=\x7fELF", "/plain/link -> tool", "/plain/nothing/")
	h.root = realPath(t, h.root)
	for name, line := range map[string]string{
		"pyenv": "#!/bin/sh\nset -e\nexec \"" + h.root + "/libexec/pyenv\" exec \"python3\" \"$@\"\n",
		"asdf":  "#!/bin/sh\n# asdf-plugin: python\nexec " + h.root + "/libexec/asdf exec \"python3\" \"$@\" # asdf_allow: ' asdf '\n",
		"rbenv": "#!/bin/sh\nexec \"" + h.root + "/libexec/rbenv\" exec python3\n",
	} {
		h.add(t, "/"+name+"/shims/python3="+line)
		h.add(t, "/libexec/"+name+"=#!/bin/sh\n[ \"$1 $2\" = \"which python3\" ] && [ \"$WHO\" = me ] && echo "+h.root+"/versions/3.12/bin/python3\n")
	}
	h.add(t, "/volta/bin/volta=#!/bin/sh\necho "+h.root+"/versions/3.12/bin/python3\n")
	h.add(t, "/volta/bin/volta-shim=\x7fELF")
	h.add(t, "/volta/bin/python3 -> volta-shim")
	h.add(t, "/broken/shims/python3=#!/bin/sh\nexec \""+h.root+"/libexec/nodenv\" exec python3\n")
	h.add(t, "/libexec/nodenv=#!/bin/sh\necho no such version >&2\nexit 1\n")
	h.add(t, "/endless/shims/python3=#!/bin/sh\nexec \""+h.root+"/libexec/goenv\" exec python3\n")
	h.add(t, "/libexec/goenv=#!/bin/sh\necho "+h.root+"/endless/shims/python3\n")
	for _, dir := range []string{"/pyenv/shims", "/asdf/shims", "/rbenv/shims", "/volta/bin"} {
		at, reads, err := Resolve("python3", []string{"PATH=" + h.root + dir + ":/usr/bin:/bin", "WHO=me", "HOME=/nonexistent"})
		if want := h.root + "/versions/3.12/bin/python3"; err != nil || at != want {
			t.Errorf("%s: got %s, %v, want %s", dir, at, err, want)
		}
		if !slices.Contains(reads, h.root+"/versions/3.12") {
			t.Errorf("%s: it does not say that it needs its library: %q", dir, reads)
		}
	}
	for command, want := range map[string]string{h.root + "/plain/tool": h.root + "/plain/tool", h.root + "/plain/link": h.root + "/plain/link", "sh": "/sh"} {
		if at, _, err := Resolve(command, []string{"PATH=/usr/bin:/bin"}); err != nil || !strings.HasSuffix(at, want) {
			t.Errorf("%s: got %s, %v", command, at, err)
		}
	}
	for command, want := range map[string]string{
		"no-such-program":                "is not found on PATH; install it",
		"./x":                            "is not a whole path",
		h.root + "/plain/none":           "can't be looked at",
		h.root + "/plain/nothing":        "is not a program",
		h.root + "/broken/shims/python3": "nodenv which python3: exit status 1: no such version; install that version",
	} {
		if _, _, err := Resolve(command, []string{"PATH=/usr/bin:/bin"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
	}
	if at, _, err := Resolve(h.root+"/endless/shims/python3", nil); err == nil {
		t.Logf("a shim that is its own program is taken for what it is: %s", at)
	}
}

func TestFindLooksInAnotherRoot(t *testing.T) {
	h := fake(t, "/usr/bin/srv=x", "/bin -> /usr/bin", "/usr/bin/out -> /../../../bin/sh", "/app/run=x")
	for name, want := range map[string]string{"srv": "/bin/srv", "app/run": "/app/run", "sh": "", "out": "", "none": ""} {
		got, err := Find(h.root, name, "/none:/bin")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestPartsInPartsAreSplitOnlyWhereTheyMustBe(t *testing.T) {
	h := fake(t, "/a/b/c/f", "/a/b/d/", "/a/e", "/a/l -> e", "/x/y/z", "/x/f")
	bind := func(at string, folder bool) *node { return &node{kind: isBind, source: at, folder: folder} }
	for name, tt := range map[string]struct {
		put  func(tr *tree) error
		want string
	}{
		"a place that is there":     {func(tr *tree) error { return tr.put("/a/b/c", bind("/x/y", true)) }, "/a=/a /a/b/c=/x/y"},
		"a file that is there":      {func(tr *tree) error { return tr.put("/a/b/c/f", bind("/x/f", false)) }, "/a=/a /a/b/c/f=/x/f"},
		"a place that is not there": {func(tr *tree) error { return tr.put("/a/b/n/m", bind("/x/y", true)) }, "/a/b/c=/a/b/c /a/b/d=/a/b/d /a/b/n/m=/x/y /a/e=/a/e /a/l->e"},
		"a file over a directory":   {func(tr *tree) error { return tr.put("/a/b/d", bind("/x/f", false)) }, "/a/b/c=/a/b/c /a/b/d=/x/f /a/e=/a/e /a/l->e"},
		"a directory of our own":    {func(tr *tree) error { return tr.put("/a/b", &node{mode: 0o700}) }, "/a/b=- /a/e=/a/e /a/l->e"},
		"the inner one first": {func(tr *tree) error {
			tr.top.kids = nil
			if err := tr.put("/a/b/new", bind("/x/y", true)); err != nil {
				return err
			}
			return tr.put("/a", bind("/a", true))
		}, "/a/b/c=/a/b/c /a/b/d=/a/b/d /a/b/new=/x/y /a/e=/a/e /a/l->e"},
		"two in one": {func(tr *tree) error {
			if err := tr.put("/a/b/c", bind("/x/y", true)); err != nil {
				return err
			}
			return tr.put("/a/b/c/more", bind("/x/f", false))
		}, "/a/b/c/more=/x/f /a/b/c/z=/x/y/z /a/b/d=/a/b/d /a/e=/a/e /a/l->e"},
		"below a link of the root": {func(tr *tree) error {
			if err := tr.put("/k", &node{kind: isLink, text: "a/b"}); err != nil {
				return err
			}
			return tr.put("/k/c", bind("/x/y", true))
		}, "/a=/a /a/b/c=/x/y /k->a/b"},
		"below a file": {func(tr *tree) error { return tr.put("/a/e/n", bind("/x/y", true)) }, "/a/e is not a directory in the root"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(h)
			if err := tr.put("/a", bind("/a", true)); err != nil {
				t.Fatal(err)
			}
			if err := tt.put(tr); err != nil {
				if err.Error() != tt.want {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				return
			}
			var got []string
			for _, p := range tr.parts() {
				switch {
				case p.Link != "":
					got = append(got, p.Path+"->"+p.Link)
				case p.Source == "":
					got = append(got, p.Path+"=-")
				default:
					got = append(got, p.Path+"="+p.Source)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), tt.want)
			}
		})
	}
}
