package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestStateErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"state of a url", "servers:\n  a:\n    url: https://a.example.org\n    state: [x]\n",
			`tine.yaml:4:5: servers.a.state: goes with command, but this server has a url; write state: none if it remembers nothing`},
		{"state of a builtin", "servers: {a: {builtin: memory, state: [x]}}\n",
			`tine.yaml:1:32: servers.a.state: goes with command, but this server has a builtin`},
		{"state is a string", "servers: {a: {command: x, state: data}}\n",
			`tine.yaml:1:34: servers.a.state: want a list of names, a map of names to templates, or none, got "data"; write state: [data], or state: none for a server that remembers nothing`},
		{"state is empty", "servers: {a: {command: x, state: []}}\n",
			`tine.yaml:1:34: servers.a.state: names nothing; write state: [data], or remove it`},
		{"state is nothing", "servers: {a: {command: x, state: }}\n",
			`tine.yaml:1:27: servers.a.state: names nothing; write state: [data], or remove it`},
		{"names of state", "servers: {a: {command: x, args: ['${state.a}'], state: [a, Data, ../x, a]}}\n",
			`tine.yaml:1:60: servers.a.state[1]: "Data" can't name a directory of state; use 1 to 32 of the characters a-z, 0-9, _ and -
tine.yaml:1:66: servers.a.state[2]: "../x" can't name a directory of state; use 1 to 32 of the characters a-z, 0-9, _ and -
tine.yaml:1:72: servers.a.state[3]: "a" stands twice; keep one`},
		{"names in a map", "servers: {a: {command: x, state: {a/b: }}}\n",
			`tine.yaml:1:35: servers.a.state: "a/b" can't name a directory of state; use 1 to 32 of the characters a-z, 0-9, _ and -`},
		{"template of state", "servers: {a: {command: x, args: ['${state.a}${state.b}${state.c}'], state: {a: 3, b: 'snapshot:x', c: ''}}}\n",
			`tine.yaml:1:80: servers.a.state.a: want a string, got 3; write a: ./template
tine.yaml:1:86: servers.a.state.b: "snapshot:x" is a snapshot, and this begins as a copy of a directory; give its path
tine.yaml:1:103: servers.a.state.c: is empty; name a template, or remove it`},

		{"template of a command", "servers: {a: {command: x, template: y}}\n",
			`tine.yaml:1:27: servers.a.template: goes with builtin, docker or remote, but this server has a command`},
		{"template of what has no state", "servers: {a: {builtin: time, template: y}}\n",
			`tine.yaml:1:30: servers.a.template: goes with builtin: files, memory or sqlite; remove it`},
		{"template of files on a folder", "servers: {a: {builtin: files, template: y, settings: {root: x}}}\n",
			`tine.yaml:1:31: servers.a.template: goes with the workspace, but settings.root has the server serve a folder as it is; remove one of them`},
		{"template of files and of the workspace", "workspace: {template: x}\nservers: {a: {preset: filesystem, template: y}}\n",
			`tine.yaml:2:35: servers.a.template: the workspace, which it serves, begins with workspace.template already; keep one of them`},
		{"templates of two files", "servers: {a: {builtin: files, template: x}, b: {builtin: files, template: y}}\n",
			`tine.yaml:1:65: servers.b.template: the workspace, which it serves, begins with servers.a.template already; keep one of them`},
		{"template that names no snapshot", "servers: {a: {builtin: memory, template: 'snapshot:'}}\n",
			`tine.yaml:1:42: servers.a.template: "snapshot:" names no snapshot; write snapshot:NAME`},

		{"undeclared", "servers:\n  a:\n    command: x\n    args: [-d, '${state.db}']\n",
			`tine.yaml:4:16: servers.a.args[1]: ${state.db} is not declared; add state: [db]`},
		{"undeclared beside others", "servers: {a: {command: x, args: ['${state.one}'], env: {D: '${state.cache}'}, state: [one]}}\n",
			`tine.yaml:1:60: servers.a.env.D: ${state.cache} is not declared; add state: [one, cache]`},
		{"undeclared by a typo", "servers: {a: {command: x, cwd: '${state.cahce}', args: ['${state.cache}'], state: [cache]}}\n",
			`tine.yaml:1:32: servers.a.cwd: ${state.cahce} is not declared; did you mean ${state.cache}?`},
		{"a name that can't be", "servers: {a: {command: x, args: ['${state.A}'], state: [a]}}\n",
			`tine.yaml:1:34: servers.a.args[0]: ${state.A}: "A" can't name a directory of state; use 1 to 32 of the characters a-z, 0-9, _ and -, or write $${ for a literal ${`},
		{"a default", "servers: {a: {command: x, args: ['${workspace:-/tmp}']}}\n",
			`tine.yaml:1:34: servers.a.args[0]: ${workspace:-/tmp}: ${workspace} is a session's directory and needs no default; write ${env:workspace:-/tmp} for a variable of that name`},
		{"in a command", "servers: {a: {command: '${workspace}/run'}}\n",
			`tine.yaml:1:24: servers.a.command: ${workspace} is known only in args, env and cwd of a server, as there is none before one starts`},
		{"in a header", "servers: {a: {url: 'https://a.example.org', headers: {X: 'a${state.x}'}}}\n",
			`tine.yaml:1:58: servers.a.headers.X: ${state.x} is known only in args, env and cwd of a server, as there is none before one starts`},
		{"in settings", "servers: {a: {builtin: files, settings: {root: '${workspace}'}}}\n",
			`tine.yaml:1:48: servers.a.settings.root: ${workspace} is known only in args, env and cwd of a server, as there is none before one starts`},
		{"at the top", "workspace: ${workspace}\n",
			`tine.yaml:1:12: workspace: ${workspace} is known only in args, env and cwd of a server, as there is none before one starts`},
		{"not first in cwd", "servers: {a: {command: x, cwd: 'in/${workspace}'}}\n",
			`tine.yaml:1:32: servers.a.cwd: ${workspace} is a whole path, so nothing can stand before it`},
		{"as plain text", "servers: {a: {command: x, args: ['$${workspace}', '${workspace} $${state.x}'], env: {A: '$${state.X}', B: '$${state.x ${workspace}'}}}\n",
			`tine.yaml:1:34: servers.a.args[0]: holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way
tine.yaml:1:51: servers.a.args[1]: holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way
tine.yaml:1:89: servers.a.env.A: holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way
tine.yaml:1:107: servers.a.env.B: holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way`},
	})
}

func TestWorkspaceErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"a relative path", "workspace: {path: data}\n",
			`tine.yaml:1:19: workspace.path: "data" is not a whole path; write it like /workspace`},
		{"a path that programs need", "workspace: {path: /usr/lib/../share}\n",
			`tine.yaml:1:19: workspace.path: "/usr/lib/../share" would hide what programs need there; take a path of its own, like /workspace or /data`},
		{"the root", "workspace: {path: //}\n",
			`tine.yaml:1:19: workspace.path: "//" would hide what programs need there; take a path of its own, like /workspace or /data`},
		{"of a url", "servers: {a: {url: 'https://a.example.org', workspace: true}}\n",
			`tine.yaml:1:56: servers.a.workspace: a server behind a url can't see a directory of this machine; remove it`},
		{"of a clock", "servers: {a: {builtin: time, workspace: true}}\n",
			`tine.yaml:1:41: servers.a.workspace: builtin: time works on no files, as files and sqlite do; remove it`},
		{"and a root", "servers: {a: {builtin: files, workspace: true, settings: {root: /srv}}}\n",
			`tine.yaml:1:42: servers.a.workspace: is true, but files has settings.root; keep one of them`},
		{"off and used", "servers: {a: {command: x, workspace: false, env: {W: '${workspace}'}}}\n",
			`tine.yaml:1:38: servers.a.workspace: is false, but servers.a.env.W has ${workspace}; remove one of them`},
		{"off for files", "servers: {a: {builtin: files, workspace: false}}\n",
			`tine.yaml:1:42: servers.a.workspace: is false, but that is what files serves; give it another folder with settings.root, or remove this`},
		{"shared files", "servers: {a: {builtin: files, scope: shared}}\n",
			`tine.yaml:1:38: servers.a.scope: is shared, but each session has a workspace of its own; write scope: session, or give it a folder with settings.root`},
		{"shared program", "servers: {a: {command: x, args: ['${workspace}'], scope: shared}}\n",
			`tine.yaml:1:58: servers.a.scope: is shared, but each session has a workspace of its own; write scope: session`},
		{"no word", "servers: {a: {command: x, workspace: ./w}}\n",
			`tine.yaml:1:38: servers.a.workspace: got "./w", want true or false`},
		{"off at the top, for files", "workspace: false\nservers: {f: {builtin: files}}\n",
			`tine.yaml:1:12: workspace: is off, but server "f" sees it; remove this, or give it a folder of its own with servers.f.settings.root`},
		{"off at the top, for a program", "workspace: false\nservers: {t: {builtin: time}, p: {command: x, workspace: true}}\n",
			`tine.yaml:1:12: workspace: is off, but server "p" sees it; remove this, or set servers.p.workspace: false`},
		{"a number at the top", "workspace: 3\n",
			`tine.yaml:1:12: workspace: got 3, want true, false, the path of a template, or {template: PATH, path: PATH}`},
		{"a list at the top", "workspace: [a]\n",
			`tine.yaml:1:12: workspace: got a list, want true, false, the path of a template, or {template: PATH, path: PATH}`},
		{"unknown key", "workspace: {templat: x}\n",
			`tine.yaml:1:13: unknown key "templat" in workspace; did you mean "template"?`},
		{"empty template", "workspace: ''\n",
			`tine.yaml:1:12: workspace: is empty; name a template, or remove it`},
		{"empty template in a map", "workspace: {template: ' '}\n",
			`tine.yaml:1:23: workspace.template: is empty; name a template, or remove it`},
	})
}

func TestForkErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"no word", "servers: {a: {command: x, fork: shared}}\n",
			`tine.yaml:1:33: servers.a.fork: got "shared", want memory, files, fresh, share or refuse; did you mean "share"?`},
		{"files of a program without any", "servers: {a: {command: x, fork: files}}\n",
			`tine.yaml:1:33: servers.a.fork: "files" carries the files of a server, and this one has none that Tine knows of; name them with state: [NAME], and put ${state.NAME} into args, env or cwd`},
		{"files of what has none", "servers: {a: {builtin: memory, fork: files}}\n",
			`tine.yaml:1:38: servers.a.fork: "files" carries the files of a server, and this one has none that Tine knows of; leave fork out, and all it remembers is carried`},
		{"files of a url", "servers: {a: {url: 'https://a.example.org', scope: session, fork: files}}\n",
			`tine.yaml:1:67: servers.a.fork: "files" carries the files of a server, and this one has none that Tine knows of; use fresh, share or refuse`},
		{"memory of a program", "servers: {a: {command: x, fork: memory}}\n",
			`tine.yaml:1:33: servers.a.fork: "memory" copies a running server, which driver process can't; builtin, sandbox or remote with remote.fork or remote.snapshot can; add sandbox: true, or use files with state, fresh, share or refuse`},
		{"memory of a url", "servers: {a: {url: 'https://a.example.org', scope: session, fork: memory}}\n",
			`tine.yaml:1:67: servers.a.fork: "memory" copies a running server, which driver url can't; builtin, sandbox or remote with remote.fork or remote.snapshot can; use fresh, share or refuse`},
		{"of a shared program", "servers: {a: {command: x, scope: shared, fork: fresh}}\n",
			`tine.yaml:1:48: servers.a.fork: "fresh" goes with scope: session; one that is shared is there for every fork as it is, so leave fork out`},
		{"of what is shared unless told", "servers: {a: {url: 'https://a.example.org', fork: refuse}}\n",
			`tine.yaml:1:51: servers.a.fork: "refuse" goes with scope: session; one that is shared is there for every fork as it is, so leave fork out`},
		{"budget of a url", "servers: {a: {url: 'https://a.example.org', budget: {memory: 1MiB}}}\n",
			`tine.yaml:1:45: servers.a.budget: goes with command, builtin or docker, but this server has a url`},
		{"budget", "servers: {a: {command: x, budget: {memory: 0}}, b: {command: x, budget: 1GiB}, c: {command: x, budget: {cpu: 1}}}\n",
			`tine.yaml:1:44: servers.a.budget.memory: 0 is out of range; want 1KiB to 1024TiB
tine.yaml:1:73: servers.b.budget: want a map of memory, got a string
tine.yaml:1:105: unknown key "cpu" in servers.c.budget; known keys: memory`},
	})
}

// TestRemembering has what loads, and what comes of it.
func TestRemembering(t *testing.T) {
	for in, want := range map[string]string{ // scope, workspace of the server and of the sessions, fork
		"a: {command: x}":                                                              "session false false ",
		"a: {command: x, args: ['${workspace}']}":                                      "session true true ",
		"a: {command: x, env: {A: 'b=${workspace}/c'}}":                                "session true true ",
		"a: {command: x, cwd: '${workspace}/c'}":                                       "session true true ",
		"a: {command: x, args: ['${workspaceFolder}']}":                                "session false false ",
		"a: {command: x, args: ['$workspace']}":                                        "session false false ",
		"a: {command: x, workspace: true, enabled: false}":                             "session true true ",
		"a: {command: x, workspace: true, fork: files}":                                "session true true files",
		"a: {command: x, workspace: '${YES}'}":                                         "session true true ",
		"a: {command: x, scope: shared, args: ['${state.a}'], state: [a]}":             "shared false false ",
		"a: {command: x, args: ['${state.a}'], state: [a], fork: files}":               "session false false files",
		"a: {command: x, fork: share}":                                                 "session false false share",
		"a: {command: x, scope: shared, fork: share}":                                  "shared false false share",
		"a: {url: 'https://a.example.org', scope: session, fork: fresh}":               "session false false fresh",
		"a: {builtin: files}":                                                          "session true true ",
		"a: {builtin: files, settings: {root: /srv}}":                                  "session false false ",
		"a: {builtin: files, settings: {root: /srv}, workspace: false, scope: shared}": "shared false false ",
		"a: {builtin: files, settings: {read_only: true}, fork: fresh}":                "session true true fresh",
		"a: {builtin: memory}":                                                         "session false false ",
		"a: {builtin: memory, fork: memory}":                                           "session false false memory",
		"a: {builtin: memory, scope: shared}":                                          "shared false false ",
		"a: {builtin: sqlite}":                                                         "session false false ",
		"a: {builtin: time}":                                                           "shared false false ",
		"a: {builtin: time, scope: session, fork: memory}":                             "session false false memory",
	} {
		c, err := Parse([]byte("servers:\n  "+in+"\n"), env(map[string]string{"YES": "true"}))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		s := c.Servers[0]
		bools := map[bool]string{true: "true", false: "false"}
		if got := s.Scope + " " + bools[s.Workspace] + " " + bools[c.Workspace.On] + " " + s.Fork; got != want || len(c.Warnings) > 0 {
			t.Errorf("%s: got %q, want %q; warnings %q", in, got, want, c.Warnings)
		}
	}
}

func TestStateWarnings(t *testing.T) {
	c := mustParse(t, "servers: {a: {command: x, args: ['${state.b}'], state: [a, b]}}\n", noEnv())
	want := `tine.yaml:1:56: servers.a.state: nothing says where "a" is; put ${state.a} into args, env or cwd, or it stays empty`
	if got := strings.Join(c.Warnings, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What comes out of a variable or a file is never taken for a placeholder.
func TestPlaceholdersFromOutside(t *testing.T) {
	opts := env(map[string]string{"W": "${workspace}", "DOLLAR": "$"})
	for _, in := range []string{
		"servers: {a: {command: x, args: ['${W}']}}",
		"servers: {a: {command: x, args: ['${DOLLAR}{state.a}', '${state.a}'], state: [a]}}",
		"servers: {a: {command: x, env: {A: '${workspace}${W}'}}}",
	} {
		if _, err := Parse([]byte(in), opts); err == nil || !strings.Contains(err.Error(), "as plain text") {
			t.Errorf("%s: %v", in, err)
		}
	}
	opts.ReadFile = func(string) ([]byte, error) { return []byte("A=1\nB='${workspace}'\n"), nil }
	c := mustParse(t, "servers: {a: {command: x, env_file: .env}}", opts)
	want := `server "a" is off: env_file: B holds ${workspace} or ${state.NAME}, and neither is filled in there; set it under env`
	if got := c.Servers[0].Disabled; got != want {
		t.Errorf("got %s", got)
	}
	// Where nothing is filled in there is nothing to take it for.
	c = mustParse(t, "servers: {a: {url: 'https://a.example.org', headers: {X: '$${workspace}', Y: '${W}'}}}", opts)
	if h := c.Servers[0].Headers; h["X"] != "${workspace}" || h["Y"] != "${workspace}" {
		t.Errorf("headers %v", h)
	}
}

func TestStateOfOtherPrograms(t *testing.T) {
	opts := noEnv()
	opts.Path = filepath.Join(t.TempDir(), "mcp.json")
	c := mustParse(t, `{"mcpServers": {"a": {"command": "x", "args": ["${workspace}"]}, "b": {"command": "x", "args": ["${state.db}"]}}}`, opts)
	if a := serverOf(t, c, "a"); !a.Workspace || !c.Workspace.On || a.Disabled != "" || a.Args[0] != "${workspace}" {
		t.Errorf("a: %+v", a)
	}
	if b := serverOf(t, c, "b"); !strings.Contains(b.Disabled, "${state.db} is not declared") {
		t.Errorf("b is off because %q", b.Disabled)
	}
	// With a key of ours a JSON file with servers is one of Tine's.
	c = mustParse(t, `{"servers": {"a": {"command": "x", "args": ["${state.db}"], "state": ["db"]}}}`, opts)
	if a := serverOf(t, c, "a"); len(a.State) != 1 || a.Disabled != "" {
		t.Errorf("a: %+v", a)
	}
}

// A server that remembers nothing says so, however it is run or reached.
func TestStateNone(t *testing.T) {
	for _, in := range []string{
		"command: x", "url: 'https://a.example.org'", "docker: i", "remote: {url: 'https://a.example.org', resource: x}", "command: x, sandbox: true",
	} {
		c, err := Parse([]byte("servers: {a: {"+in+", state: none}}\n"), Options{Path: "tine.yaml"})
		if err != nil || !c.Servers[0].Stateless || len(c.Servers[0].State) > 0 {
			t.Errorf("%s: %+v, %v", in, c, err)
		}
	}
	for in, want := range map[string]string{
		"builtin: memory, state: none":                     "servers.a.state: goes with command, but this server has a builtin",
		"command: x, state: none, fork: files":             "servers.a.fork: ",
		"command: x, args: ['${state.data}'], state: none": "${state.data} is not declared",
	} {
		if _, err := Parse([]byte("servers: {a: {"+in+"}}\n"), Options{Path: "tine.yaml"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}
