package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSandboxErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"no word", "servers: {a: {command: x, sandbox: yes please}, b: {command: x, sandbox: 3}, c: {command: x, sandbox: [none]}}\n",
			`tine.yaml:1:36: servers.a.sandbox: got "yes please", want true, false, or a map of root, allow_read, allow_write, deny_read, user, hostname, network, transport, port, path, memory, cpus, pids, files, disk, slots
tine.yaml:1:74: servers.b.sandbox: got 3, want true, false, or a map of root, allow_read, allow_write, deny_read, user, hostname, network, transport, port, path, memory, cpus, pids, files, disk, slots
tine.yaml:1:103: servers.c.sandbox: got a list, want true, false, or a map of root, allow_read, allow_write, deny_read, user, hostname, network, transport, port, path, memory, cpus, pids, files, disk, slots`},
		{"unknown keys", "servers: {a: {command: x, sandbox: {allowWrite: [/a], domains: [b], image: c}}}\n",
			`tine.yaml:1:37: unknown key "allowWrite" in servers.a.sandbox; did you mean "allow_write"?
tine.yaml:1:55: unknown key "domains" in servers.a.sandbox; did you mean "network"?
tine.yaml:1:69: unknown key "image" in servers.a.sandbox; known keys: root, allow_read, allow_write, deny_read, user, hostname, network, transport, port, path, memory, cpus, pids, files, disk, slots`},
		{"by its other name", "servers: {a: {command: x, gvisor: true}}\n",
			`tine.yaml:1:27: unknown key "gvisor" in servers.a; did you mean "sandbox"?`},
		{"around nothing", "servers: {a: {sandbox: true}, b: {driver: sandbox}}\n",
			`tine.yaml:1:15: servers.a.sandbox: command is missing; name the program that runs behind the walls
tine.yaml:1:31: servers.b: nothing to run or reach; give it a command, a url, a builtin, docker, remote or a preset`},
		{"around what is no program", "servers:\n  a: {docker: i, sandbox: true}\n  b: {url: 'https://b', sandbox: {}}\n  c: {builtin: time, sandbox: true}\n  d: {remote: {url: 'https://d', resource: x}, sandbox: true}\n",
			`tine.yaml:2:18: servers.a.sandbox: goes with command, but this server has docker; give it a command, or remove this
tine.yaml:3:25: servers.b.sandbox: goes with command, but this server has a url; give it a command, or remove this
tine.yaml:4:22: servers.c.sandbox: goes with command, but this server has a builtin; give it a command, or remove this
tine.yaml:5:48: servers.d.sandbox: goes with command, but this server has remote; give it a command, or remove this`},
		{"around a command and a container", "servers: {a: {command: x, docker: i, sandbox: true}}\n",
			`tine.yaml:1:27: servers.a: command and docker exclude each other; keep one`},
		{"drivers", "servers: {a: {command: x, sandbox: true, driver: process}, b: {command: x, sandbox: false, driver: sandbox}, c: {docker: i, driver: sandbox}}\n",
			`tine.yaml:1:50: servers.a.driver: "process" does not go with sandbox; write driver: sandbox, or leave it out
tine.yaml:1:85: servers.b.sandbox: is false, but driver is sandbox; remove one of them
tine.yaml:1:133: servers.c.driver: "sandbox" does not go with docker; write driver: docker, or leave it out`},

		{"no network", "servers: {a: {command: x, sandbox: {network: api.example.org}}, b: {command: x, sandbox: {network: off}}, c: {command: x, sandbox: {network: bridge net}}, d: {command: x, sandbox: {network: []}}, e: {command: x, sandbox: {network: }}}\n",
			`tine.yaml:1:46: servers.a.sandbox.network: got "api.example.org", want none, host, or a list of domains; write network: [api.example.org]
tine.yaml:1:100: servers.b.sandbox.network: got "off", want none, host, or a list of domains
tine.yaml:1:142: servers.c.sandbox.network: got "bridge net", want none, host, or a list of domains
tine.yaml:1:191: servers.d.sandbox.network: names nothing; write network: none, or the domains it may reach
tine.yaml:1:223: servers.e.sandbox.network: names nothing; write network: none, or the domains it may reach`},
		{"a domain that is a map", "servers: {a: {command: x, sandbox: {network: [a.org, {a: b}]}}}\n",
			`tine.yaml:1:54: servers.a.sandbox.network[1]: want a string, got a map`},
		{"no domains", "servers: {a: {command: x, sandbox: {network: ['*', 'https://a.org/x', 'a..b', 'a.org:0', A.org, a.org, '-a.org', 'a.*.org', '', '127.1', '10.0.0.1/8', '${SECRET} x']}}}\n",
			`tine.yaml:1:47: servers.a.sandbox.network[0]: "*" can't be allowed: it would be everything; list the names, or set sandbox.network to host
tine.yaml:1:52: servers.a.sandbox.network[1]: "https://a.org/x" can't be allowed: it is a URL; write the name alone: a.org
tine.yaml:1:71: servers.a.sandbox.network[2]: "a..b" can't be allowed: a part of the name is empty or too long
tine.yaml:1:79: servers.a.sandbox.network[3]: "a.org:0" can't be allowed: the port "0" is no number from 1 to 65535
tine.yaml:1:97: servers.a.sandbox.network[5]: "a.org" stands twice; keep one
tine.yaml:1:104: servers.a.sandbox.network[6]: "-a.org" can't be allowed: no part of a name begins or ends with -
tine.yaml:1:114: servers.a.sandbox.network[7]: "a.*.org" can't be allowed: * may only be the whole first label, as in *.example.org
tine.yaml:1:125: servers.a.sandbox.network[8]: "" can't be allowed: there is no name in it
tine.yaml:1:129: servers.a.sandbox.network[9]: "127.1" can't be allowed: it ends like an address; write addresses in full, as in 127.0.0.1
tine.yaml:1:138: servers.a.sandbox.network[10]: "10.0.0.1/8" can't be allowed: the network of that address is 10.0.0.0/8
tine.yaml:1:152: servers.a.sandbox.network[11]: "${SECRET} x" is nothing that can be allowed; have it be like example.org, *.example.org or example.org:8443`},

		{"roots", "servers:\n  a: {command: x, sandbox: {root: alow}}\n  b: {command: x, sandbox: {root: rootfs}}\n  c: {command: x, sandbox: {root: /}}\n  d: {command: ./x, cwd: ../y, sandbox: {root: ./rootfs}}\n  e: {command: ~/x, cwd: '${state.s}', state: [s], sandbox: {root: ./rootfs}}\n",
			`tine.yaml:2:35: servers.a.sandbox.root: got "alow", want allow, host, or the path of a directory or an image's archive; did you mean "allow"?
tine.yaml:3:35: servers.b.sandbox.root: got "rootfs", want allow, host, or the path of a directory or an image's archive; a path beside the config begins with ./
tine.yaml:4:35: servers.c.sandbox.root: "/" is the root of the host; write root: host
tine.yaml:5:16: servers.d.command: "./x" is beside the config, and the program is looked for in sandbox.root; write its whole path there, or its name alone
tine.yaml:5:26: servers.d.cwd: "../y" is beside the config, and the program runs in sandbox.root; write the whole path there
tine.yaml:6:16: servers.e.command: "~/x" is beside the config, and the program is looked for in sandbox.root; write its whole path there, or its name alone`},
		{"paths", "servers: {a: {command: x, sandbox: {allow_read: [~bob/x, /], allow_write: ['$HOME/x', '', /], deny_read: ['/srv/*.env', /, ./a, a/]}}}\n",
			`tine.yaml:1:50: servers.a.sandbox.allow_read[0]: "~bob/x" is a home that is not known here; write the whole path
tine.yaml:1:58: servers.a.sandbox.allow_read[1]: "/" is everything there is; name what it needs, or write root: host
tine.yaml:1:76: servers.a.sandbox.allow_write[0]: "$HOME/x" is for a shell to fill in; write ${NAME}, or the whole path
tine.yaml:1:87: servers.a.sandbox.allow_write[1]: "" names nothing; name a path, or remove it
tine.yaml:1:91: servers.a.sandbox.allow_write[2]: "/" is everything there is; name the folders
tine.yaml:1:107: servers.a.sandbox.deny_read[0]: "/srv/*.env" is a pattern, and paths are taken as they are; name the file or folder itself
tine.yaml:1:121: servers.a.sandbox.deny_read[1]: "/" is everything there is; name the folders
tine.yaml:1:129: servers.a.sandbox.deny_read[3]: "a/" stands twice; keep one`},
		{"a home that is nothing in YAML", "servers: {a: {command: x, cwd: ~, sandbox: {root: ~, allow_read: [~, null], allow_write: ~}}}\n",
			`tine.yaml:1:27: servers.a.cwd: want a string, got nothing (which is what ~ means in YAML; for the home folder write "~" in quotes); write cwd: ./work
tine.yaml:1:45: servers.a.sandbox.root: want a string, got nothing (which is what ~ means in YAML; for the home folder write "~" in quotes); write root: allow
tine.yaml:1:67: servers.a.sandbox.allow_read[0]: want a string, got nothing (which is what ~ means in YAML; for the home folder write "~" in quotes)
tine.yaml:1:70: servers.a.sandbox.allow_read[1]: want a string, got nothing
tine.yaml:1:77: servers.a.sandbox.allow_write: want a list of strings, got nothing (which is what ~ means in YAML; for the home folder write "~" in quotes); write allow_write: ["~"]`},
		{"allowed and denied", "servers:\n  a:\n    command: x\n    sandbox:\n      root: /d/root.tar\n      allow_read: [/d/x, /e, ~/.ssh/known_hosts]\n      allow_write: [/d, /e, ~/.kube, ~/.kubes, /dd]\n      deny_read: [/x, /d/]\n",
			`tine.yaml:5:13: servers.a.sandbox.root: lies in "/d/" of deny_read; remove one of them
tine.yaml:6:20: servers.a.sandbox.allow_read[0]: lies in what deny_read[1] hides, and that wins; remove one of them
tine.yaml:6:26: servers.a.sandbox.allow_read[1]: stands in allow_write too, which is for reading as well; remove it here
tine.yaml:6:30: servers.a.sandbox.allow_read[2]: no sandbox sees ~/.ssh, as it holds keys; put what the server needs into another folder
tine.yaml:7:21: servers.a.sandbox.allow_write[0]: lies in what deny_read[1] hides, and that wins; remove one of them
tine.yaml:7:29: servers.a.sandbox.allow_write[2]: no sandbox sees ~/.kube, as it holds keys; put what the server needs into another folder`},
		{"keys where it may be written", "servers: {a: {command: x, sandbox: {allow_write: ['~', /home, ~/.config, ~/.configs, /home/adam]}}}\n",
			`tine.yaml:1:51: servers.a.sandbox.allow_write[0]: has ~/.ssh in it, which no sandbox sees, and which could not be hidden for good there; name the folders beside it instead
tine.yaml:1:56: servers.a.sandbox.allow_write[1]: has ~/.ssh in it, which no sandbox sees, and which could not be hidden for good there; name the folders beside it instead
tine.yaml:1:63: servers.a.sandbox.allow_write[2]: has ~/.config/age in it, which no sandbox sees, and which could not be hidden for good there; name the folders beside it instead`},
		{"denied where it may be written", "servers:\n  a:\n    command: x\n    sandbox:\n      allow_write:\n        - /v\n        - ~/w/\n        - /home/ada/w/b\n      deny_read: [~/w/.env, /ww, /v, /home/ada/w/b/c/../c]\n",
			`tine.yaml:6:11: servers.a.sandbox.allow_write[0]: lies in what deny_read[2] hides, and that wins; remove one of them
tine.yaml:9:19: servers.a.sandbox.deny_read[0]: lies in allow_write[1] on line 7, and would be seen as soon as the host replaces it there; move it out of that folder, or name only the folders beside it in allow_write
tine.yaml:9:38: servers.a.sandbox.deny_read[3]: lies in allow_write[1] on line 7, and would be seen as soon as the host replaces it there; move it out of that folder, or name only the folders beside it in allow_write`},
		{"users", "servers: {a: {command: x, sandbox: {user: nobody}}, b: {command: x, sandbox: {user: 0}}, c: {command: x, sandbox: {user: '1000:0'}}, d: {command: x, sandbox: {user: 4294967295}}, e: {command: x, sandbox: {user: [1]}}, f: {command: x, sandbox: {user: 00}}}\n",
			`tine.yaml:1:43: servers.a.sandbox.user: "nobody" is not UID or UID:GID, and users have no names inside; write it like 1000:1000
tine.yaml:1:85: servers.b.sandbox.user: 0 is root, which nothing in a sandbox is; choose another, like 1000:1000
tine.yaml:1:122: servers.c.sandbox.user: "1000:0" is root, which nothing in a sandbox is; choose another, like 1000:1000
tine.yaml:1:166: servers.d.sandbox.user: 4294967295 is out of range; want numbers from 1 to 4294967294
tine.yaml:1:212: servers.e.sandbox.user: want UID or UID:GID, got a list
tine.yaml:1:251: servers.f.sandbox.user: 00 is root, which nothing in a sandbox is; choose another, like 1000:1000`},
		{"hostnames", "servers: {a: {command: x, sandbox: {hostname: 'a b'}}}\n",
			`tine.yaml:1:47: servers.a.sandbox.hostname: "a b" can't name a host; use up to 63 letters, digits, dots and dashes, a letter or digit first and last`},
		{"transports", "servers:\n  a: {command: x, sandbox: {transport: http}}\n  b: {command: x, sandbox: {transport: stdio, port: 80, path: /x}}\n  c: {command: x, sandbox: {path: /x}}\n  d: {command: x, sandbox: {port: 80, path: x}}\n  e: {command: x, sandbox: {port: 0}}\n  f: {command: x, sandbox: {network: host, port: 80}}\n  g: {command: x, sandbox: {transport: sse}}\n",
			`tine.yaml:2:29: servers.a.sandbox: port is missing, which transport http needs; say where in the sandbox the server listens
tine.yaml:3:47: servers.b.sandbox.port: goes with transport: http, but this is stdio; set a port, or remove it
tine.yaml:3:57: servers.b.sandbox.path: goes with transport: http, but this is stdio; set a port, or remove it
tine.yaml:4:29: servers.c.sandbox.path: goes with transport: http, but this is stdio; set a port, or remove it
tine.yaml:5:45: servers.d.sandbox.path: "x" is not the path of a URL; write it like /mcp
tine.yaml:6:35: servers.e.sandbox.port: 0 is out of range; want 1 to 65535
tine.yaml:7:38: servers.f.sandbox.network: on the network of the host the first session would take the port; use none or a list of domains, or write scope: shared
tine.yaml:8:40: servers.g.sandbox.transport: got "sse", want stdio or http`},
		{"limits", "servers: {a: {command: x, sandbox: {memory: 5MiB, cpus: 0, pids: 0, files: 15, disk: 1KiB, slots: 65}}}\n",
			`tine.yaml:1:45: servers.a.sandbox.memory: "5MiB" is out of range; want 6MiB to 1024TiB
tine.yaml:1:57: servers.a.sandbox.cpus: 0 is out of range; want 0.01 to 1024
tine.yaml:1:66: servers.a.sandbox.pids: 0 is out of range; want 1 to 4194304
tine.yaml:1:76: servers.a.sandbox.files: 15 is out of range; want 16 to 1048576
tine.yaml:1:86: servers.a.sandbox.disk: "1KiB" is out of range; want 1MiB to 1024TiB
tine.yaml:1:99: servers.a.sandbox.slots: 65 is out of range; want 0 to 64`},
		{"what is filled in at a start", "servers: {a: {command: x, sandbox: {allow_write: ['${workspace}/x']}}}\n",
			`tine.yaml:1:51: servers.a.sandbox.allow_write[0]: ${workspace} is known only in args, env and cwd of a server, as there is none before one starts`},
	})
}

func TestCopiedErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"forks", "servers: {a: {command: x, sandbox: {network: host}, fork: memory}, b: {command: x, sandbox: true, fork: files}}\n",
			`tine.yaml:1:59: servers.a.fork: "memory" copies a running server, and one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org], or use files with state, fresh, share or refuse
tine.yaml:1:105: servers.b.fork: "files" carries the files of a server, and this one has none that Tine knows of; name them with state: [NAME], and put ${state.NAME} into args, env or cwd`},
		{"without a sandbox", "servers:\n  a: {command: x, warm: 1, fork_ahead: true, on_fork: notify}\n  b: {docker: i, warm: 1}\n  c: {builtin: memory, fork_ahead: true}\n  d: {url: 'https://d', on_fork: notify}\n",
			`tine.yaml:2:19: servers.a.warm: goes with sandbox, which carries the memory of a program that runs, and driver process can't; add sandbox: true, or remove it
tine.yaml:2:28: servers.a.fork_ahead: goes with sandbox, which carries the memory of a program that runs, and driver process can't; add sandbox: true, or remove it
tine.yaml:2:46: servers.a.on_fork: goes with sandbox, which carries the memory of a program that runs, and driver process can't; add sandbox: true, or remove it
tine.yaml:3:18: servers.b.warm: goes with sandbox, which carries the memory of a program that runs, but this server has docker; remove it
tine.yaml:4:24: servers.c.fork_ahead: goes with sandbox, which carries the memory of a program that runs, but this server has a builtin; remove it
tine.yaml:5:25: servers.d.on_fork: goes with sandbox, which carries the memory of a program that runs, but this server has a url; remove it`},
		{"on the network of the host", "servers: {a: {command: x, sandbox: {network: host}, warm: 1, fork_ahead: false}}\n",
			`tine.yaml:1:53: servers.a.warm: copies a running server, and one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org], or remove it`},
		{"shared", "servers: {a: {command: x, sandbox: true, scope: shared, warm: 1}}\n",
			`tine.yaml:1:57: servers.a.warm: goes with scope: session; one that is shared is there for every session as it is, so remove it`},
		{"with another fork", "servers: {a: {command: x, sandbox: true, fork: fresh, warm: 1, fork_ahead: true, on_fork: tool x}}\n",
			`tine.yaml:1:64: servers.a.fork_ahead: goes with fork: memory, but fork is fresh; remove one of them
tine.yaml:1:82: servers.a.on_fork: goes with fork: memory, but fork is fresh; remove one of them`},
		{"ahead with files", "servers:\n  a: {command: x, args: ['${state.d}'], state: [d], sandbox: true, fork_ahead: true}\n  b: {command: x, workspace: true, sandbox: true, fork_ahead: true}\n",
			`tine.yaml:2:68: servers.a.fork_ahead: copies a server before the fork, so that the files in state would be of another moment than its memory; remove it, or have the server use neither state nor workspace
tine.yaml:3:51: servers.b.fork_ahead: copies a server before the fork, so that the files in the workspace would be of another moment than its memory; remove it, or have the server use neither state nor workspace`},
		{"warm with the workspace", "servers:\n  a: {command: x, args: ['${workspace}'], sandbox: true, warm: 1}\n  b: {command: x, args: ['${state.d}'], state: [d], sandbox: true, warm: 1}\n",
			`tine.yaml:2:58: servers.a.warm: begins new sessions with a server that was started before them, in a workspace that is not theirs; remove it, or have the server do without the workspace`},
		{"values", "servers: {a: {command: x, sandbox: true, warm: 1001, fork_ahead: maybe, on_fork: tool}, b: {command: x, sandbox: true, on_fork: {tool: 'a b'}}, c: {command: x, sandbox: true, on_fork: {}}, d: {command: x, sandbox: true, on_fork: tool a/b}, e: {command: x, sandbox: true, on_fork: true}, f: {command: x, sandbox: true, on_fork: {tol: x}}}\n",
			`tine.yaml:1:48: servers.a.warm: 1001 is out of range; want 0 to 1000
tine.yaml:1:66: servers.a.fork_ahead: got "maybe", want true or false
tine.yaml:1:82: servers.a.on_fork: got "tool", want notify, tool NAME, or {tool: NAME}
tine.yaml:1:136: servers.b.on_fork.tool: "a b" does not name a tool; use 1 to 128 letters, digits, dots, dashes and underscores
tine.yaml:1:176: servers.c.on_fork: tool is missing; write on_fork: {tool: NAME}, or on_fork: notify
tine.yaml:1:230: servers.d.on_fork: "tool a/b" does not name a tool; use 1 to 128 letters, digits, dots, dashes and underscores
tine.yaml:1:281: servers.e.on_fork: got true, want notify, tool NAME, or {tool: NAME}
tine.yaml:1:319: servers.f.on_fork: tool is missing; write on_fork: {tool: NAME}, or on_fork: notify
tine.yaml:1:329: unknown key "tol" in servers.f.on_fork; did you mean "tool"?`},
	})
}

// What is fetched before it runs has longer to start, in a sandbox alone.
func TestSandboxConnectTimeout(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"command: npx, sandbox: true":                       2 * time.Minute,
		"command: /usr/bin/uvx, sandbox: true":              2 * time.Minute,
		"command: npxy, sandbox: true":                      time.Minute,
		"command: npx, sandbox: true, connect_timeout: 10s": 10 * time.Second,
		"command: npx": time.Minute,
	} {
		if got := mustParse(t, "servers: {a: {"+in+"}}\n", noEnv()).Servers[0].ConnectTimeout; got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestCopied(t *testing.T) {
	for in, want := range map[string]string{ // warm, fork_ahead, on_fork, fork, workspace, what is in state
		"warm: 3":                        "3 false <nil>  false []",
		"warm: 1000, fork: fresh":        "1000 false <nil> fresh false []",
		"fork_ahead: true":               "0 true <nil>  false []",
		"fork_ahead: true, fork: memory": "0 true <nil> memory false []",
		"on_fork: notify":                "0 false &{true }  false []",
		"on_fork: tool reseed":           "0 false &{false reseed}  false []",
		"on_fork: {tool: reseed}":        "0 false &{false reseed}  false []",
		"warm: 2, args: ['${state.d}'], state: {d: ./t}, fork: files":                     "2 false <nil> files false [{d /srv/t}]",
		"args: ['${workspace}'], fork: files":                                             "0 false <nil> files true []",
		"warm: 0, fork_ahead: false, env: {A: '${state.d}'}, state: [d], on_fork: notify": "0 false &{true }  false [{d }]",
	} {
		opts := noEnv()
		opts.Path = "/srv/tine.yaml"
		c := mustParse(t, "servers: {a: {command: x, sandbox: true, "+in+"}}\n", opts)
		s := c.Servers[0]
		got := fmt.Sprintln(s.Warm, s.ForkAhead, s.OnFork, s.Fork, s.Workspace, s.State)
		got = strings.Join(strings.Fields(got), " ")
		if want = strings.Join(strings.Fields(want), " "); got != want || len(c.Warnings) > 0 {
			t.Errorf("%s: got %s, want %s; %q", in, got, want, c.Warnings)
		}
	}
	// Off is off, whatever runs the server.
	mustParse(t, "servers: {a: {builtin: time, warm: 0, fork_ahead: false}}\n", noEnv())
}

func TestSandboxElsewhere(t *testing.T) {
	opts := noEnv()
	opts.OS = "darwin"
	c := mustParse(t, "servers:\n  a: {command: x, sandbox: true}\n  b: {command: x, driver: sandbox}\n  c: {command: x, sandbox: true, enabled: false}\n  d: {command: x}\n", opts)
	off := func(id string) string {
		return `server "` + id + `" is off: a sandbox needs Linux, and this is darwin; run Tine on Linux, or use docker or no sandbox here`
	}
	want := "tine.yaml:2:19: " + off("a") + "\ntine.yaml:3:19: " + off("b")
	if got := strings.Join(c.Warnings, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i, want := range []string{off("a"), off("b"), off("c"), ""} {
		if got := c.Servers[i].Disabled; got != want {
			t.Errorf("%s is off because %q", c.Servers[i].ID, got)
		}
	}
}

// walled has every key of a sandbox, and a placeholder where one may stand.
const walled = `servers:
  py:
    command: /py
    args: ["--dir=${state.data}"]
    env: {KEY: "${SECRET}"}
    state: {data: ./seed}
    sandbox:
      root: /roots/${SECRET}
      allow_read: [/data, "/${SECRET}/r"]
      allow_write: ["/${SECRET}/w"]
      deny_read: ["/${SECRET}/d"]
      user: ${UID}
      hostname: ${SECRET}
      network: ["${SECRET}.example.org", "*.cdn.example.org:8443"]
      port: 8000
      path: /${SECRET}
      memory: 512MiB
      cpus: 0.5
      pids: 64
      files: 128
      disk: 64MiB
      slots: 0
    warm: 4
    on_fork: tool ${SECRET}
  plain: {command: npx, args: [-y, some-server], sandbox: true, fork_ahead: true, on_fork: notify, fork: memory}
  open: {command: x, args: ["${workspace}"], sandbox: {network: host, root: host}, warm: 0}
`

// What is shown of a config without secrets is a config that means the same.
func TestSandboxRoundTrip(t *testing.T) {
	plain := strings.NewReplacer("${SECRET}", "s3", "${UID}", "7:8", "KEY: ", "NAME: ").Replace(walled)
	c := mustParse(t, plain, noEnv())
	shown := string(Marshal(c))
	back := mustParse(t, shown, noEnv())
	if ch := Diff(c, back); !ch.Empty() || len(c.Warnings)+len(back.Warnings) > 0 {
		t.Errorf("%+v, %q, %q; shown as\n%s", ch, c.Warnings, back.Warnings, shown)
	}
	for _, part := range []string{`    driver: sandbox
    command: /py
    args: ["--dir=${state.data}"]
    env:
      NAME: s3
`, `    sandbox:
      root: /roots/s3
      allow_read: [/data, /s3/r]
      allow_write: [/s3/w]
      deny_read: [/s3/d]
      user: "7:8"
      hostname: s3
      network: [s3.example.org, "*.cdn.example.org:8443"]
      transport: http
      port: 8000
      path: /s3
      memory: 512MiB
      cpus: 0.5
      pids: 64
      files: 128
      disk: 64MiB
      slots: 0
`, `    sandbox:
      root: allow
      user: "1000:1000"
      hostname: sandbox
      network: none
      transport: stdio
      memory: 2GiB
      pids: 512
      files: 4096
      disk: 1GiB
      slots: 2
    workspace: false
    fork: memory
    budget: {memory: 128MiB}
    warm: 0
    fork_ahead: true
    on_fork: notify
`, "    warm: 4\n    fork_ahead: false\n    on_fork: \"tool s3\"\n"} {
		if !strings.Contains(shown, part) {
			t.Errorf("no\n%s\nin\n%s", part, shown)
		}
	}
}

// A value whose placeholder is missing must not move the others, nor what is
// hidden of them.
func TestSandboxSecrets(t *testing.T) {
	for _, gone := range []string{"", "${NOPE}"} {
		in := strings.ReplaceAll(walled, "[/data, ", "[/data, \"/x"+gone+"\", ")
		in = strings.ReplaceAll(in, "network: [", "network: [\"y"+gone+"\", ")
		c := mustParse(t, in, env(map[string]string{"SECRET": "hunter2-hunter2", "UID": "700:800"}))
		s := c.Servers[0]
		if (s.Disabled != "") != (gone != "") {
			t.Errorf("off because %q", s.Disabled)
		}
		pin, err := s.Pin()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unpin(pin)
		if err != nil || !back.same(&s) || !reflect.DeepEqual(back.hidden, s.hidden) {
			t.Errorf("%v: came back as\n%+v\nand was\n%+v", err, back, s)
		}
		shown := string(Marshal(c)) + s.Target() + back.Target()
		for _, secret := range []string{"hunter2", "700"} {
			if strings.Contains(shown, secret) {
				t.Errorf("%s is shown:\n%s", secret, shown)
			}
		}
		for _, want := range []string{"/roots/hunter2-hunter2", "/hunter2-hunter2/r", "/hunter2-hunter2/w", "/hunter2-hunter2/d", "hunter2-hunter2.example.org", "hunter2-hunter2", "/hunter2-hunter2"} {
			if !slices.Contains(s.Secrets(), want) {
				t.Errorf("%s is no secret: %q", want, s.Secrets())
			}
		}
		if want := "on_fork: \"tool ****\"\n"; !strings.Contains(shown, want) {
			t.Errorf("no %s in\n%s", want, shown)
		}
	}
}

// What is ready, and how a copy hears of it, changes nothing about what runs.
func TestHashOfSandbox(t *testing.T) {
	parse := func(more string) string {
		c, err := Parse([]byte("servers: {a: {command: x, "+more+"}}"), Options{Path: "tine.yaml", OS: "linux"})
		if err != nil {
			t.Fatal(err)
		}
		return c.Servers[0].SpecHash()
	}
	base := parse("sandbox: true")
	for _, more := range []string{"sandbox: {slots: 9}", "sandbox: true, warm: 3", "sandbox: true, fork_ahead: true", "sandbox: true, on_fork: notify", "driver: sandbox"} {
		if parse(more) != base {
			t.Errorf("%s is something else", more)
		}
	}
	for _, more := range []string{"scope: session", "sandbox: {network: host}", "sandbox: {memory: 1GiB}", "sandbox: {deny_read: [/a]}"} {
		if got := parse(more); got == base || strings.TrimSpace(got) == "" {
			t.Errorf("%s is the same", more)
		}
	}
}
