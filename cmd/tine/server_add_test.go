package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestServersAdd(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "tine.yaml", "# mine\nservers:\n  time: {builtin: time} # clock\nlog: {level: warn}\n")
	write(t, ".mcp.json", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"}\n  }\n}\n")
	write(t, "bad.yaml", "servrs: {}\n")
	if err := os.MkdirAll("sub", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "sub/other.yaml", "servers: {}\n")
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"servers", "add", "x"}, 2, "", "does not know what \"x\" is"},
		{[]string{"servers", "add"}, 2, "", "wants a name"},
		{[]string{"servers", "add", "--", "x"}, 2, "", "wants a name"},
		{[]string{"servers", "add", "x", "--"}, 2, "", "no command behind --"},
		{[]string{"servers", "add", "x", "npx", "pkg"}, 2, "", "behind --"},
		{[]string{"servers", "add", "x", "npx"}, 2, "", "tine servers add x -- npx"},
		{[]string{"servers", "add", "x", "https://x.example/mcp", "--", "npx"}, 2, "", "one URL, or a command"},
		{[]string{"servers", "add", "x", "https://x.example/mcp", "--builtin", "memory"}, 2, "", "not beside one"},
		{[]string{"servers", "add", "x", "https://x.example/mcp", "--header", "hunter2"}, 2, "", "--header wants 'NAME: VALUE'"},
		{[]string{"servers", "add", "x", "--env", "A=1", "--env", "A=2", "--", "y"}, 2, "", "--env A is given twice"},
		{[]string{"servers", "add", "x", "https://x.example/mcp", "--sandbox"}, 2, "", "nothing was changed"},
		{[]string{"servers", "add", "time", "--builtin", "time"}, 2, "", "tine servers remove time"},
		{[]string{"servers", "add", "x", "--builtin", "tiem"}, 2, "", `did you mean "time"?`},
		{[]string{"servers", "add", "x", "--config", "bad.yaml", "--builtin", "time"}, 2, "", `did you mean "servers"?`},
		{[]string{"servers", "remove", "x", "--config", "none.yaml"}, 1, "", "there is no file "},
		{[]string{"servers", "add", "x", "--config", "none/none.yaml", "--builtin", "time"}, 1, "", "no such file or directory"},
		{[]string{"servers", "add", "x", "--config", "unmade.yaml", "--builtin", "tiem"}, 2, "", `did you mean "time"?`},
		{[]string{"servers", "add", "x", "--config", "new.yaml", "--builtin", "time"}, 0, "new.yaml, a new file", "new.yaml starts one"},
		{[]string{"servers", "add", "y", "--config", "new.json", "--sandbox", "--", "y"}, 2, "", "name a .yaml file"},
		{[]string{"servers", "add", "y", "--config", "new.json", "--", "y"}, 0, "new.json, a new file", ""},
		{[]string{"servers", "add", "z", "--config", "new.json", "https://z.example/mcp", "--json"}, 0, `"made": false`, ""},
		{[]string{"servers", "add", "x", "--config", "sub", "--builtin", "time"}, 1, "", "is not a file"},
		{[]string{"servers", "remove", "tim"}, 2, "", `did you mean "time"?`},
		{[]string{"servers", "remove", "tim", "--json"}, 2, `"error"`, ""},
		{[]string{"servers", "remove"}, 2, "", "wants the name of a server"},

		{[]string{"servers", "add", "fs", "--env", "A=b=c", "--", "npx", "-y", "pkg", "--json", "${HOME:-x}"}, 0, "fs: added to", "no gateway of this state folder uses it; tine serve --config"},
		{[]string{"servers", "add", "web", "https://x.example/mcp", "--header", "Authorization: Bearer ${NONE}"}, 0, "web: added to", "variable NONE is not set"},
		{[]string{"servers", "add", "near", "--", "./prog"}, 0, "near: added to", ""},
		{[]string{"servers", "add", "far", "--config", "sub/other.yaml", "--", "./prog"}, 0, "far: added to", ""},
		{[]string{"servers", "add", "b", "--config", ".mcp.json", "--json", "--", "b"}, 0, `"reloads": false`, ""},
		{[]string{"servers", "rm", "time"}, 0, "time: removed from", ""},
	} {
		tc := newTestCLI(t, tt.args...)
		code := tc.cli.run(t.Context())
		if code != tt.code || !strings.Contains(tc.out.String(), tt.stdout) || !strings.Contains(tc.err.String(), tt.stderr) || strings.Contains(tc.err.String(), "hunter2") {
			t.Errorf("%q: exit %d, %q, %q", tt.args, code, tc.out.String(), tc.err.String())
		}
	}
	for path, want := range map[string]string{
		"tine.yaml": "# mine\nservers:\n  fs:\n    command: npx\n    args: [-y, pkg, --json, \"${HOME:-x}\"]\n    env:\n      A: b=c\n" +
			"  web:\n    url: https://x.example/mcp\n    headers:\n      Authorization: \"Bearer ${NONE}\"\n  near:\n    command: ./prog\nlog: {level: warn}\n",
		"new.yaml":       "servers:\n  x:\n    builtin: time\n",
		"new.json":       "{\n  \"mcpServers\": {\n    \"y\": {\n      \"command\": \"y\"\n    },\n    \"z\": {\n      \"type\": \"http\",\n      \"url\": \"https://z.example/mcp\"\n    }\n  }\n}\n",
		"sub/other.yaml": "servers:\n  far:\n    command: " + filepath.Join(dir, "prog") + "\n",
		".mcp.json":      "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"},\n    \"b\": {\n      \"command\": \"b\"\n    }\n  }\n}\n",
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", path, err, got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*tine-new")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if _, err := os.Stat("unmade.yaml"); err == nil {
		t.Error("a file was made for a server that is wrong")
	}
	if info, err := os.Stat("new.json"); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// The file keeps what it is: its mode, and being a file and no link.
func TestServersAddKeepsTheFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are those of Unix")
	}
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "tine.yaml"), "servers: {}\n")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	add := func(config, name string) (string, int) {
		_, stderr, code := run(t, "", "servers", "add", name, "--builtin", "time", "--config", config)
		return stderr, code
	}
	if stderr, code := add(link, "a"); code != exitFailed || !strings.Contains(stderr, "--config "+path) {
		t.Errorf("a link: exit %d, %q", code, stderr)
	}
	if stderr, code := add(path, "a"); code != 0 {
		t.Fatal(stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// One that was killed in the middle leaves a file, which is named.
	beside := write(t, filepath.Join(dir, ".tine.yaml.tine-new"), "half")
	if stderr, code := add(path, "b"); code != exitFailed || !strings.Contains(stderr, "remove "+beside) {
		t.Errorf("a lock: exit %d, %q", code, stderr)
	}
	if text, _ := os.ReadFile(path); string(text) != "servers:\n  a:\n    builtin: time\n" {
		t.Errorf("now it is %q", text)
	}
}

// Of many that change a file at once none loses what another has written, and an
// editor that comes between does not either.
func TestServersAddAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.yaml") // the first one makes it
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			tc := newTestCLI(t, "servers", "add", fmt.Sprintf("s%d", i), "--builtin", "time", "--config", path)
			if code := tc.cli.run(t.Context()); code != 0 {
				t.Error(tc.err.String())
			}
		})
	}
	wg.Wait()
	cfg, err := config.Load(path, config.Options{})
	if err != nil || len(cfg.Servers) != 8 {
		t.Fatalf("%v, %+v", err, cfg)
	}
	tc := newTestCLI(t)
	_, err = tc.replaceFile(t.Context(), path, nil, 0o600, func([]byte) ([]byte, error) {
		write(t, path, "servers: {} # by an editor\n")
		return []byte("servers: {}\n"), nil
	})
	if text, _ := os.ReadFile(path); err == nil || !strings.Contains(err.Error(), "meanwhile") || !strings.Contains(string(text), "by an editor") {
		t.Errorf("%v, %q", err, text)
	}
}

// Where there is no config, the file is made that a gateway finds here, and it has the
// servers that the gateway had without it.
func TestServersAddMakesTheFirstConfig(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if _, stderr, code := run(t, "", "servers", "remove", "time"); code != exitFailed || !strings.Contains(stderr, "there is no file "+filepath.Join(dir, "tine.yaml")) {
		t.Errorf("without a file: exit %d, %q", code, stderr)
	}
	stdout, stderr, code := run(t, "", "servers", "add", "x", "https://x.example/mcp")
	if path := filepath.Join(dir, "tine.yaml"); code != 0 || !strings.Contains(stdout, "x: added to "+path+", a new file") || !strings.Contains(stderr, "tine serve --config "+path) {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	tc := newTestCLI(t)
	found, err := tc.findConfig("")
	if err != nil || found != "tine.yaml" {
		t.Fatalf("a gateway finds %q, %v", found, err)
	}
	now, err := config.Load(found, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := config.Default()
	if n := len(before.Servers); len(now.Servers) != n+1 || now.Servers[n].ID != "x" || !reflect.DeepEqual(now.Servers[:n], before.Servers) || now.Workspace.On != before.Workspace.On {
		t.Errorf("it has\n%+v\nand without a file\n%+v", now.Servers, before.Servers)
	}
}

// Without --config it is the file of the gateway that runs.
func TestServersAddToTheRunningGateway(t *testing.T) {
	t.Chdir(t.TempDir())
	path := write(t, filepath.Join(t.TempDir(), "its.yaml"), "servers: {}\n")
	f := world()
	f.status = func() (any, *api.Error) { return api.Status{Version: "1.2.3"}, nil }
	url := f.start(t)
	add := func(file gatewayFile, args ...string) (string, string, int) {
		tc := newTestCLI(t, append([]string{"servers", "add"}, args...)...)
		if err := writeGatewayFile(tc.env["TINE_STATE"], file); err != nil {
			t.Fatal(err)
		}
		code := tc.cli.run(t.Context())
		return tc.out.String(), tc.err.String(), code
	}
	if stdout, stderr, code := add(gatewayFile{URL: url, Config: path}, "a", "--builtin", "time"); code != 0 || !strings.Contains(stdout, path) || !strings.Contains(stderr, "has an earlier version, and loads it by itself") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	var refusal *api.Error
	f.reload = func() *api.Error { return refusal }
	if stdout, stderr, code := add(gatewayFile{URL: url, Config: path}, "b", "--builtin", "time"); code != 0 || !strings.Contains(stdout, path) || !strings.Contains(stderr, "has loaded it") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	refusal = &api.Error{Kind: api.KindInvalid, Status: http.StatusBadRequest, Message: "the old one stays"}
	if stdout, stderr, code := add(gatewayFile{URL: url, Config: path}, "c", "--builtin", "time"); code != exitUsage || stdout != "" || !strings.Contains(stderr, "c: added to "+path+"; the running gateway, process 0, has not loaded it: the old one stays") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if _, stderr, code := add(gatewayFile{URL: url, Config: path}, "c", "--builtin", "time", "--config", "other.yaml"); code != 0 || !strings.Contains(stderr, "no gateway of this state folder uses it") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	// One with the built-in defaults reads no config.
	if stdout, stderr, code := add(gatewayFile{URL: url}, "b", "--builtin", "time"); code != 0 || !strings.Contains(stdout, "tine.yaml, a new file") || !strings.Contains(stderr, "has the built-in defaults and reads no config") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	// One that is gone has no say.
	if stdout, stderr, code := add(gatewayFile{URL: "http://127.0.0.1:1", Config: path}, "c", "--builtin", "time"); code != 0 || strings.Contains(stdout, path) || !strings.Contains(stderr, "no gateway of this state folder uses it") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if _, stderr, code := add(gatewayFile{URL: url, Config: path}, "d", "--builtin", "time", "--url", "http://elsewhere.example"); code != exitUsage || !strings.Contains(stderr, "--config") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// A real gateway has the server, or has it no longer, when the command is done.
func TestServersAddIsThereAtOnce(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "tine.yaml"), "listen: 127.0.0.1:0\nservers: {}\n")
	serve := newTestCLI(t, "serve", "--config", path)
	state := serve.env["TINE_STATE"]
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- serve.cli.run(ctx) }()
	t.Cleanup(func() {
		stop()
		testkit.Within(t, "the end of the gateway", ended)
	})
	testkit.Eventually(t, "a gateway", func() bool {
		tc := newTestCLI(t, "status")
		tc.env["TINE_STATE"] = state
		return tc.cli.run(t.Context()) == 0 && strings.Contains(tc.out.String(), path) // another may be at the default address
	})
	command := func(args ...string) (string, int) {
		tc := newTestCLI(t, args...)
		tc.env["TINE_STATE"] = state
		code := tc.cli.run(t.Context())
		return tc.out.String() + tc.err.String(), code
	}
	for i := range 5 {
		name := fmt.Sprintf("clock%d", i)
		if said, code := command("servers", "add", name, "--builtin", "time"); code != 0 || !strings.Contains(said, "has loaded it") {
			t.Fatalf("exit %d, %s", code, said)
		}
		if said, code := command("call", name+"__get_current_time", "timezone=UTC"); code != 0 {
			t.Errorf("a call at once: exit %d, %s", code, said)
		}
	}
	if said, code := command("servers", "remove", "clock0"); code != 0 || !strings.Contains(said, "has loaded it") {
		t.Errorf("exit %d, %s", code, said)
	}
	if said, code := command("servers", "show", "clock0"); code == 0 {
		t.Errorf("what was removed is there: %s", said)
	}
}
