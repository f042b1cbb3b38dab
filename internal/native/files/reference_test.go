package files

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// odd has every printable ASCII character that a name may have.
const odd = "u!\"#$%&'()*+,-.:;<=>?@[\\]^_`{|}~ é.dat"

func sample(t testing.TB) func(dir string) {
	return func(dir string) {
		put(t, dir, map[string]string{
			"a.txt":                   "one\ntwo\nthree\n",
			"nonl.txt":                "x\ny",
			"crlf.txt":                "a\r\nb\r\n\r\nc\r\n",
			"empty.txt":               "",
			"blank.txt":               "\n\n\n",
			"long.txt":                strings.Repeat("0123456789 héé ", 200) + "\n" + strings.Repeat("日本語", 1000) + "\r\nshort\n" + strings.Repeat("é\n", 2000) + strings.Repeat("z", 3000),
			"utf8.txt":                "héllo 日本 😀 \u2028 <&>\n",
			"bom.txt":                 "\uFEFFbom\n",
			"bad.bin":                 "a\xffb\xe2\x82c\xf0\x9f\x98d\xed\xa0\x80e\xc0\xaff\xf4\x90\x80\x80g\xe2\x82",
			"pic.png":                 "\x89PNG\r\n\x1a\n\x00\xff",
			"pic.JPEG":                "jpeg",
			"v.svg":                   "<svg/>",
			"sound.Mp3":               "ID3\x00",
			"s.flac":                  "fLaC",
			"data.bin":                "\x00\x01\x02",
			".png":                    "hidden",
			"noext":                   "none",
			odd:                       "odd",
			"B.txt":                   "b",
			"b2.txt":                  strings.Repeat("b", 1023),
			"README.md":               strings.Repeat("r", 1024),
			"tie.dat":                 strings.Repeat("t", 1152),
			"half.dat":                strings.Repeat("t", 1536),
			"big.dat":                 strings.Repeat("B", 1<<20+5243),
			"sub/z.js":                "z",
			"sub/deep/x.go":           "package x",
			"sub/deep/y.js":           "y",
			"sub/deep/er/w.test.js":   "w",
			"node_modules/m/index.js": "m",
			".git/config":             "[core]",
			"sub/.hidden/h.js":        "h",
			"empty/":                  "",
			"caf\u00e9.txt":           "nfc",
			"both/e\u0301":            "nfd",
			"both/\u00e9":             "nfc",
			"edit.go":                 "package edit\n\nfunc a() {\n\tif true {\n\t\treturn\n\t}\n}\n\nfunc b() {\n    x := 1\n    y := 2\n}\n",
			"ticks.md":                "````\ncode\n````\nend",
			"many.txt":                lines(1, 60),
		})
		for i, name := range []string{"B.txt", "a.txt", "b.txt", "_x", ".dot", "README", "readme.md", "10", "9", "é", "e", "f", "a-b", "ab", "a b", "日本", "😀", strings.Repeat("long", 10)} {
			put(t, dir, map[string]string{"mixed/" + name: strings.Repeat("x", []int{0, 1, 1023, 1024, 1152, 1536, 2047, 10241}[i%8])})
		}
		links(t, dir, map[string]string{
			"in.lnk": "a.txt", "dir.lnk": "sub", "dangling.lnk": "nothing", "out.lnk": "/etc", "up.lnk": "../..",
			"loop.lnk": "loop.lnk", "sub/back.lnk": "../a.txt", "pic.lnk": "pic.png", "far.lnk": "dir.lnk/deep",
		})
	}
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// A step is one call. In its arguments $ROOT is the root.
type step struct {
	tool string
	args string
	// why results may differ; then only success or failure must be the same
	differs string
}

func readingSteps() []step {
	var all []step
	add := func(tool, args string) { all = append(all, step{tool, args, ""}) }
	for _, f := range []string{"a.txt", "nonl.txt", "crlf.txt", "empty.txt", "blank.txt", "long.txt", "utf8.txt", "bom.txt", "bad.bin", "data.bin", "in.lnk", "sub/back.lnk", "far.lnk/x.go", "dir.lnk/z.js", "abs.lnk/z.js"} {
		for _, more := range []string{``, `,"head":1`, `,"head":2`, `,"head":100000`, `,"tail":1`, `,"tail":2`, `,"tail":3`, `,"tail":100000`, `,"head":0`, `,"tail":0,"head":1`, `,"head":1.5`, `,"tail":2.5`, `,"head":-1`, `,"tail":-2`} {
			add("read_text_file", fmt.Sprintf(`{"path":"$ROOT/%s"%s}`, f, more))
		}
	}
	add("read_file", `{"path":"$ROOT/a.txt","head":1}`)
	add("read_file", `{"path":"a.txt"}`)
	for _, p := range []string{"a.txt", "./sub/../a.txt", "$ROOT//a.txt", "$ROOT/sub/../a.txt/", "$ROOT/dir.lnk/../a.txt", "cafe\u0301.txt", "$ROOT/caf\u00e9.txt", "sub/deep/../z.js"} {
		add("read_text_file", fmt.Sprintf(`{"path":%q}`, p))
	}
	// Failures, in the same words.
	for _, p := range []string{"missing", "$ROOT/missing/x", "$ROOT", "sub", "", ".", "a.txt/x", "dangling.lnk", "dangling.lnk/x", "..", "../x", "$ROOT/../x", "/etc/passwd", "$ROOTx/a", "/", "sub/../../x", "C:\\\\x", "c:/x", "D:"} {
		add("read_text_file", fmt.Sprintf(`{"path":"%s"}`, p))
		add("list_directory", fmt.Sprintf(`{"path":"%s"}`, p))
	}
	add("read_text_file", `{"path":"a.txt","head":1,"tail":1}`)
	add("read_text_file", `{"path":"both/e\u0301\u0300"}`)
	for _, f := range []string{"pic.png", "pic.JPEG", "v.svg", "sound.Mp3", "s.flac", "data.bin", ".png", "noext", "empty.txt", "pic.lnk", "sub", "missing", "out.lnk/passwd", strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(odd)} {
		s := step{"read_media_file", fmt.Sprintf(`{"path":"$ROOT/%s"}`, f), ""}
		if strings.HasPrefix(f, "out") {
			s.differs = "where a link leads is not shown"
		}
		all = append(all, s)
	}
	for _, p := range []string{"out.lnk", "out.lnk/passwd", "up.lnk", "up.lnk/x", "loop.lnk"} {
		all = append(all, step{"read_text_file", fmt.Sprintf(`{"path":"$ROOT/%s"}`, p), "where a link leads is not shown"})
	}
	add("read_multiple_files", `{"paths":["a.txt","$ROOT/nonl.txt","missing","../x","sub","empty.txt","bad.bin"]}`)
	add("read_multiple_files", `{"paths":["a.txt"]}`)
	for _, p := range []string{"$ROOT", ".", "", "sub", "sub/", "dir.lnk", "far.lnk", "abs.lnk", "empty", "both"} {
		add("list_directory", fmt.Sprintf(`{"path":"%s"}`, p))
	}
	for _, p := range []string{"empty", "sub/deep/er", "mixed"} {
		for _, by := range []string{``, `,"sortBy":"name"`, `,"sortBy":"size"`} {
			add("list_directory_with_sizes", fmt.Sprintf(`{"path":"%s"%s}`, p, by))
		}
	}
	add("list_directory_with_sizes", `{"path":"a.txt"}`)
	add("list_directory_with_sizes", `{"path":"sub"}`)
	for _, x := range []string{``, `,"excludePatterns":[]`, `,"excludePatterns":["node_modules",".git"]`, `,"excludePatterns":["**/*.js"]`, `,"excludePatterns":["*.js","deep"]`, `,"excludePatterns":["sub/*"]`, `,"excludePatterns":["er/w.test.js","[bc]*"]`, `,"excludePatterns":[""]`, `,"excludePatterns":["!sub"]`, `,"excludePatterns":["{sub,empty}","*.{txt,bin,dat}"]`} {
		for _, p := range []string{"$ROOT", "sub", "./sub/", "dir.lnk"} {
			add("directory_tree", fmt.Sprintf(`{"path":"%s"%s}`, p, x))
		}
	}
	add("directory_tree", `{"path":"a.txt"}`)
	add("directory_tree", `{"path":"missing"}`)
	for _, g := range []string{"*", "**", "*.js", "**/*.js", "**/deep/**", "sub/*", "*.lnk", "**/*.{js,go}", "*.?xt", "[ab]*", "[!ab]*.txt", "+(a|b|2).txt", "!(*.txt)", "!*.txt", "sub/**/er", ".*", "**/.*", "#x", "", "a.txt", "/a.txt", "sub/", "sub//z.js", "./a.txt", "nothing", "caf\u00e9*", "**/index.js", "{a,B}.txt", "{1..3}", "**/@(x|y).*", "far.lnk/*", "[[:upper:]]*", `\\*.txt`} {
		for _, x := range []string{``, `,"excludePatterns":["sub"]`, `,"excludePatterns":["**/deep/**","node_modules"]`} {
			add("search_files", fmt.Sprintf(`{"path":"$ROOT","pattern":"%s"%s}`, g, x))
		}
		add("search_files", fmt.Sprintf(`{"path":"dir.lnk","pattern":"%s"}`, g))
	}
	add("search_files", `{"path":"a.txt","pattern":"*"}`)
	add("search_files", `{"path":"missing","pattern":"*"}`)
	for _, p := range []string{"a.txt", "in.lnk", "empty.txt", "missing", "dangling.lnk", "big.dat", "../x"} {
		add("get_file_info", fmt.Sprintf(`{"path":"%s"}`, p))
	}
	all = append(all,
		step{"get_file_info", `{"path":"sub"}`, "what a directory weighs is the filesystem's secret"},
		step{"list_directory_with_sizes", `{"path":"$ROOT"}`, "a link that leads out has no size, a directory none either"},
		step{"list_directory_with_sizes", `{"path":"$ROOT","sortBy":"size"}`, "a link that leads out has no size, a directory none either"},
		step{"list_directory_with_sizes", `{"path":".","sortBy":"date"}`, "words"},
		step{"read_multiple_files", `{"paths":[]}`, "words"},
		step{"read_multiple_files", `{}`, "words"},
		step{"read_text_file", `{}`, "words"},
		step{"read_text_file", `{"path":3}`, "words"},
		step{"read_text_file", `{"path":null}`, "words"},
		step{"read_text_file", `{"PATH":"a.txt"}`, "words"},
		step{"read_text_file", `{"path":"a.txt","head":"1"}`, "words"},
		step{"read_text_file", `{"path":"a\u0000.txt"}`, "words"},
		step{"read_text_file", `{"path":"~/a.txt"}`, "home directories are not looked up"},
		step{"read_text_file", `{"path":"both/e\u0301"}`, ""},
		step{"search_files", `{"path":"."}`, "words"},
		step{"directory_tree", `{"path":".","excludePatterns":"x"}`, "words"},
	)
	add("list_allowed_directories", `{}`)
	add("list_allowed_directories", `{"more":1}`)
	return all
}

func changingSteps() []step {
	edit := func(path, more string, pairs ...string) step {
		var list []map[string]string
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, map[string]string{"oldText": pairs[i], "newText": pairs[i+1]})
		}
		data, err := json.Marshal(list)
		if err != nil {
			panic(err)
		}
		if list == nil {
			data = []byte("[]")
		}
		return step{"edit_file", fmt.Sprintf(`{"path":%q,"edits":%s%s}`, path, data, more), ""}
	}
	return []step{
		{"write_file", `{"path":"$ROOT/new.txt","content":"new\n"}`, ""},
		{"write_file", `{"path":"new.txt","content":""}`, ""},
		{"write_file", `{"path":"./sub/n2.txt","content":"héllo 😀\r\n"}`, ""},
		{"write_file", `{"path":"in.lnk","content":"through the link"}`, ""},
		{"write_file", `{"path":"far.lnk/made.txt","content":"x"}`, ""},
		{"write_file", `{"path":"cafe\u0301.txt","content":"the same file"}`, ""},
		{"write_file", `{"path":"missing/x.txt","content":"x"}`, ""},
		{"write_file", `{"path":"dangling.lnk","content":"x"}`, ""},
		{"write_file", `{"path":"a.txt/x","content":"x"}`, ""},
		{"write_file", `{"path":"../x","content":"x"}`, ""},
		{"write_file", `{"path":"sub","content":"x"}`, "the reference server names its temporary file"},
		{"write_file", `{"path":"out.lnk/x","content":"x"}`, "where a link leads is not shown"},
		{"write_file", `{"path":"x"}`, "words"},
		{"write_file", `{"path":"x","content":1}`, "words"},
		edit("edit.go", `,"dryRun":true`, "if true", "if false"),
		edit("edit.go", ``, "if true", "if false"),
		edit("$ROOT/edit.go", ``, "if false {\n  return\n}", "for {\n  if x {\n    break\n  }\n}"),
		edit("edit.go", ``, "  x := 1  \ny := 2", "x := 3\n  y := 4\n\tz := 5"),
		edit("edit.go", ``, "package edit", "package other", "func b()", "func c()", "func c()", "func d(\n)"),
		edit("edit.go", ``, "", "// first\n"),
		edit("edit.go", ``, "not there", "x"),
		edit("edit.go", ``, "package other", "package third", "not there", "x"),
		edit("edit.go", ``),
		edit("edit.go", `,"dryRun":true`, "func", "$& $1 func"),
		edit("crlf.txt", ``, "b\r\n", "B\r\nBB\r\n"),
		edit("crlf.txt", `,"dryRun":false`, "c\n", "c"),
		edit("nonl.txt", ``, "y", "y\n"),
		edit("nonl.txt", ``, "x\ny\n", ""),
		edit("empty.txt", ``, "", "no longer\nempty"),
		edit("ticks.md", ``, "code", "more"),
		edit("many.txt", ``, "line 3\n", "line three\n", "line 12\n", "", "line 30\n", "line 30\nline 30 and a half\n", "line 60\n", "end"),
		edit("many.txt", ``, "  line 1\n\tline 2", "  first\n    second\nthird"),
		edit("bom.txt", ``, "bom", "BOM"),
		edit("in.lnk", ``, "through", "by"),
		edit("utf8.txt", ``, "日本", "日本語"),
		edit("missing", ``, "a", "b"),
		edit("sub", ``, "a", "b"),
		edit("../x", ``, "a", "b"),
		{"edit_file", `{"path":"a.txt","edits":[{"oldText":"a"}]}`, "words"},
		{"edit_file", `{"path":"a.txt","edits":{}}`, "words"},
		{"edit_file", `{"path":"a.txt","edits":[],"dryRun":"yes"}`, "words"},
		{"create_directory", `{"path":"$ROOT/made"}`, ""},
		{"create_directory", `{"path":"made/a/b/c"}`, ""},
		{"create_directory", `{"path":"made/a"}`, ""},
		{"create_directory", `{"path":"far.lnk/made"}`, ""},
		{"create_directory", `{"path":"."}`, ""},
		{"create_directory", `{"path":"a.txt"}`, ""},
		{"create_directory", `{"path":"a.txt/x"}`, ""},
		{"create_directory", `{"path":"dangling.lnk/x"}`, ""},
		{"create_directory", `{"path":"../x"}`, ""},
		{"move_file", `{"source":"new.txt","destination":"$ROOT/made/moved.txt"}`, ""},
		{"move_file", `{"source":"made","destination":"sub/made"}`, ""},
		{"move_file", `{"source":"noext","destination":"a.txt"}`, ""},
		{"move_file", `{"source":"noext","destination":"noext"}`, ""},
		{"move_file", `{"source":"noext","destination":"in.lnk"}`, ""},
		{"move_file", `{"source":"noext","destination":"empty"}`, ""},
		{"move_file", `{"source":"missing","destination":"x"}`, ""},
		{"move_file", `{"source":"missing","destination":"a.txt"}`, ""},
		{"move_file", `{"source":"noext","destination":"missing/x"}`, ""},
		{"move_file", `{"source":"sub","destination":"sub/deep/sub"}`, ""},
		{"move_file", `{"source":"pic.lnk","destination":"moved.png"}`, ""},
		{"move_file", `{"source":"noext","destination":"../x"}`, ""},
		{"move_file", `{"source":"../x","destination":"x"}`, ""},
		{"move_file", `{"source":"noext"}`, "words"},
		{"move_file", `{"source":".","destination":"sub/root"}`, ""},
	}
}

var times = regexp.MustCompile(`(?m)^(created|modified|accessed): \w{3} \w{3} \d\d \d{4} \d\d:\d\d:\d\d GMT\+0000 \(Coordinated Universal Time\)$`)

// outside is the path that an access is denied to, which depends on the root.
var outside = regexp.MustCompile(`(path outside allowed directories: )\S+`)

// shown is a result as it is compared: with one name for the root, and no times.
func shown(t *testing.T, res *mcp.CallToolResult, root string) string {
	t.Helper()
	data, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var loose struct {
		Content           any
		StructuredContent any
		IsError           bool
	}
	if err := json.Unmarshal(data, &loose); err != nil {
		t.Fatal(err)
	}
	walkStrings(&loose.Content, root)
	walkStrings(&loose.StructuredContent, root)
	if data, err = json.MarshalIndent(loose, "", " "); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func walkStrings(v *any, root string) {
	switch x := (*v).(type) {
	case string:
		x = outside.ReplaceAllString(strings.ReplaceAll(x, root, "ROOT"), "${1}PATH")
		*v = times.ReplaceAllString(x, "$1: TIME")
	case []any:
		for i := range x {
			walkStrings(&x[i], root)
		}
	case map[string]any:
		for k := range x {
			e := x[k]
			walkStrings(&e, root)
			x[k] = e
		}
	}
}

// TestSameAsReference makes the same calls to server-filesystem, on a directory
// of its own with the same in it.
func TestSameAsReference(t *testing.T) {
	for ground, open := range grounds() {
		// A server's ground is not the era's business: each is tried once.
		for _, era := range torture.Or(map[string][]string{"folder": {nativetest.Legacy}, "tree": {nativetest.Modern}}[ground], nativetest.Eras()) {
			t.Run(ground+"/"+era, func(t *testing.T) {
				dir := realTemp(t)
				sample(t)(dir)
				cmd := testkit.NPM(t, "mcp-server-filesystem", dir)
				cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8")
				ref := nativetest.ConnectReference(t, cmd, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
				f := open(t, sample(t))
				cs := connect(t, f, era, nil)

				// A link may name the root by its path.
				links(t, dir, map[string]string{"abs.lnk": filepath.Join(dir, "sub")})
				if err := f.Symlink(f.Root()+"/sub", "abs.lnk"); err != nil {
					t.Fatal(err)
				}
				nativetest.SameTools(t, cs, ref)

				same := func(s step) {
					t.Helper()
					call := func(cs *mcp.ClientSession, root string) *mcp.CallToolResult {
						return nativetest.Call(t, cs, s.tool, json.RawMessage(strings.ReplaceAll(s.args, "$ROOT", root)))
					}
					want, got := call(ref, dir), call(cs, f.Root())
					if s.differs != "" {
						if want.IsError != got.IsError {
							t.Errorf("%s %s: isError %v, want %v: %s", s.tool, s.args, got.IsError, want.IsError, nativetest.Text(got)+nativetest.Text(want))
						}
						return
					}
					if g, w := shown(t, got, f.Root()), shown(t, want, dir); g != w {
						t.Errorf("%s %s:\n got %.1500s\nwant %.1500s", s.tool, s.args, g, w)
					}
				}
				for _, s := range readingSteps() {
					same(s)
				}
				for _, s := range changingSteps() {
					same(s)
				}
				// What the changes left is the same too.
				same(step{"directory_tree", `{"path":"."}`, ""})
				left := nativetest.Text(nativetest.Call(t, cs, "search_files", map[string]any{"path": ".", "pattern": "**"}))
				for p := range strings.SplitSeq(left, "\n") {
					rel, err := json.Marshal(strings.TrimPrefix(p, f.Root()+"/"))
					if err != nil {
						t.Fatal(err)
					}
					same(step{"read_text_file", fmt.Sprintf(`{"path":%s}`, rel), ""})
				}
			})
		}
	}
}
