//go:build linux || darwin

package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/family"
)

func TestStartErrorsNameTheMend(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o600)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o700)
	text := write("text", "hello there\n", 0o700)

	for name, test := range map[string]struct {
		spec driver.Spec
		want string
	}{
		"npx": {
			driver.Spec{Command: "npx"},
			`server "fs": command "npx" not found on PATH; install Node.js or set servers.fs.command to its full path`,
		},
		"uvx": {
			driver.Spec{Command: "uvx"},
			`server "fs": command "uvx" not found on PATH; install uv or set servers.fs.command to its full path`,
		},
		"python": {
			driver.Spec{Command: "python3"},
			`server "fs": command "python3" not found on PATH; install Python or set servers.fs.command to its full path`,
		},
		"another": {
			driver.Spec{Command: "frobnicate"},
			`server "fs": command "frobnicate" not found on PATH; install it or set servers.fs.command to its full path`,
		},
		"own PATH": {
			driver.Spec{Command: "docker", Env: map[string]string{"PATH": "relative:/none"}},
			`server "fs": command "docker" not found on the PATH of servers.fs.env; install Docker or set servers.fs.command to its full path`,
		},
		"none":           {driver.Spec{}, `server "fs": no command is given; set servers.fs.command`},
		"missing path":   {driver.Spec{Command: "/no/such/program"}, `server "fs": command "/no/such/program" does not exist; mend servers.fs.command`},
		"a folder":       {driver.Spec{Command: dir}, `server "fs": command "` + dir + `" is a folder; mend servers.fs.command`},
		"not executable": {driver.Spec{Command: plain}, `server "fs": command "` + plain + `" may not be run; make it executable (chmod +x) or mend servers.fs.command`},
		"no interpreter": {
			driver.Spec{Command: orphan},
			`server "fs": command "` + orphan + `" can't be run: the interpreter that its first line names is missing; install it or change servers.fs.command: no such file or directory`,
		},
		"no program": {
			driver.Spec{Command: text},
			`server "fs": command "` + text + `" is not a program for this machine; a script must begin with a line such as #!/bin/sh; mend it or servers.fs.command: exec format error`,
		},
		"missing cwd": {driver.Spec{Command: "sh", Cwd: "/no/such/folder"}, `server "fs": folder "/no/such/folder" does not exist; make it or change servers.fs.cwd`},
		"cwd a file":  {driver.Spec{Command: "sh", Cwd: plain}, `server "fs": "` + plain + `" is not a folder; change servers.fs.cwd`},
	} {
		t.Run(name, func(t *testing.T) {
			test.spec.Server = "fs"
			test.spec.Dir = filepath.Join(t.TempDir(), "instance")
			d := New(Options{Environ: []string{"PATH=" + filepath.Join(dir, "empty")}})
			inst, err := d.Start(t.Context(), test.spec)
			if !errors.Is(err, driver.ErrFinal) {
				t.Error("another try can help")
			}
			if err == nil {
				inst.Stop(t.Context())
				t.Fatal("it started")
			}
			if err.Error() != test.want {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
			if _, err := os.Lstat(test.spec.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	dir := family.RealPath(t.TempDir())
	first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{first, second, filepath.Join(first, "tool")} { // a folder of that name is passed over
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	tool := filepath.Join(second, "tool")
	if err := os.WriteFile(tool, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]driver.Spec{
		"on the server's PATH":     {Command: "tool", Env: map[string]string{"PATH": first + ":" + second}},
		"relative to its folder":   {Command: "./tool", Cwd: second},
		"relative, from one above": {Command: "b/tool", Cwd: dir},
		"whole path":               {Command: tool},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lookup(spec, family.NewEnvironment([]string{"PATH=/none"}, spec.Env, "", ""), nil)
			if err != nil || got != tool {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestLastWordsAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   string
		words  string
		max    int
	}{
		"silent":   {"exit 3", `server "fs" exited with status 3, and wrote nothing to its standard error`, "", 200},
		"words":    {"echo no such file >&2; exit 1", `server "fs" exited with status 1`, "no such file", 200},
		"signal":   {"kill -SEGV $$", `server "fs" was ended by signal 11 (segmentation fault)`, "", 200},
		"killed":   {"kill -KILL $$", `server "fs" was killed by signal 9 (killed), as the kernel does when memory runs out`, "", 200},
		"too many": {"yes a long line | head -c 1200000 >&2; echo the end >&2; exit 9", `server "fs" exited with status 9`, "a long line\nthe end", 2300},
	} {
		t.Run(name, func(t *testing.T) {
			spec := suite.Spec(t, "sh", "-c", test.script)
			inst := suite.StartSpec(t, New(Options{}), spec)
			drivertest.Ended(t, inst)
			err := inst.Err()
			words := driver.Words(err)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || !strings.HasSuffix(words, test.words) || len(err.Error())+len(words) > test.max {
				t.Errorf("got %v with the words %q", err, words)
			}
		})
	}
}

func TestFolderOfAnother(t *testing.T) {
	d := New(Options{})
	inst := suite.Start(t, d)
	spec := suite.Spec(t, suite.Program(t))
	spec.Dir = inst.Handle().Dir
	if _, err := d.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "belongs to another instance") {
		t.Errorf("got %v", err)
	}
	if got := drivertest.Dial(t, inst).Call(t, "echo", map[string]any{"text": "x"}); got != "x" {
		t.Errorf("the first one said %q", got)
	}
}
