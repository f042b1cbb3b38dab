package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAgentCommands(t *testing.T) {
	var text string
	t.Run("run", func(t *testing.T) { text = runAgentCommands(t) })
	golden(t, "agent", text)
	for _, secret := range []string{"hunter2", "abcdefgh12345"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
}

// runAgentCommands returns what each command prints, in a folder of its own.
func runAgentCommands(t *testing.T) string {
	t.Chdir(t.TempDir())
	write(t, "tine.yaml", "servers: {files: {builtin: files}}\nagents: {env: [GIT_TOKEN], executors: {mine: {type: procedural, command: ./mine}}}\n")
	write(t, "agents/reader.md", "---\nname: reader\ndescription: Reads code\ntools: Read, Grep\nmodel: sonnet\n---\n\nYou read.\nBe brief.\n")
	write(t, "agents/count/agent.json", `{"description":"Counts","executor":"mine","capabilities":["git"],"env":{"API_KEY":"hunter2-hunter2","N":"1"},"hooks":{"on_run_start":{"command":"./check","args":["${params.prompt}"]}},"limits":{"runs":3}}`)
	if err := os.WriteFile("agents/count/check", []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "agents/broken/agent.yaml", "descripton: Broken\nsystem_prompt: ${HOME}\n")
	write(t, "agents/lost/agent.yaml", "mcp_servers: {fils: {}}\nexecutor: mien\nsystem_prompt: ${params.promt}\n")
	write(t, "capabilities/git/capability.yaml", "system_prompt: Use git.\nmcp_servers:\n  git: {command: uvx, args: [mcp-server-git, \"${workspace}\"], env: {TOKEN: \"${env.GIT_TOKEN}\"}}\n  web: {url: https://example.org/mcp, headers: {Authorization: Bearer abcdefgh12345}}\n")
	write(t, "elsewhere/x.md", "---\ndescription: Elsewhere\n---\nHi ${params.prompt}\n")
	var b strings.Builder
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"agent", "agent list", "agent list --json", "agent ls", "agent check", "agent check --json", "agent check count", "agent check count --json", "agent check lost",
		"agent check elsewhere/x.md", "agent check agents/reader.md --json", "agent check agents/count", "agent check elsewhere", "agent check nowhere.md",
		"agent check countt", "agent check countt --json", "agent show reader", "agent show count", "agent show count --json", "agent show broken", "agent show", "agent show raeder --json",
		"agent new worker", "agent new worker", "agent new reader", "agent new broken", "agent new a/b", "agent new", "agent new other --json", "agent new third --dir more",
		"agent check worker", "agent check more/third/agent.yaml", "agent lst", "agent check a b", "agent list --config nowhere.yaml",
		"__complete agent show re", "__complete agent check c", "config check",
	} {
		stdout, stderr, code := run(t, "http://127.0.0.1:1", strings.Split(line, " ")...)
		fmt.Fprintf(&b, "$ tine %s\n%s", line, stdout)
		if stderr != "" {
			fmt.Fprintf(&b, "-- stderr\n%s", stderr)
		}
		fmt.Fprintf(&b, "-- exit %d\n\n", code)
	}
	return strings.ReplaceAll(b.String(), here, "DIR")
}

// TestAgentCheckFinds has blueprints that can't be started, with the place of each mistake.
func TestAgentCheckFinds(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "tine.yaml", "servers: {}\nagents: {executors: {mine: {type: procedural, command: sh}}}\n")
	for name, text := range map[string]string{
		"nothing":  "executor: command\n",
		"program":  "executor: procedural\nexecutor_config: {nope: 1}\n",
		"wrong":    "executor_config:\n  max_turns: abc\n",
		"unknown":  "executor_config:\n  max_turns: 3\n  foo: 1\n",
		"twice":    "executor: mine\nexecutor_config: {command: sh}\n",
		"codex":    "executor: codex\nexecutor_config: {shell: root}\n",
		"schema":   "executor: command\nexecutor_config: {command: sh, schema: '9'}\n",
		"hooked":   "hooks: {on_run_start: {command: ./nothere}}\n",
		"pathless": "hooks: {on_run_start: {command: tine-no-such-hook}}\n",
		"empty":    "",
		"good":     "executor: command\nexecutor_config: {command: sh, args: [-c, 'true'], own: 1}\n",
		"later":    "executor: procedural\nexecutor_config: {command: '${params.prompt}'}\n",
		"finished": "hooks: {on_run_finish: {command: tine-no-such-hook}}\n",
	} {
		write(t, "agents/"+name+"/agent.yaml", text)
	}
	for name, want := range map[string]string{
		"nothing":  ":1:1: executor_config.command: the program is missing",
		"program":  ":2:19: executor_config.nope: unknown key; there are command and args",
		"wrong":    ":2:3: executor_config.max_turns: must be a whole number",
		"unknown":  ":3:3: executor_config.foo: unknown key; there are model",
		"twice":    ":2:19: executor_config.command: the config of the gateway has the program",
		"codex":    ":2:19: executor_config.shell: ",
		"schema":   ":2:32: executor_config.schema: must be one of",
		"hooked":   "hooks.on_run_start[0].command: the program " + abs(t, "agents/hooked/nothere") + " can't be run: ",
		"pathless": `:1:24: hooks.on_run_start[0].command: the program "tine-no-such-hook" is not on PATH; install it`,
		"empty":    ":1:1: is empty; write keys such as description",
		"good":     "",
		"later":    "",
		"finished": "",
	} {
		out, text, code := run(t, "http://127.0.0.1:1", "agent", "check", name)
		if want == "" {
			if code != 0 || out != "ok: 1 agent\n" || (name == "finished") != strings.HasPrefix(text, "warning: ") {
				t.Errorf("%s: exit %d, %s%s", name, code, out, text)
			}
			continue
		}
		if code != 1 || !strings.HasPrefix(text, filepath.FromSlash("agents/"+name+"/agent.yaml:")) || !strings.Contains(text, want) || !strings.HasSuffix(text, "tine: 1 mistake\n") {
			t.Errorf("%s: exit %d, %s, want %s", name, code, text, want)
		}
	}
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAgentPut sends blueprints to a gateway that has one file and one blueprint of its own.
func TestAgentPut(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a.json", "{\n  \"description\": \"<x>\"\n}\n")
	write(t, "a.yaml", "# as in a file\ndescription: X\nlimits: {runs: 3}\n")
	write(t, "wrong.yaml", "description: X\nlimits: {runs: 0}\n")
	write(t, "agents/mine.yaml", "description: Mine\n")
	sent := map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		switch {
		case name == "blueprint":
			fmt.Fprint(w, `{"description": "Kept", "env": {"API_KEY": "key-of-the-agent"}}`)
		case r.Method == "GET":
			fmt.Fprint(w, `{"agents":[{"name":"alone","description":"Kept","executor":"x"},{"name":"also","executor":"x","problems":["p"]},{"name":"afile","source":"f","executor":"x"}]}`)
		case r.Method == "PUT" && name == "lacking":
			fmt.Fprint(w, `{"name":"lacking","executor":"x","problems":["agent lacking:1:1: there is no server"]}`)
		case name == "afile":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"kind":"invalid","message":"the agent is a file"}`)
		case r.Method == "PUT":
			sent[name] = string(body)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"name":%q,"executor":"x"}`, name)
		case r.Method == "DELETE":
			sent[name] = "deleted"
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer s.Close()
	for _, tt := range []struct {
		args, stdin, out, err string
		code                  int
	}{
		{"put a a.json", "", "a: kept\n", "start it with: tine run a\n", 0},
		{"put b a.yaml --json", "", `"name": "b"`, "", 0},
		{"put c -", `{"color":"red"}`, "c: kept\n", "", 0},
		{"put d", `color: red`, "d: kept\n", "", 0},
		{"put lacking a.json", "", "lacking: kept\n", "warning: agent lacking:1:1: there is no server\n", 0},
		{"put e wrong.yaml", "", "", "agent e:2:16: limits.runs: ", 1},
		{"put e nowhere.json", "", "", "read the blueprint: open nowhere.json", 1},
		{"put afile a.json", "", "", "the agent is a file", 2},
		{"put", "", "", "agent put wants a name", 2},
		{"put a b c", "", "", "agent put wants a name", 2},
		{"delete", "", "", "agent delete wants the names", 2},
		{"delete x y", "", "x: deleted\ny: deleted\n", "", 0},
		{"delete x afile", "", "x: deleted\n", "the agent is a file", 2},
		{"delete x --json", "", `"deleted": [`, "", 0},
		{"list", "", "alone  gateway  x                       Kept\nalso   gateway  x            1 mistake\nmine   file     claude-code             Mine\n", "", 0},
		{"show alone", "", "# kept by the gateway\nname: alone\n", "", 0},
	} {
		tc := newTestCLI(t, append([]string{"agent"}, strings.Fields(tt.args)...)...)
		tc.env["TINE_URL"] = s.URL
		tc.cli.stdin = strings.NewReader(tt.stdin)
		code := tc.cli.run(t.Context())
		if out, err := tc.out.String(), tc.err.String(); code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(err, tt.err) || tt.out == "" && out != "" || strings.Contains(out, "key-of-the-agent") {
			t.Errorf("%s: exit %d, %q, %q", tt.args, code, out, err)
		}
	}
	want := map[string]string{"a": "{\n  \"description\": \"<x>\"\n}\n", "b": `{"description": "X", "limits": {"runs": 3}}` + "\n", "c": `{"color":"red"}`, "d": `{"color": "red"}` + "\n", "x": "deleted", "y": "deleted"}
	if !maps.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	for args, want := range map[string]string{
		"agent delete a": "alone\tKept\nalso\n:4\n", "agent delete alone a": "also\n:4\n", "agent put a": "alone\tKept\nalso\n:4\n", "agent put a a": ":0\n", "agent put a b ": ":4\n",
	} {
		out, _, _ := run(t, s.URL, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if out != want {
			t.Errorf("%s is completed by %q, want %q", args, out, want)
		}
	}
}
