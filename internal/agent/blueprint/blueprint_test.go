package blueprint

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// files writes files below a folder.
func files(t *testing.T, content map[string]string) (dir string, f Folders) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, Folders{filepath.Join(dir, "agents")}
}

func storeOf(f Folders) *Store { return NewStore(func() Folders { return f }, nil) }

func get(t *testing.T, f Folders, name string) Blueprint {
	t.Helper()
	b, err := storeOf(f).Get(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const whole = `
description: Reviews changes
tags: [internal]
system_prompt: |
  You review ${params.repo}, at $5 and $${HOME}.
parameters:
  type: object
  properties: {repo: {type: string}, turns: {type: integer, default: 3}}
  required: [repo]
result: {type: object, properties: {verdict: {type: string}}}
mcp_servers:
  files: {}
  docs: {ref: memory}
  orchestrator: {ref: orchestrator, headers: {X-Agent-Tags: "${scope.tags}"}}
  git:
    command: uvx
    args: [mcp-server-git, --repository, "${workspace}", --of, "${params.repo}"]
    env: {TOKEN: "${env.GIT_TOKEN}", PORT: 80}
  web: {type: http, url: "https://${scope.host}/mcp", headers: {Authorization: Bearer abcdefgh}}
capabilities: [web]
executor: claude-code
executor_config: {max_turns: "${params.turns}", deep: [{a: "x-${runtime.run_id}"}, true, null, 1.5]}
env: {LANG: C, URL: "${runner.orchestrator_mcp_url}/x"}
tools: Read, Grep
model: sonnet
demands: {tags: [gpu], hostname: h}
hooks:
  on_run_start: {command: ./check, args: ["${params.repo}"], timeout: 5s}
  on_run_finish: [{command: notify, on_error: continue}]
scope: {host: example.org, tags: a}
agents: [worker-*]
limits: {depth: 2, runs: 10, time: 90s}
on_runner_lost: retry
`

func TestWholeBlueprint(t *testing.T) {
	dir, f := files(t, map[string]string{
		"agents/reviewer/agent.yaml":         whole,
		"capabilities/web/capability.yaml":   "system_prompt: Search the web for ${params.repo}.\nmcp_servers: {fetch: {}}\ncapabilities: [style]\n",
		"capabilities/style.md":              "---\ndescription: how to write\n---\n\nBe brief.\n",
		"capabilities/unused/capability.yml": "nonsense: 1\n",
	})
	b := get(t, f, "reviewer")
	if want := "You review ${params.repo}, at $5 and $${HOME}.\n" + rule + "Search the web for ${params.repo}." + rule + "Be brief."; b.SystemPrompt.Source() != want {
		t.Errorf("prompt %q, want %q", b.SystemPrompt.Source(), want)
	}
	if got, want := b.serverNames(), []string{"docs", "fetch", "files", "git", "orchestrator", "web"}; !slices.Equal(got, want) {
		t.Errorf("servers %q, want %q", got, want)
	}
	if b.Hooks.Start[0].Command != filepath.Join(dir, "agents/reviewer/check") || !b.Hooks.Finish[0].Continue || !b.Retry || b.Limits != (Limits{2, 0, 10, 90 * time.Second}) {
		t.Errorf("%+v %v %+v", b.Hooks, b.Retry, b.Limits)
	}
	problems, warnings := b.Check(Known{
		Servers: []string{"files", "memory", "fetch", "orchestrator"}, Executors: config.ExecutorTypes, Agents: []string{"worker-1"}, Env: map[string]bool{"GIT_TOKEN": true},
	})
	if len(problems)+len(warnings) > 0 {
		t.Errorf("%v %q", problems, warnings)
	}
	in := Input{
		Parameters: map[string]any{"repo": "a/b"}, Scope: map[string]string{"tags": "x,y"}, Env: map[string]string{"GIT_TOKEN": "s3cret-token"},
		Runtime: Runtime{"run_1", "ses_1"},
	}
	r, err := Resolve(b, in)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Resolved
	if err := json.Unmarshal(stored, &again); err != nil {
		t.Fatal(err)
	}
	filled, err := again.Fill(map[string]string{"orchestrator_mcp_url": "http://o"})
	if err != nil {
		t.Fatal(err)
	}
	want := Filled{
		SystemPrompt: "You review a/b, at $5 and ${HOME}.\n" + rule + "Search the web for a/b." + rule + "Be brief.",
		Servers: map[string]FilledServer{
			"files": {Ref: "files", Headers: map[string]string{}}, "docs": {Ref: "memory", Headers: map[string]string{}}, "fetch": {Ref: "fetch", Headers: map[string]string{}},
			"orchestrator": {Ref: "orchestrator", Headers: map[string]string{"X-Agent-Tags": "x,y"}},
			"git":          {Headers: map[string]string{}, Inline: json.RawMessage(`{"args":["mcp-server-git","--repository","${workspace}","--of","a/b"],"command":"uvx","env":{"PORT":80,"TOKEN":"s3cret-token"}}`)},
			"web":          {Headers: map[string]string{}, Inline: json.RawMessage(`{"headers":{"Authorization":"Bearer abcdefgh"},"url":"https://example.org/mcp"}`)},
		},
		Config: map[string]any{
			"max_turns": json.Number("3"), "deep": []any{map[string]any{"a": "x-run_1"}, true, nil, json.Number("1.5")},
			"tools": []any{"Read", "Grep"}, "model": "sonnet",
		},
		Env: map[string]string{"LANG": "C", "URL": "http://o/x"},
	}
	if !reflect.DeepEqual(filled, want) {
		t.Errorf("got  %+v\nwant %+v", filled, want)
	}
	if !slices.Contains(r.Secrets, "s3cret-token") || slices.Contains(r.Secrets, "example.org") {
		t.Errorf("secrets %q", r.Secrets)
	}
	start, err := StartHooks(b, in)
	if err != nil || len(start.Commands) != 1 || !slices.Equal(start.Commands[0].Args, []string{"a/b"}) || !reflect.DeepEqual(start.Parameters, r.Parameters) {
		t.Errorf("%+v, %v", start, err)
	}
	if settings, ok := r.Settings(); !ok || !reflect.DeepEqual(settings, filled.Config) {
		t.Errorf("%+v, %v", settings, ok)
	}
	if _, err := again.Fill(nil); err == nil || !strings.Contains(err.Error(), "env.URL: this runner has no value for ${runner.orchestrator_mcp_url}") {
		t.Errorf("%v", err)
	}
}

// Files as other programs have them.
func TestOtherForms(t *testing.T) {
	_, f := files(t, map[string]string{
		"agents/claude.md":                      "---\nname: claude\ndescription: Reads code\ntools: Read, Grep\nmodel: inherit\n---\n\nYou read ${params.prompt}.\n",
		"agents/folder/agent.md":                "---\ndescription: Reads\n---\nYou read.\n",
		"agents/old/agent.json":                 `{"name":"old","description":"d","type":"autonomous","tags":["internal"],"parameters_schema":{"type":"object"},"output_schema":{"type":"object"},"demands":{"tags":["x"]},"capabilities":["ado"]}`,
		"agents/old/agent.system-prompt.md":     "From the ${scope.x} file.\n",
		"agents/old/agent.mcp.json":             `{"mcpServers":{"orchestrator":{"type":"http","url":"${runner.orchestrator_mcp_url}","headers":{"X-Agent-Session-Id":"${runtime.session_id}"}},"notes":{"ref":"memory","config":{"X-Agent-Tags":"internal"}}}}`,
		"agents/proc/agent.json":                `{"description":"d","type":"procedural","executor_config":{"command":"check"}}`,
		"agents/own/agent.yml":                  "system_prompt_file: p.md\n",
		"agents/own/p.md":                       "Own prompt.\n",
		"agents/notes.txt":                      "no agent\n",
		"agents/.hidden.md":                     "no agent\n",
		"agents/plain.yaml":                     "description: A file by itself\n",
		"agents/json.json":                      `{"description": "Likewise"}`,
		"capabilities/ado/capability.json":      `{"name":"ado","description":"d","type":"mcp"}`,
		"capabilities/ado/capability.text.md":   "Use Azure.\n",
		"capabilities/ado/capability.mcp.json":  `{"mcpServers":{"ado":{"ref":"ado"}}}`,
		"capabilities/ado/capability.notes.txt": "",
	})
	list, err := storeOf(f).List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Name)
		if l.Err != nil {
			t.Errorf("%s: %v", l.Name, l.Err)
		}
	}
	if want := []string{"claude", "folder", "json", "old", "own", "plain", "proc"}; !slices.Equal(names, want) {
		t.Fatalf("%q, want %q", names, want)
	}
	claude, old := list[0], list[3]
	if claude.SystemPrompt.Source() != "You read ${params.prompt}." || claude.Executor != DefaultExecutor ||
		!reflect.DeepEqual(claude.Config.Source(), map[string]any{"tools": []any{"Read", "Grep"}}) {
		t.Errorf("%q %q %v", claude.SystemPrompt.Source(), claude.Executor, claude.Config.Source())
	}
	if old.SystemPrompt.Source() != "From the ${scope.x} file."+rule+"Use Azure." || !slices.Equal(old.serverNames(), []string{"ado", "notes", "orchestrator"}) ||
		old.Servers["orchestrator"].Ref != Orchestrator || old.Servers["notes"].Ref != "memory" || old.Parameters == nil || old.Result == nil {
		t.Errorf("%q %+v", old.SystemPrompt.Source(), old.Servers)
	}
	if list[4].SystemPrompt.Source() != "Own prompt." || list[6].Executor != "procedural" || list[2].Description != "Likewise" || list[5].Description != "A file by itself" {
		t.Errorf("%+v", list)
	}
}

// Every mistake is named with its place.
func TestMistakes(t *testing.T) {
	agent := func(text string) map[string]string { return map[string]string{"agents/a/agent.yaml": text} }
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{agent("descripton: x\n"), `a/agent.yaml:1:1: unknown key "descripton"; did you mean "description"?`},
		{agent("description: 5\n"), "a/agent.yaml:1:14: description: want a string, got 5"},
		{agent("name: b\n"), `a/agent.yaml:1:1: name: is "b", but the file or folder is called "a"`},
		{agent("description: for ${params.x}\n"), "a/agent.yaml:1:14: description: ${params.KEY} is not filled in here"},
		{agent("executor: a b\n"), "a/agent.yaml:1:11: executor: \"a b\" can't name an executor"},
		{agent("system_prompt: |\n  one\n  two ${param.x}\n"), "line 2: ${param.x} is no placeholder here; there are ${params.KEY}, ${scope.KEY}, ${env.KEY}, ${runtime.KEY}, ${runner.KEY}; did you mean ${params.x}?"},
		{agent("system_prompt: ${HOME}\n"), "a/agent.yaml:1:16: system_prompt: ${HOME} is no placeholder here"},
		{agent("system_prompt: ${env:HOME}\n"), "a dot comes after the prefix; write ${env.HOME}"},
		{agent("system_prompt: ${params.}\n"), `"" can't be a key`},
		{agent("system_prompt: ${params.x\n"), "${ has no closing brace"},
		{agent("system_prompt: ${runtime.id}\n"), "there are ${runtime.run_id} and ${runtime.session_id}"},
		{agent("system_prompt: ${workspace}\n"), "${workspace} is known only in args, env and cwd of a server"},
		{agent("system_prompt: a\nsystem_prompt_file: b\n"), "a/agent.yaml:2:1: system_prompt_file: stands beside a system prompt"},
		{agent("system_prompt_file: ../../secret\n"), "a/agent.yaml:1:1: system_prompt_file: "},
		{agent("system_prompt_file: nowhere.md\n"), "nowhere.md"},
		{agent("parameters: {type: objekt}\n"), "a/agent.yaml:1:13: parameters: not a JSON Schema: #/type: there is no type \"objekt\"; did you mean \"object\"?"},
		{agent("parameters: {type: string}\n"), "a/agent.yaml:1:1: parameters: parameters are an object"},
		{agent("parameters: 5\n"), "parameters: want a JSON Schema"},
		{agent("parameters: {$ref: '#'}\n"), "$ref goes round in a circle at #"},
		{agent("parameters: {$ref: 'http://a/'}\n"), "is not supported; write \"#/$defs/NAME\""},
		{agent("parameters: {type: object}\nparameters_schema: {}\n"), "parameters_schema and parameters say the same"},
		{agent("mcp_servers: [files]\n"), "mcp_servers: want a map of a name to a server"},
		{agent("mcp_servers: {a b: {}}\n"), `"a b" can't name a server`},
		{agent("mcp_servers: {a: files}\n"), "mcp_servers.a: want {} for the server \"a\" of the config"},
		{agent("mcp_servers: {a: {ref: b, args: [c]}}\n"), `a/agent.yaml:1:27: unknown key "args" in mcp_servers.a`},
		{agent("mcp_servers: {a: {command: b, arg: [c]}}\n"), `a/agent.yaml:1:31: unknown key "arg" in mcp_servers.a; did you mean "args"?`},
		{agent("mcp_servers: {a: {url: ftp://b}}\n"), "mcp_servers.a.url"},
		{agent("mcp_servers: {a: {type: ws, url: http://b}}\n"), "mcp_servers.a.type: got \"ws\", want http, sse or stdio"},
		{agent("mcp_servers: {a: {command: b, env: {T: '${TOKEN}'}}}\n"), "mcp_servers.a.env.T: ${TOKEN} is no placeholder here"},
		{agent("mcp_servers: {a: {command: b, args: ['$${workspace}']}}\n"), "holds ${workspace} or ${state.NAME} as plain text"},
		{agent("mcp_servers: {a: {command: b, args: ['${state.db}']}}\n"), "state.db"},
		{agent("mcp_servers: {a: {ref: b, headers: {Authorization: c}}}\n"), `a reference sends no header "Authorization"`},
		{agent("mcp_servers: {a: {ref: b}, b: {command: c}}\n"), "mcp_servers.a refers to the server \"b\" of the config"},
		{agent("mcp_servers: {a: {command: b, env: {'${params.x}': c}}}\n"), "has a placeholder, and only values may have one"},
		{agent("env: {'${params.x}': c}\n"), "has a placeholder, and only values may have one"},
		{agent("env: {'A=B': c}\n"), `"A=B" can't name a variable`},
		{agent("hooks: {on_run_start: {type: agent, agent_name: b}}\n"), "a hook is a command here and no agent"},
		{agent("hooks: {on_run_start: {args: [a]}}\n"), "command is missing"},
		{agent("hooks: {on_run_strat: {command: a}}\n"), `unknown key "on_run_strat" in hooks; did you mean "on_run_start"?`},
		{agent("hooks: {on_run_start: {command: a, args: ['${runner.id}']}}\n"), "${runner.id} is not known here"},
		{agent("scope: {a: '${env.B}'}\n"), "scope.a: ${env.KEY} is not filled in here"},
		{agent("agents: ['[']\n"), "agents[0]: \"[\" is not a pattern"},
		{agent("on_runner_lost: again\n"), "got \"again\", want fail or retry"},
		{agent("capabilities: [wbe]\n"), `a/agent.yaml:1:16: capabilities[0]: there is no capability "wbe"; create capabilities/wbe/capability.yaml`},
		{agent("tools: [a]\nexecutor_config: {tools: []}\n"), "tools: stands beside executor_config.tools"},
		{agent("tools: Read, mcp__files__read\n"), "1:8: tools: mcp__files__read is a tool of an MCP server"},
		{agent("script: x\n"), "write executor: procedural and executor_config: {command: PROGRAM}"},
		{agent("a: [\n"), "not valid YAML"},
		{map[string]string{"agents/a.md": "no front matter\n"}, "a.md:1:1: want front matter"},
		{map[string]string{"agents/a.md": "---\ndescription: x\n---\n\nHello\n${params.y} and ${HOME}\n"}, "a.md:6:17: ${HOME} is no placeholder here"},
		{map[string]string{"agents/a.md": "---\ndescrption: x\n---\n"}, `a.md:2:1: unknown key "descrption"`},
		{map[string]string{"agents/a.md": "---\nsystem_prompt: x\n---\nbody\n"}, "a.md:2:1: system_prompt: stands above and below"},
		{map[string]string{"agents/a.md": "---\n---\nx\n", "agents/a/agent.yaml": ""}, "agent \"a\" is there already"},
		{map[string]string{"agents/a/agent.yaml": "", "agents/a/agent.json": "{}"}, "agent \"a\" is there already"},
		{map[string]string{"agents/a/agent.yaml": "", "agents/a/agent.mcp.json": `{"mcpServers": {"x": {"command": 5}}}`}, "agent.mcp.json:1:34: mcpServers.x.command"},
		{map[string]string{"agents/a/agent.yaml": "mcp_servers: {x: {}}", "agents/a/agent.mcp.json": `{"mcpServers": {"x": {}}}`}, `there is a server "x" already, at`},
		{map[string]string{"agents/a/agent.yaml": "capabilities: [b]\n", "capabilities/b/capability.yaml": "capabilities: [c]\n", "capabilities/c.md": "---\ncapabilities: [b]\n---\n"}, "c.md:2:16: capabilities[0]: capabilities mix in each other in a circle: b, c, b"},
		{map[string]string{"agents/a/agent.yaml": "capabilities: [b]\nmcp_servers:\n  x: {}\n", "capabilities/b/capability.yaml": "mcp_servers: {x: {}}\n"}, "b/capability.yaml:1:15: mcp_servers.x: there is a server \"x\" already, at"},
		{map[string]string{"agents/a/agent.yaml": "capabilities: [b]\n", "capabilities/b/capability.yaml": "executor: x\n"}, `b/capability.yaml:1:1: unknown key "executor"`},
	} {
		_, f := files(t, tt.files)
		_, err := storeOf(f).Get(context.Background(), "a")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v:\n got %v\nwant %s", tt.files, err, tt.want)
		}
	}
}

// TestCheckSettings has the place of a setting that an executor complains about.
func TestCheckSettings(t *testing.T) {
	_, f := files(t, map[string]string{
		"agents/none/agent.yaml":    "description: x\nexecutor: command\n",
		"agents/standard.md":        "---\ndescription: x\n---\n",
		"agents/wrong/agent.yaml":   "executor_config:\n  n: 3\n  m: x\n",
		"agents/list/agent.yaml":    "executor_config:\n  n: [a, b]\n",
		"agents/short.md":           "---\ndescription: x\nmodel: y\n---\n",
		"agents/elsewhere.md":       "---\nexecutor_config: {n: 1}\n---\n",
		"agents/open/agent.yaml":    "executor_config: {n: '${params.prompt}'}\n",
		"agents/other/agent.yaml":   "executor_config: {n: '${params.prompt}', m: 1}\n",
		"agents/hooked/agent.yaml":  "hooks:\n  on_run_start: [{command: good}, {args: [x], command: gone}]\n  on_run_finish: {command: gone}\n",
		"agents/lenient/agent.yaml": "hooks:\n  on_run_start: {command: gone, on_error: continue}\n",
		"agents/own/agent.yaml":     "hooks:\n  on_run_start: [{command: gone, env: {PATH: /x}}, {command: /gone, env: {PATH: /x}}]\n",
	})
	for name, tt := range map[string]struct {
		err               string // of the executor
		problem, warnings string
	}{
		"none":      {"executor_config.command: is missing", "none/agent.yaml:2:1: executor_config.command: is missing", ""},
		"standard":  {"executor_config.command: is missing", "standard.md:2:1: executor_config.command: is missing", ""},
		"wrong":     {"executor_config.m: unknown", "wrong/agent.yaml:3:3: executor_config.m: unknown", ""},
		"list":      {"executor_config.n[1]: unknown", "list/agent.yaml:2:3: executor_config.n[1]: unknown", ""},
		"short":     {"executor_config.model: unknown", "short.md:3:1: executor_config.model: unknown", ""},
		"elsewhere": {"executor_config.command: is missing", "elsewhere.md:2:1: executor_config.command: is missing", ""},
		"open":      {"executor_config.n: is missing", "", ""},
		"other":     {"executor_config.m: unknown", "other/agent.yaml:1:42: executor_config.m: unknown", ""},
		"hooked":    {"", "hooked/agent.yaml:2:47: hooks.on_run_start[1].command: no gone", "hooked/agent.yaml:3:19: hooks.on_run_finish[0].command: no gone"},
		"lenient":   {"", "", "lenient/agent.yaml:2:18: hooks.on_run_start[0].command: no gone"},
		"own":       {"", "own/agent.yaml:2:53: hooks.on_run_start[1].command: no /gone", ""},
	} {
		b := get(t, f, name)
		problems, warnings := b.Check(Known{
			Executors: config.ExecutorTypes,
			Config: func(executor string, settings map[string]any) error {
				if _, ok := settings["n"]; ok && (name == "open" || name == "other") {
					t.Errorf("%s: the setting with a placeholder is %v", name, settings["n"])
				}
				if executor != b.Executor || tt.err == "" {
					return nil
				}
				return errors.New(tt.err)
			},
			Program: func(command string) error {
				if strings.HasSuffix(command, "gone") {
					return errors.New("no " + command)
				}
				return nil
			},
		})
		var got string
		for _, p := range problems {
			got += p.String()
		}
		if len(problems) > 1 || !strings.HasSuffix(got, tt.problem) || (got == "") != (tt.problem == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.problem)
		}
		if got := strings.Join(warnings, ""); len(warnings) > 1 || !strings.HasSuffix(got, tt.warnings) || (got == "") != (tt.warnings == "") {
			t.Errorf("%s: warnings %q, want %q", name, got, tt.warnings)
		}
	}
}

// TestEmptyFiles are mistakes, which front matter without keys is not.
func TestEmptyFiles(t *testing.T) {
	_, f := files(t, map[string]string{
		"agents/none/agent.yaml": "", "agents/comment/agent.yml": "# later\n\n", "agents/null/agent.json": "null",
		"agents/front.md": "---\n---\n", "agents/map/agent.yaml": "{}\n", "capabilities/c/capability.yaml": "\n",
	})
	for name, wrong := range map[string]bool{"none": true, "comment": true, "null": true, "front": false, "map": false} {
		_, err := NewStore(func() Folders { return f }, nil).Get(t.Context(), name)
		if wrong != (err != nil) || wrong && !strings.Contains(err.Error(), name+"/agent.") || wrong && !strings.Contains(err.Error(), ":1:1: is empty; write keys such as description") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.CheckCapabilities(); err == nil || !strings.Contains(err.Error(), "capability.yaml:1:1: is empty") {
		t.Errorf("a capability: %v", err)
	}
	if _, err := Parse("a", []byte("null")); err == nil || err.Error() != "agent a:1:1: is empty; write keys such as description" {
		t.Errorf("a document: %v", err)
	}
}

func TestCheck(t *testing.T) {
	_, f := files(t, map[string]string{"agents/a/agent.yaml": `
system_prompt: ${params.promt} ${env.OTHER} ${env.UNSET} ${scope.s} ${runner.orchestrator_url}
mcp_servers: {fils: {}}
executor: claud-code
agents: [nobody]
`})
	b := get(t, f, "a")
	problems, warnings := b.Check(Known{Servers: []string{"files"}, Executors: config.ExecutorTypes, Env: map[string]bool{"UNSET": false}})
	var text []string
	for _, p := range problems {
		text = append(text, p.String())
	}
	for _, want := range []string{
		`2:16: system_prompt: ${params.promt}: the schema has no parameter "promt"; did you mean "prompt"?`,
		"2:16: system_prompt: ${env.OTHER}: blueprints may not read this variable",
		`2:16: system_prompt: ${runner.orchestrator_url}: no runner has this value; did you mean "orchestrator_mcp_url"?`,
		`3:15: mcp_servers.fils: there is no server "fils" in the config; did you mean "files"?`,
		`4:1: executor: there is no executor "claud-code"; did you mean "claude-code"?`,
	} {
		if !strings.Contains(strings.Join(text, "\n"), want) {
			t.Errorf("no problem %s in\n%s", want, strings.Join(text, "\n"))
		}
	}
	if len(problems) != 5 || len(warnings) != 3 {
		t.Errorf("%d problems, warnings %q", len(problems), warnings)
	}
	var invalid *InvalidError
	if err := b.CheckServers([]string{"files"}); !errors.As(err, &invalid) || invalid.Code != CodeServerRef {
		t.Errorf("%v", err)
	}
}
