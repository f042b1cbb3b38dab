package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindConfig(t *testing.T) {
	here, home, other := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(here)
	tc := newTestCLI(t)
	tc.env["XDG_CONFIG_HOME"] = home
	expect := func(flag, want string) {
		t.Helper()
		if got, err := tc.findConfig(flag); err != nil || got != want {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
	}
	write(t, filepath.Join(here, ".mcp.json"), "{}")
	expect("", "") // a foreign file must be named
	user := write(t, filepath.Join(home, "tine", "tine.yaml"), "")
	expect("", user)
	write(t, "tine.yml", "")
	expect("", "tine.yml")
	write(t, "tine.yaml", "")
	expect("", "tine.yaml")
	tc.env["TINE_CONFIG"] = write(t, filepath.Join(other, "env.yaml"), "")
	expect("", tc.env["TINE_CONFIG"])
	flag := write(t, filepath.Join(other, "flag.yaml"), "")
	expect(flag, flag)
	for _, bad := range []string{filepath.Join(other, "none.yaml"), other} {
		if got, err := tc.findConfig(bad); err == nil || !strings.Contains(err.Error(), "--config") {
			t.Errorf("%s: %q, %v", bad, got, err)
		}
	}
	tc.env["TINE_CONFIG"] = filepath.Join(other, "none.yaml")
	if got, err := tc.findConfig(""); err == nil || !strings.Contains(err.Error(), "TINE_CONFIG") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConfigCommands(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "good.yaml", "servers:\n  a:\n    command: echo\n    env: {API_KEY: hunter2}\n  b:\n    url: https://example.com/mcp\n    headers: {Authorization: 'Bearer ${NO_SUCH_VARIABLE}'}\n")
	write(t, "bad.yaml", "servers:\n  a:\n    comand: echo\n")
	write(t, "foreign.json", `{"mcpServers": {"a": {"command": "echo", "args": ["x"]}}}`)
	write(t, "mcp_agent_config.yaml", "backends:\n  - {backend_name_ref: fs, backend_type: filesystem, orchestration_mode: local_docker, mcp_transport: stdio, docker_image: img, docker_run_args: [-e, API_KEY=hunter2]}\n")
	write(t, "bad_agent_config.yaml", "backends:\n  - {backend_name_ref: my fs, backend_type: filesystem, orchestration_mode: local_docker}\n")
	if err := os.Mkdir("elsewhere", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "elsewhere/agent.yaml", "backends:\n  - {backend_name_ref: fs, backend_type: filesystem, orchestration_mode: local_docker, mcp_transport: stdio, docker_image: img, template_data_path_host: ./tpl, container_template_data_path: /data}\n")
	tests := []struct {
		args           string
		code           int
		stdout, stderr []string // parts; one that starts with ! must not be there
	}{
		{"config check", 0, []string{"ok: 7 servers (built-in defaults)\n"}, nil},
		{"config check good.yaml", 0, []string{"ok: 2 servers, 1 of them disabled: b (good.yaml)\n"}, []string{"warning: ", "NO_SUCH_VARIABLE"}},
		{"config check --config good.yaml", 0, []string{"ok: 2 servers, 1 of them disabled: b (good.yaml)\n"}, nil},
		{"config check good.yaml --json", 0, []string{`"servers": 2`, `"disabled": [`}, nil},
		{"config show bad.yaml --json", 1, []string{`"error": {`, `"kind": "invalid"`, "bad.yaml:3:5: "}, []string{"bad.yaml:3:5: "}},
		{"config check good.yaml --config good.yaml", 2, nil, []string{"exclude each other"}},
		{"config check bad.yaml", 1, nil, []string{"tine: bad.yaml:3:5: ", "comand", "!Usage"}},
		{"config check none.yaml", 1, nil, []string{"none.yaml"}},
		{"config check foreign.json", 0, []string{"ok: 1 server (foreign.json)\n"}, nil},
		{"config show good.yaml", 0, []string{"command: echo", "!hunter2"}, nil},
		{"config show bad.yaml", 1, []string{"!servers"}, []string{"bad.yaml:3:5"}},
		{"config import foreign.json", 0, []string{"servers:", "command: echo"}, nil},
		{"config import foreign.json -o out.yaml", 0, []string{"!servers"}, []string{"wrote out.yaml"}},
		{"config import foreign.json -o out.yaml", 1, nil, []string{"out.yaml exists"}},
		{"config import foreign.json -o out.yaml --force", 0, nil, []string{"wrote out.yaml"}},
		{"config check out.yaml", 0, []string{"ok: 1 server (out.yaml)"}, nil},
		{"config import good.yaml", 1, nil, []string{"good.yaml"}},
		{"config check mcp_agent_config.yaml", 0, []string{"ok: 2 servers (mcp_agent_config.yaml)\n"}, nil},
		{"config show mcp_agent_config.yaml", 0, []string{"image: img", "plain: true", "state: [root]", "merged: true", "default_view: rollout", "!hunter2"}, nil},
		{"config import mcp_agent_config.yaml -o rk.yaml", 0, nil, []string{"wrote rk.yaml", "holds a secret in plain text", "!hunter2"}},
		{"config import elsewhere/agent.yaml", 0, []string{"template: ./tpl"}, []string{"paths of these servers start at the folder of elsewhere/agent.yaml: fs;"}},
		{"config import elsewhere/agent.yaml -o elsewhere/rk.yaml", 0, nil, []string{"wrote", "!start at the folder"}},
		{"config check rk.yaml", 0, []string{"ok: 2 servers (rk.yaml)"}, nil},
		{"config check bad_agent_config.yaml", 1, nil, []string{"bad_agent_config.yaml:2:24: ", "clients call it by this name"}},
		{"config import bad_agent_config.yaml", 1, nil, []string{"bad_agent_config.yaml:2:24: ", "clients call it by this name"}},
		{"config import", 2, nil, []string{"wants the file"}},
		{"config import none.json", 1, nil, []string{"none.json"}},
		{"config import -", 1, nil, []string{"standard input"}},
	}
	for _, tt := range tests {
		stdout, stderr, code := run(t, "", strings.Split(tt.args, " ")...)
		if code != tt.code {
			t.Errorf("tine %s: exit %d, want %d; %s", tt.args, code, tt.code, stderr)
		}
		has := func(where, text string, parts []string) {
			for _, p := range parts {
				p, not := strings.CutPrefix(p, "!")
				if strings.Contains(text, p) == not {
					t.Errorf("tine %s: %s is %q; wants %q: %v", tt.args, where, text, p, !not)
				}
			}
		}
		has("stdout", stdout, tt.stdout)
		has("stderr", stderr, tt.stderr)
	}
	if info, err := os.Stat("out.yaml"); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("out.yaml: %v, %v", info, err)
	}
}

func TestConfigForPrograms(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, filepath.Join(dir, "bad.yaml"), "servers:\n  a:\n    comand: echo\n")
	good := write(t, filepath.Join(dir, "good.yaml"), "servers:\n  a:\n    command: echo\n")

	stdout, _, code := run(t, "", "config", "check", "--json", bad)
	var r configReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitFailed || r.OK || len(r.Problems) == 0 || r.Problems[0].Line != 3 {
		t.Errorf("exit %d, %v, %s", code, err, stdout)
	}
	stdout, _, code = run(t, "", "config", "check", "--json", good)
	r = configReport{}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 || !r.OK || r.Servers != 1 || r.File != good {
		t.Errorf("exit %d, %v, %s", code, err, stdout)
	}
	stdout, _, code = run(t, "", "config", "show", "--json", good)
	var shown struct {
		Servers map[string]struct{ Command string }
	}
	if err := json.Unmarshal([]byte(stdout), &shown); err != nil || code != 0 || shown.Servers["a"].Command != "echo" {
		t.Errorf("exit %d, %v, %s", code, err, stdout)
	}
}

// TestBuiltinSettings has wrong settings of built-in servers, which are reported where they stand.
func TestBuiltinSettings(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tine.yaml")
	text := `servers:
  a: {builtin: time, settings: {local_timezone: Nowhere/X}}
  b: {builtin: files, settings: {max_reed: 3}}
  c: {builtin: memory, settings: {max_entities: many}}
  d: {builtin: sqlite, settings: {max_rows: 0}}
  e: {builtin: orchestrator, settings: {wait: -1}}
  f: {builtin: fetch, settings: {proxy: 3}}
  g: {builtin: memory, settings: {max_entities: "${NOT_SET_ANYWHERE}"}}
  h: {builtin: files, settings: {root: ROOT, readonly: true}}
`
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(text, "ROOT", root, 1))
	_, stderr, code := run(t, "", "config", "check", path)
	for i, want := range []string{"a.settings.local_timezone", "b.settings.max_reed", "c.settings.max_entities", "d.settings.max_rows", "e.settings.wait", "f.settings.proxy"} {
		if !strings.Contains(stderr, fmt.Sprintf("tine.yaml:%d:", i+2)) || !strings.Contains(stderr, "servers."+want) {
			t.Errorf("%s is not reported: %s", want, stderr)
		}
	}
	if code != exitFailed || strings.Contains(stderr, "servers.g") || strings.Contains(stderr, "servers.h") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
