package srt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// judge compares what may be read. A path that begins with - may not.
func judge(t *testing.T, s *Settings, dir string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		p, denied := strings.CutPrefix(p, "-")
		if !strings.HasPrefix(p, "/") {
			p = dir + "/" + p
		}
		if got := s.Denied(p); got != denied || s.MayRead(p) == got {
			t.Errorf("%s: denied is %v", p, got)
		}
	}
}

func TestDeniedPaths(t *testing.T) {
	for _, tt := range []struct {
		name, deny, allow string
		paths             []string
	}{
		{"a folder", `"secrets"`, ``, []string{"-secrets", "-secrets/a/b", "secretsx", "a", "/etc/passwd"}},
		{"a trailing slash", `"secrets/"`, ``, []string{"-secrets", "-secrets/a"}},
		{"all below", `"secrets/**"`, ``, []string{"-secrets", "-secrets/a", "a"}},
		{"home", `"~/.ssh"`, ``, []string{"-home/.ssh/id", "home/.sshx", "home/a"}},
		{"the whole home", `"~"`, ``, []string{"-home", "-home/a", "a"}},
		{"another's home is a name", `"~x"`, ``, []string{"-~x", "home"}},
		{"dots", `"./a/../secrets"`, ``, []string{"-secrets/x", "a"}},
		{"everything", `"/"`, `"."`, []string{"-/etc/passwd", "-/", "a", "secrets/x"}},
		{"everything below", `"/**"`, `"."`, []string{"-/etc/passwd", "a"}},
		{"allowed within", `"~"`, `"~/work"`, []string{"-home/a", "home/work", "home/work/x", "-home/workx"}},
		{"denied within what is allowed", `"~", "~/work/keys"`, `"~/work"`, []string{"home/work/x", "-home/work/keys", "-home/work/keys/k"}},
		{"three deep", `"~", "~/work/keys"`, `"~/work", "~/work/keys/public"`, []string{"-home/work/keys/k", "home/work/keys/public/k"}},
		{"the same path", `"~/work"`, `"~/work"`, []string{"home/work/x"}},
		{"allowed around", `".env"`, `"."`, []string{"-.env", "a"}},
		{"allowed what is not denied", ``, `"a"`, []string{"a", "b"}},

		{"a pattern", `"*.pem"`, ``, []string{"-a.pem", "-.pem", "a.pemx", "sub/a.pem", "/x/a.pem"}},
		{"a pattern at any depth", `"**/.env"`, ``, []string{"-.env", "-a/.env", "-a/b/.env", "-a/.env/x", "a.env", "a/x.env", "/.env"}},
		{"a pattern from the root", `"/**/*.key"`, ``, []string{"-/a.key", "-/a/b.key", "-a.key", "-a.key/below"}},
		{"a pattern of folders", `"**/build/**"`, ``, []string{"-build", "-a/build", "-a/build/x", "a/buildx"}},
		{"one character", `"file?.txt"`, ``, []string{"-file1.txt", "file.txt", "file12.txt", "file/.txt"}},
		{"a set", `"f[0-9a].txt"`, ``, []string{"-f3.txt", "-fa.txt", "fb.txt", "f-.txt"}},
		{"a set that does not negate", `"f[!a].txt"`, ``, []string{"-f!.txt", "-fa.txt", "fb.txt"}},
		{"a set with a dash", `"f[a-].txt"`, ``, []string{"-f-.txt", "-fa.txt"}},
		{"brackets that are no set", `"[user-id]/*.env"`, ``, []string{"-[user-id]/a.env", "u/a.env"}},
		{"an empty set", `"list[].ts"`, ``, []string{"-list[].ts"}},
		{"an open bracket", `"a[b"`, ``, []string{"-a[b", "ab"}},
		{"a pattern is also a name", `"[x]"`, ``, []string{"-x", "-[x]", "-[x]/y"}},
		{"stars within a name", `"a**z"`, ``, []string{"-az", "-a/b/z", "-abz", "ay"}},
		{"what a regular expression means", `"a.b+(c)*"`, ``, []string{"-a.b+(c)x", "axb+(c)", "abbc"}},
		{"a line in a name", `"a*z"`, ``, []string{"-a\nz"}},
		{"dead parts of a pattern", `"./a//./*/./b"`, ``, []string{"-a/x/b", "a/b"}},
		{"a pattern within what is allowed", `"/", "**/.env"`, `"."`, []string{"a/x", "-a/.env", "-.env"}},
		{"a pattern's file that is allowed", `"**/.env"`, `"a/.env"`, []string{"-.env", "a/.env"}},
		{"a pattern that is allowed", `"home"`, `"home/*/public"`, []string{"-home/a/x", "home/a/public/x", "-home/public", "-home/a/b/public"}},
		{"literal", `{"path": "*.pem", "literal": true}`, ``, []string{"-*.pem", "a.pem"}},
		{"literal with its end", `{"path": "a/**", "literal": true}`, ``, []string{"-a/**", "a/b", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t)
			judge(t, parse(t, dir, `{"filesystem": {"denyRead": [`+tt.deny+`], "allowRead": [`+tt.allow+`]}}`), dir, tt.paths...)
		})
	}
	s := parse(t, "/work", `{}`)
	if !s.Denied("relative") || !s.Denied("") || !s.Denied("~/x") {
		t.Error("a path that is not whole may be read")
	}
}

// A denied file is denied by every name, and a link that is allowed allows nothing else.
func TestDeniedLinks(t *testing.T) {
	dir := folder(t)
	put(t, dir+"/keys/id")
	put(t, dir+"/data/deep/x")
	put(t, dir+"/open/file")
	link(t, "../keys/id", dir+"/open/to-key")
	link(t, "../keys", dir+"/open/to-keys")
	link(t, "to-key", dir+"/open/twice")
	link(t, dir+"/open/file", dir+"/keys/out")
	link(t, "keys", dir+"/named")
	link(t, "data", dir+"/moved")
	link(t, "loop", dir+"/loop")
	link(t, "nowhere/at/all", dir+"/dangling")

	s := parse(t, dir, `{"filesystem": {"denyRead": ["keys"]}}`)
	judge(t, s, dir, "-keys/id", "-open/to-key", "-open/to-keys", "-open/to-keys/id", "-open/twice", "-named/id", "-named", "-open/../keys/id",
		"-open/to-keys/../keys/id", "-open/to-keys/new", "open/file", "-keys/out", "loop", "dangling", "dangling/x")

	// By the name of a link: the link, and where it leads.
	s = parse(t, dir, `{"filesystem": {"denyRead": ["named"]}}`)
	judge(t, s, dir, "-named", "-named/id", "-keys/id", "-open/to-key", "open/file")

	// Through a link on the way, also with a pattern.
	s = parse(t, dir, `{"filesystem": {"denyRead": ["moved/deep"]}}`)
	judge(t, s, dir, "-data/deep/x", "-moved/deep/x", "data", "moved")
	s = parse(t, dir, `{"filesystem": {"denyRead": ["moved/**/x"]}}`)
	judge(t, s, dir, "-data/deep/x", "-moved/deep/x", "data/deep")

	// An allowed link does not lift what is denied where it leads; a link on the way does.
	s = parse(t, dir, `{"filesystem": {"denyRead": ["keys", "data"], "allowRead": ["named", "open/to-key", "moved/deep"]}}`)
	judge(t, s, dir, "-keys/id", "-named/id", "-open/to-key", "data/deep/x", "moved/deep/x", "-data")

	// .. is where the folder is, and not where its name is.
	link(t, "../data/deep", dir+"/open/down")
	s = parse(t, dir, `{"filesystem": {"denyRead": ["data/top"]}}`)
	judge(t, s, dir, "-open/down/../top", "open/top")

	// The folder that paths begin at may be a link itself.
	s = parse(t, dir+"/moved", `{"filesystem": {"denyRead": ["/"], "allowRead": ["."]}}`)
	judge(t, s, dir, "data/deep/x", "-open/file")
}

func TestDeniedFile(t *testing.T) {
	dir := folder(t)
	put(t, dir+"/keys/id")
	put(t, dir+"/open/file")
	put(t, dir+"/open/gone")
	link(t, "../keys/id", dir+"/open/link")
	s := parse(t, dir, `{"filesystem": {"denyRead": ["keys"]}}`)
	for name, want := range map[string]bool{"keys/id": true, "open/link": true, "open/file": false, "open/gone": true} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// The name leads elsewhere by now.
		if name == "open/link" {
			if err := os.Remove(f.Name()); err != nil {
				t.Fatal(err)
			}
			link(t, "file", f.Name())
		}
		if name == "open/gone" {
			if err := os.Remove(f.Name()); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.DeniedFile(f); got != want {
			t.Errorf("%s: denied is %v", name, got)
		}
	}
}

func TestMayWrite(t *testing.T) {
	dir := folder(t)
	put(t, dir+"/out/file")
	put(t, dir+"/other/file")
	link(t, "../other", dir+"/out/other")
	link(t, "out", dir+"/named")
	s := parse(t, dir, `{"filesystem": {"denyRead": ["out/hidden"], "allowWrite": ["out", "one.txt", "named/x"], "denyWrite": ["out/keep", "**/*.lock", "out/keep2/**"]}}`)
	for p, want := range map[string]bool{
		"out": true, "out/file": true, "out/new/deep": true, "one.txt": true, "two.txt": false, "other/file": false, "out/other/file": false,
		"out/../other/file": false, "named/file": true, "out/keep": false, "out/keep/x": false, "out/keepx": true, "out/a.lock": false, "out/d/a.lock": false,
		"out/keep2/x": false, "out/hidden/x": false, "out/.bashrc": false, "out/.BashRC": false, "out/.git/hooks/pre-commit": false, "out/.git/HEAD": true,
		"out/.git/config": false, "out/.vscode": false, "out/.vscode/x": false, "out/.claude/commands/x": false, "out/.claude/x": true, "out/sub/.mcp.json": false,
	} {
		if got := s.MayWrite(dir + "/" + p); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
	if s.MayWrite("out/file") {
		t.Error("a path that is not whole may be written")
	}
}

func TestFolders(t *testing.T) {
	dir := folder(t)
	put(t, dir+"/out/file")
	link(t, "out", dir+"/named")
	for _, tt := range []struct{ name, text, want, wrong string }{
		{"none", `{}`, "", ""},
		{"with patterns elsewhere", `{"allowWrite": ["out", "a/b"], "denyWrite": ["*.lock", "other/**/x", "a/?x/y", "a/b/../c/*"]}`, "out a/b", ""},
		{"a pattern of folders", `{"allowWrite": ["a/b"], "denyWrite": ["?/b/*.lock"]}`, "", "lies in DIR/a/b"},
		{"a pattern of the folder", `{"allowWrite": ["a/b", "other"], "denyWrite": ["?/b"]}`, "other", ""},
		{"with denials elsewhere", `{"allowWrite": ["out", "new/", "out", "named/sub"], "denyWrite": ["other", "other/*.lock"], "denyRead": ["~"]}`, "out new out/sub", ""},
		{"denied as a whole", `{"allowWrite": ["out", "new"], "denyWrite": ["out"]}`, "new", ""},
		{"denied above", `{"allowWrite": ["out/sub", "new"], "denyWrite": ["out"]}`, "new", ""},
		{"denied within", `{"allowWrite": ["new", "out"], "denyWrite": ["out/.env"]}`, "", "s.json:1:61: filesystem.denyWrite[0]: lies in DIR/out, which filesystem.allowWrite[1] lets be written"},
		{"denied within, by a link", `{"allowWrite": ["out"], "denyWrite": ["named/.env"]}`, "", "lies in DIR/out"},
		{"denied by a pattern", `{"allowWrite": ["out"], "denyWrite": ["**/.env"]}`, "", "lies in DIR/out"},
		{"denied to be read within", `{"allowWrite": ["out"], "denyRead": ["out/keys"]}`, "", "filesystem.allowWrite[0]: what is written can be read, and filesystem.denyRead[0] denies that for DIR/out/keys"},
		{"denied to be read around", `{"allowWrite": ["out"], "denyRead": ["/"]}`, "", "what is written can be read"},
		{"denied around and allowed", `{"allowWrite": ["out"], "denyRead": ["/"], "allowRead": ["out"]}`, "out", ""},
		{"a link", `{"allowWrite": ["named"]}`, "", "DIR/named is a link, which allows nothing of what it leads to; name DIR/out"},
	} {
		s, err := Parse([]byte(`{"filesystem": `+tt.text+`}`), "s.json", Options{Dir: dir})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got, err := s.WriteFolders()
		if tt.wrong != "" {
			if want := strings.ReplaceAll(tt.wrong, "DIR", dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q, %v; want %s", tt.name, got, err, want)
			}
			continue
		}
		var want []string
		for name := range strings.FieldsSeq(tt.want) {
			want = append(want, dir+"/"+name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, want)
		}
	}
	for text, want := range map[string][]string{
		`"denyRead": ["~"]`: {"/"},
		`"denyRead": ["/"]`: nil,
		`"denyRead": ["/"], "allowRead": ["out", "named/x", "out", "sub/*.txt"]`: {dir + "/out", dir + "/out/x", dir + "/sub"},
		`"denyRead": ["/"], "allowRead": ["/"]`:                                  {"/"},
	} {
		s := parse(t, dir, `{"filesystem": {`+text+`}}`)
		if got := s.ReadFolders(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"filesystem": {"denyRead": ["**/[a-z]*?.env", {"path": "x", "literal": true}]}, "network": {"allowedDomains": ["*.example.com:443"]}}`, "/work/a.env")
	f.Add(`{"filesystem": {"denyRead": ["[\\^-]", "[[]", "**/**//./*"], "allowWrite": ["~"]}}`, "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		s, err := Parse([]byte(text), "s.json", Options{Dir: "/work", Home: "/home/me"})
		if err != nil {
			return
		}
		s.Denied(path)
		s.MayWrite(path)
		s.MayReach(path, 443)
		s.ReadFolders()
		_, _ = s.WriteFolders()
	})
}
