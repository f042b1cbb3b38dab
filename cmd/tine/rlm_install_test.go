package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// installer runs tine rlm install and uninstall with a home and a project of its own.
type installer struct {
	t             *testing.T
	home, project string
	env           map[string]string
}

func newInstaller(t *testing.T) *installer {
	home := t.TempDir()
	return &installer{t: t, home: home, project: t.TempDir(), env: map[string]string{"HOME": home, "USERPROFILE": home}}
}

func (in *installer) cli(args ...string) *testCLI {
	tc := newTestCLI(in.t, append([]string{"rlm"}, args...)...)
	for k, v := range in.env {
		tc.env[k] = v
	}
	return tc
}

func (in *installer) run(args ...string) (stdout, stderr string, code int) {
	in.t.Helper()
	tc := in.cli(args...)
	code = tc.cli.run(in.t.Context())
	return tc.out.String(), tc.err.String(), code
}

// must runs a command that succeeds.
func (in *installer) must(args ...string) (stdout, stderr string) {
	in.t.Helper()
	stdout, stderr, code := in.run(args...)
	if code != 0 {
		in.t.Fatalf("%q: exit %d, %s%s", args, code, stdout, stderr)
	}
	return stdout, stderr
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// has fails unless a folder has these files and no others.
func has(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if !slices.Equal(found, names) {
		t.Errorf("%s has %q, want %q", dir, found, names)
	}
}

// Each client's file gets an entry that the client reads, and loses it again.
func TestRLMInstallEveryClient(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the files of programs with windows are elsewhere; TestClientFiles has them")
	}
	in := newInstaller(t)
	local, err := filepath.EvalSymlinks(in.project)
	if err != nil {
		t.Fatal(err)
	}
	stdio := `"type": "stdio", "command": "/opt/tine/bin/tine", `
	for _, tt := range []struct {
		args, file, want string
		mode             fs.FileMode
		next             string
	}{
		{"claude-code --project PROJECT", "HOME/.claude.json", `{"projects": {"` + local + `": {"mcpServers": {"rlm": {` + stdio + `"args": ["rlm"]}}}}}`, 0o600, "claude mcp get rlm, in " + local},
		{"claude-code --project PROJECT --scope project", "PROJECT/.mcp.json", `{"mcpServers": {"rlm": {` + stdio + `"args": ["rlm"]}}}`, 0o644, "asks once"},
		{"claude-code --scope user", "HOME/.claude.json", `{"projects": {"` + local + `": {"mcpServers": {}}}, "mcpServers": {"rlm": {` + stdio + `"args": ["rlm"]}}}`, 0o600, "claude mcp get rlm"},
		{"claude-code --scope user --project PROJECT --name py --file HOME/f/x.json", "HOME/f/x.json", `{"mcpServers": {"py": {` + stdio + `"args": ["rlm", "--project", "PROJECT"]}}}`, 0o600, "claude mcp get py"},
		{"claude-desktop --project PROJECT", "HOME/.config/Claude/claude_desktop_config.json", `{"mcpServers": {"rlm": {"command": "/opt/tine/bin/tine", "args": ["rlm", "--project", "PROJECT"]}}}`, 0o600, "quit Claude Desktop"},
		{"cursor", "HOME/.cursor/mcp.json", `{"mcpServers": {"rlm": {"command": "/opt/tine/bin/tine", "args": ["rlm", "--project", "${workspaceFolder}"]}}}`, 0o600, "Cursor lists it"},
		{"cursor --project PROJECT --scope project", "PROJECT/.cursor/mcp.json", `{"mcpServers": {"rlm": {"command": "/opt/tine/bin/tine", "args": ["rlm", "--project", "${workspaceFolder}"]}}}`, 0o644, "names /opt/tine/bin/tine, which others"},
		{"vscode", "HOME/.config/Code/User/mcp.json", `{"servers": {"rlm": {` + stdio + `"args": ["rlm", "--project", "${workspaceFolder}"]}}}`, 0o600, "was missing and was made"},
		{"vscode --project PROJECT --name b", "HOME/.config/Code/User/mcp.json", `{"servers": {"b": {` + stdio + `"args": ["rlm", "--project", "PROJECT"]}}}`, 0o600, "choose b"},
		{"vscode --project PROJECT --scope project", "PROJECT/.vscode/mcp.json", `{"servers": {"rlm": {` + stdio + `"args": ["rlm", "--project", "${workspaceFolder}"]}}}`, 0o644, "MCP: List Servers"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			in.t = t
			fill := strings.NewReplacer("HOME", in.home, "PROJECT", in.project)
			args, file := strings.Fields(fill.Replace(tt.args)), fill.Replace(tt.file)
			stdout, stderr := in.must(append([]string{"install"}, args...)...)
			var got, want any
			if err := json.Unmarshal([]byte(textOf(t, file)), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(fill.Replace(tt.want)), &want); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s has\n%v\nwant\n%v", file, got, want)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != tt.mode {
				t.Errorf("mode %v, want %v, %v", info.Mode(), tt.mode, err)
			}
			if !strings.Contains(stdout, "+++ "+file) || !strings.Contains(stdout, "added to "+file) || !strings.Contains(stderr, tt.next) {
				t.Errorf("it says\n%s%s", stdout, stderr)
			}
			if stdout, _ := in.must(append([]string{"uninstall"}, args...)...); !strings.Contains(stdout, "removed from "+file) {
				t.Errorf("it says\n%s", stdout)
			}
			if strings.Contains(textOf(t, file), "/opt/tine") {
				t.Errorf("it still has\n%s", textOf(t, file))
			}
			if stdout, _ := in.must(append([]string{"uninstall"}, args...)...); !strings.Contains(stdout, "nothing to do, "+file+" does not have it") {
				t.Errorf("the second time it says\n%s", stdout)
			}
		})
	}
}

// Everything around the entry stays byte for byte: a second install changes nothing, and
// an uninstall leaves the file as it was.
func TestRLMInstallKeepsTheFile(t *testing.T) {
	for name, before := range map[string]string{
		"comments and trailing commas": "// mine\n{\n  \"inputs\": [],\n  \"servers\": {\n    // the other one\n    \"a\": {\"command\": \"a\",}, // in the line\n    /* the last */\n  },\n}",
		"a byte order mark":            "\xef\xbb\xbf{\n  \"servers\": {\n    \"a\": {}\n  }\n}\n",
		"carriage returns and tabs":    "{\r\n\t\"servers\": {\r\n\t\t\"a\": {\r\n\t\t\t\"args\": []\r\n\t\t}\r\n\t},\r\n\t\"z\": 1.50\r\n}\r\n",
		"one line":                     `{"servers":{"a":{"n":12345678901234567890}},"z":"\u00e4"}`,
		"a megabyte":                   "{\n  \"x\": \"" + strings.Repeat("y", 1<<20) + "\",\n  \"servers\": {}\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			in := newInstaller(t)
			file := write(t, filepath.Join(in.project, "mcp.json"), before)
			where := []string{"vscode", "--file", file}
			in.must(append([]string{"install"}, where...)...)
			after := textOf(t, file)
			if after == before || strings.Contains(before, "\r\n") && strings.Count(after, "\n") != strings.Count(after, "\r\n") {
				t.Fatalf("it is %q", after)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if stdout, stderr := in.must(append([]string{"install"}, where...)...); stdout != "rlm: nothing to do, "+file+" has it\n" || stderr != "" {
				t.Errorf("the second time it says\n%s%s", stdout, stderr)
			}
			if again, err := os.Stat(file); err != nil || !os.SameFile(info, again) {
				t.Errorf("the file was written again: %v", err)
			}
			in.must(append([]string{"uninstall"}, where...)...)
			if back := textOf(t, file); back != before {
				t.Errorf("it is\n%q\nand was\n%q", back, before)
			}
			has(t, in.project, "mcp.json")
		})
	}
}

// A file with nothing in it is one that has no servers yet.
func TestRLMInstallIntoAnEmptyFile(t *testing.T) {
	for _, before := range []string{"", " \n\t", "\xef\xbb\xbf\n"} {
		in := newInstaller(t)
		file := write(t, filepath.Join(in.project, ".mcp.json"), before)
		stdout, _ := in.must("install", "claude-code", "--scope", "project", "--project", in.project)
		mark := before[:len(before)-len(strings.TrimPrefix(before, "\xef\xbb\xbf"))]
		want := mark + "{\n  \"mcpServers\": {\n    \"rlm\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/tine/bin/tine\",\n      \"args\": [\"rlm\"]\n    }\n  }\n}\n"
		if got := textOf(t, file); got != want || !strings.Contains(stdout, "--- "+file) {
			t.Errorf("%q became\n%q\nwant\n%q\nand it says\n%s", before, got, want, stdout)
		}
	}
}

// Flags that tine rlm would refuse are not written.
func TestRLMInstallChecksFlags(t *testing.T) {
	in := newInstaller(t)
	for says, flags := range map[string][]string{
		"--model":       {"--model", "nothing"},
		"--max-cost":    {"--max-cost=-1"},
		"--memory":      {"--memory", "much"},
		"--allow-read":  {"--allow-read", "nowhere"},
		"exclude each":  {"--docker", "--no-docker"},
		"--price":       {"--price", "x"},
		"no such file":  {"--srt", "none.json"},
		"--names must":  {"--names", "dashes"},
		"--package mus": {"--package=-e"},
	} {
		if _, stderr, code := in.run(append([]string{"install", "claude-code", "--"}, flags...)...); code != exitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit status %d, %s", flags, code, stderr)
		}
	}
}

// With --print nothing is changed or made.
func TestRLMInstallPrint(t *testing.T) {
	in := newInstaller(t)
	stdout, stderr := in.must("install", "cursor", "--print", "--", "--allow-read", "a b", "--python=p")
	file := filepath.Join(in.home, ".cursor", "mcp.json")
	want := "diff /dev/null " + file + "\n--- /dev/null\n+++ " + file + `
@@ -0,0 +1,8 @@
+{
+  "mcpServers": {
+    "rlm": {
+      "command": "/opt/tine/bin/tine",
+      "args": ["rlm", "--project", "${workspaceFolder}", "--allow-read", "a b", "--python=p"]
+    }
+  }
+}
`
	if stdout != want || stderr != "" {
		t.Errorf("it says\n%s%s\nwant\n%s", stdout, stderr, want)
	}
	has(t, in.home)
	before := `{"mcpServers": {"rlm": {"url": "https://x.example"}}}`
	write(t, file, before)
	for _, args := range [][]string{{"install", "cursor", "--print"}, {"uninstall", "cursor", "--print"}, {"install", "cursor", "--print", "--json"}} {
		if stdout, _ := in.must(args...); !strings.Contains(stdout, `-{"mcpServers"`) && !strings.Contains(stdout, `-{\"mcpServers\"`) || textOf(t, file) != before {
			t.Errorf("%q says\n%s", args, stdout)
		}
	}
	has(t, filepath.Dir(file), "mcp.json")
}

func TestRLMInstallJSON(t *testing.T) {
	in := newInstaller(t)
	file := write(t, filepath.Join(in.project, "x.json"), "{\"mcpServers\": {\n  \"a\": 1\n}}")
	for _, tt := range []struct {
		args    []string
		changed bool
		entry   string
		diff    string
	}{
		{[]string{"install", "--print"}, false, `{"command":"/opt/tine/bin/tine","args":["rlm","--project","${workspaceFolder}"]}`, "+  \"rlm\": {\n"},
		{[]string{"install"}, true, `{"command":"/opt/tine/bin/tine","args":["rlm","--project","${workspaceFolder}"]}`, "+  \"rlm\": {\n"},
		{[]string{"install"}, false, `{"command":"/opt/tine/bin/tine","args":["rlm","--project","${workspaceFolder}"]}`, ""},
		{[]string{"uninstall"}, true, `{"command":"/opt/tine/bin/tine","args":["rlm","--project","${workspaceFolder}"]}`, "-  \"rlm\": {\n"},
		{[]string{"uninstall"}, false, `null`, ""},
	} {
		stdout, stderr := in.must(append(tt.args, "cursor", "--file", file, "--json")...)
		var got struct {
			File, Client, Name, Diff string
			Changed                  bool
			Entry                    json.RawMessage
		}
		dec := json.NewDecoder(strings.NewReader(stdout))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		var entry bytes.Buffer
		if err := json.Compact(&entry, got.Entry); err != nil {
			t.Fatal(err)
		}
		if got.File != file || got.Client != "cursor" || got.Name != "rlm" || got.Changed != tt.changed || entry.String() != tt.entry ||
			(got.Diff == "") != (tt.diff == "") || !strings.Contains(got.Diff, tt.diff) || stderr != "" {
			t.Errorf("%q says\n%s%s", tt.args, stdout, stderr)
		}
	}
}

// Another server of the name is shown and stays, unless it is to be replaced.
func TestRLMInstallReplaces(t *testing.T) {
	in := newInstaller(t)
	const before = "{\n  \"servers\": {\n    \"rlm\": {\"command\": \"other\", \"env\": {\"API_KEY\": \"sk-gone-0123456789abcdef\"}}, // mine\n    \"b\": {\"env\": {\"API_KEY\": \"sk-stays-0123456789abcdef\"}}\n  }\n}\n"
	file := write(t, filepath.Join(in.project, "x.json"), before)
	stdout, stderr, code := in.run("install", "vscode", "--file", file)
	if code != exitUsage || !strings.Contains(stdout, `-    "rlm": {"command": "other", "env": {"API_KEY": "****"}}, // mine`) ||
		!strings.Contains(stderr, `has another server "rlm"; replace it with --replace`) || textOf(t, file) != before {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if !strings.Contains(stdout, ` "b": {"env": {"API_KEY": "****"}}`) {
		t.Errorf("a secret that stays is shown:\n%s", stdout)
	}
	if stdout, stderr, code := in.run("install", "vscode", "--file", file, "--json"); code != exitUsage || !strings.Contains(stdout, `"kind": "invalid"`) || textOf(t, file) != before {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if stdout, _ := in.must("install", "vscode", "--file", file, "--replace", "--print"); strings.Contains(stdout, "sk-gone") {
		t.Errorf("a secret that stays is shown:\n%s", stdout)
	}
	// What goes can be put back.
	if stdout, _ := in.must("install", "vscode", "--file", file, "--replace"); !strings.Contains(stdout, "sk-gone") {
		t.Errorf("a secret that goes is not shown:\n%s", stdout)
	}
	want := "{\n  \"servers\": {\n    \"rlm\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/tine/bin/tine\",\n      \"args\": [\"rlm\", \"--project\", \"${workspaceFolder}\"]\n    }, // mine\n    \"b\": {\"env\": {\"API_KEY\": \"sk-stays-0123456789abcdef\"}}\n  }\n}\n"
	if got := textOf(t, file); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	// An entry that means the same is the same.
	write(t, file, `{"servers": {"rlm": {"args": ["rlm", "--project", "${workspaceFolder}"], "env": {}, "command": "/opt/tine/bin/tine"}}}`)
	if stdout, _ := in.must("install", "vscode", "--file", file); !strings.Contains(stdout, "nothing to do") {
		t.Errorf("it says %s", stdout)
	}
}

// What can't be changed is named and left alone.
func TestRLMInstallRefuses(t *testing.T) {
	in := newInstaller(t)
	file := filepath.Join(in.project, "x.json")
	for _, tt := range []struct {
		name, client, text, say string
	}{
		{"a broken file", "cursor", "{\n  \"mcpServers\": {\n    \"a\" 1\n  }\n}", file + ":3:9: not valid JSON"},
		{"one that was cut off", "cursor", "{\n  \"mcpServers\": {", file + ":2:18: the JSON ends too early"},
		{"comments that the client does not read", "claude-desktop", "{\n  // x\n}", file + ":2:3: a comment, which"},
		{"a trailing comma that the client does not read", "claude-code", "{\n  \"a\": 1,\n}", file + ":2:9: a trailing comma"},
		{"servers that are a list", "cursor", `{"mcpServers": []}`, file + `:1:16: "mcpServers" is a list where an object belongs`},
		{"servers that are text", "vscode", `{"servers": "x"}`, file + `:1:13: "servers" is a string where`},
		{"servers that stand twice", "cursor", `{"mcpServers": {}, "mcpServers": {}}`, `"mcpServers" stands here and in line 1`},
		{"a name that stands twice", "cursor", `{"mcpServers": {"rlm": 1, "rlm": 2}}`, `"rlm" stands here and in line 1`},
		{"a huge file", "cursor", "{}" + strings.Repeat(" ", 16<<20), "is larger than"},
		{"no text", "cursor", "\x00\xff", "not UTF-8"},
	} {
		write(t, file, tt.text)
		for _, command := range []string{"install", "uninstall"} {
			_, stderr, code := in.run(command, tt.client, "--file", file, "--scope", "user", "--project", in.project)
			if code == 0 || !strings.Contains(stderr, tt.say) {
				t.Errorf("%s, %s: exit %d, %s", tt.name, command, code, stderr)
			}
		}
		if textOf(t, file) != tt.text {
			t.Errorf("%s was changed", tt.name)
		}
	}
	has(t, in.project, "x.json")
	if _, stderr, code := in.run("install", "cursor", "--file", in.project); code != exitFailed || !strings.Contains(stderr, "is not a file") {
		t.Errorf("a folder: exit %d, %s", code, stderr)
	}
	if _, stderr, code := in.run("install", "cursor", "--file", filepath.Join(file, "y.json")); code != exitFailed || !strings.Contains(stderr, "not a directory") && runtime.GOOS != "windows" {
		t.Errorf("below a file: exit %d, %s", code, stderr)
	}
}

func TestRLMInstallUsage(t *testing.T) {
	in := newInstaller(t)
	for _, tt := range []struct{ args, say string }{
		{"install", "rlm install wants a client: claude-code, claude-desktop, cursor, vscode"},
		{"install -- cursor", "wants a client"},
		{"install cursr", `unknown client "cursr" (did you mean cursor?); it is one of claude-code`},
		{"install cursor x", "flags of tine rlm are written after --: tine rlm install cursor -- x"},
		{"install cursor --scope local", "--scope local: Cursor has user, project"},
		{"install claude-desktop", "name one: tine rlm install claude-desktop --project DIR"},
		{"install cursor --project /nowhere/at/all", "there is no such folder"},
		{"install cursor --name a/b", "letters, digits, hyphens and underscores"},
		{"install cursor -- --alow-read x", "unknown flag: --alow-read; see tine rlm --help"},
		{"install cursor -- x", `"x" after -- is no flag`},
		{"install cursor -- --project x", "write --project before --"},
		{"uninstall", "rlm uninstall wants a client"},
		{"uninstall cursor -- --python x", "rlm uninstall takes one argument"},
	} {
		stdout, stderr, code := in.run(strings.Fields(tt.args)...)
		if code != exitUsage || !strings.Contains(stderr, tt.say) {
			t.Errorf("%s: exit %d, %s%s", tt.args, code, stdout, stderr)
		}
	}
	has(t, in.home)
	delete(in.env, "HOME")
	delete(in.env, "USERPROFILE")
	if _, stderr, code := in.run("install", "cursor"); code != exitFailed || !strings.Contains(stderr, "does not say where the home folder is") {
		t.Errorf("without a home: exit %d, %s", code, stderr)
	}
}

func TestRLMInstallCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"install ":                    "claude-code\tClaude Code\nclaude-desktop\tClaude Desktop\ncursor\tCursor\nvscode\tVS Code\n:4\n",
		"uninstall v":                 "vscode\tVS Code\n:4\n",
		"install cursor --scope ":     "user\nproject\n:4\n",
		"install --scope p":           "project\n:4\n",
		"install cursor --project ":   ":16\n",
		"install cursor -- --python ": ":0\n",
	} {
		tc := newTestCLI(t, append([]string{"__complete", "rlm"}, strings.Split(args, " ")...)...)
		if code := tc.cli.run(t.Context()); code != 0 || tc.out.String() != want {
			t.Errorf("%q: exit %d, %q, want %q", args, code, tc.out.String(), want)
		}
	}
}

// On a terminal the diff has colours, and bytes of the file are not obeyed.
func TestRLMInstallTerminal(t *testing.T) {
	in := newInstaller(t)
	file := write(t, filepath.Join(in.project, "x.json"), "{\r\n  \"mcpServers\": {}, // \x1b[2J\r\n}\r\n")
	tc := in.cli("install", "cursor", "--file", file, "--print")
	tc.outTerminal, tc.outColor = true, true
	if code := tc.cli.run(t.Context()); code != 0 {
		t.Fatal(tc.err.String())
	}
	out := tc.out.String()
	if !strings.Contains(out, "\x1b[32m+    \"rlm\": {\x1b[0m\n") || strings.Contains(out, "\x1b[2J") || strings.Contains(out, "\r") {
		t.Errorf("it prints %q", out)
	}
}

func TestRLMInstallProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are those of Unix")
	}
	in := newInstaller(t)
	program := write(t, filepath.Join(in.home, "lib", "tine-1.2"), "")
	link, other := filepath.Join(in.home, "bin"), filepath.Join(in.home, "other")
	write(t, filepath.Join(in.home, "plain", "tine"), "not a program")
	for _, path := range []string{program, write(t, filepath.Join(other, "tine"), "")} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(link, "tine")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, client, want string }{
		{link, "claude-code", "tine"},
		{filepath.Join(in.home, "plain") + ":" + link, "claude-code --scope user", "tine"},
		{link, "vscode --scope project", "tine"},
		{link, "vscode", filepath.Join(link, "tine")},
		{link, "claude-desktop --project .", filepath.Join(link, "tine")},
		{other + ":" + link, "claude-code", program},
		{"bin:" + link, "claude-code", "tine"},
		{"", "claude-code", program},
	} {
		in.env["PATH"] = tt.path
		tc := in.cli(append(strings.Fields("install "+tt.client), "--print", "--json")...)
		tc.executable = func() (string, error) { return program, nil }
		code := tc.cli.run(t.Context())
		var got struct{ Entry clientEntry }
		if err := json.Unmarshal(tc.out.Bytes(), &got); code != 0 || err != nil || got.Entry.Command != tt.want {
			t.Errorf("%s, PATH %s: %q, want %q, %s", tt.client, tt.path, got.Entry.Command, tt.want, tc.err.String())
		}
	}
	tc := in.cli("install", "cursor")
	tc.executable = func() (string, error) { return "/tmp/go-build12/b001/exe/tine", nil }
	if code := tc.cli.run(t.Context()); code != 0 || !strings.Contains(tc.err.String(), "will be gone") {
		t.Errorf("with go run: exit %d, %s", code, tc.err.String())
	}
}

// A link stays one, and its target keeps mode and owner.
func TestRLMInstallThroughALink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are those of Unix")
	}
	in := newInstaller(t)
	target := write(t, filepath.Join(in.project, "dotfiles", "mcp.json"), "{}")
	if err := os.Chmod(target, 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(target, 4711, 4712); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(target)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(in.home, ".cursor", "mcp.json")
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../"+filepath.Base(in.home)+"/up", link); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := in.run("install", "cursor"); code != exitFailed || !strings.Contains(stderr, "a link that leads nowhere") {
		t.Errorf("a link without a target: exit %d, %s", code, stderr)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	in.must("install", "cursor")
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if !strings.Contains(textOf(t, target), `"rlm"`) {
		t.Error("the target was not changed")
	}
	after, err := os.Stat(target)
	if err != nil || after.Mode() != before.Mode() || owner(after) != owner(before) {
		t.Errorf("it was %v of %s and is %v of %s, %v", before.Mode(), owner(before), after.Mode(), owner(after), err)
	}
	if err := os.Chmod(target, 0o444); err != nil {
		t.Fatal(err)
	}
	text := textOf(t, target)
	if _, stderr, code := in.run("uninstall", "cursor"); code != exitFailed || !strings.Contains(stderr, "is read-only") || textOf(t, target) != text {
		t.Errorf("a read-only file: exit %d, %s", code, stderr)
	}
}

// Of many that change a file at once none loses what another has written.
func TestRLMInstallAtOnce(t *testing.T) {
	for _, client := range []string{"cursor", "claude-code --scope user"} {
		in := newInstaller(t)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				tc := in.cli(append(strings.Fields("install "+client), "--name", fmt.Sprintf("s%d", i))...)
				if code := tc.cli.run(t.Context()); code != 0 {
					t.Error(tc.err.String())
				}
			})
		}
		wg.Wait()
		dir := map[bool]string{true: filepath.Join(in.home, ".cursor"), false: in.home}[client == "cursor"]
		name := map[bool]string{true: "mcp.json", false: ".claude.json"}[client == "cursor"]
		has(t, dir, name)
		var got struct{ McpServers map[string]clientEntry }
		if err := json.Unmarshal([]byte(textOf(t, filepath.Join(dir, name))), &got); err != nil || len(got.McpServers) != 8 {
			t.Errorf("%s: %v, %v", client, got, err)
		}
	}
}

// While Claude Code writes its file nobody else does. What it left behind when it was
// killed does not matter.
func TestRLMInstallWaitsForClaudeCode(t *testing.T) {
	in := newInstaller(t)
	file := write(t, filepath.Join(in.home, ".claude.json"), "{}")
	lock := file + ".lock"
	if err := os.Mkdir(lock, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tc := in.cli("install", "claude-code", "--scope", "user")
	if code := tc.cli.run(ctx); code != exitFailed || textOf(t, file) != "{}" {
		t.Errorf("exit %d, %s, %s", code, tc.err.String(), textOf(t, file))
	}
	has(t, in.home, ".claude.json", ".claude.json.lock")
	old := time.Now().Add(-2 * claudeStale)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	in.must("install", "claude-code", "--scope", "user")
	has(t, in.home, ".claude.json")
	if !strings.Contains(textOf(t, file), `"rlm"`) {
		t.Errorf("it is %s", textOf(t, file))
	}
	// A file of the project is not Claude Code's own.
	if err := os.Mkdir(filepath.Join(in.project, ".mcp.json.lock"), 0o755); err != nil {
		t.Fatal(err)
	}
	in.must("install", "claude-code", "--scope", "project", "--project", in.project)
}
