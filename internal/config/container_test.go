package config

import "testing"

func TestContainerErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"two ways", "servers:\n  a:\n    command: x\n    docker: img\n",
			`tine.yaml:4:5: servers.a: command and docker exclude each other; keep one`},
		{"no image", "servers: {a: {docker: {}}}\n",
			`tine.yaml:1:15: servers.a.docker: image is missing; name the image of the server, as in docker: {image: NAME}`},
		{"an image that is none", "servers: {a: {docker: 'two words'}, b: {docker: -x}, c: {docker: 3}}\n",
			`tine.yaml:1:23: servers.a.docker.image: "two words" can't name an image; write NAME, NAME:TAG or NAME@DIGEST
tine.yaml:1:49: servers.b.docker.image: "-x" can't name an image; write NAME, NAME:TAG or NAME@DIGEST
tine.yaml:1:66: servers.c.docker: want a map of host, image, pull, entrypoint, command, workdir, user, hostname, transport, port, path, reach, state, template_path, binds, tmpfs, network, runtime, memory, cpus, pids, shm_size, cap_add, labels, plain, writable, init, run_args, got a number`},
		{"unknown key", "servers: {a: {docker: {image: i, comand: x}}}\n",
			`tine.yaml:1:34: unknown key "comand" in servers.a.docker; did you mean "command"?`},
		{"keys of a program", "servers: {a: {docker: i, args: [x], cwd: y, state: [z]}}\n",
			`tine.yaml:1:26: servers.a.args: goes with command, but this server has docker; that is docker.command
tine.yaml:1:37: servers.a.cwd: goes with command, but this server has docker; that is docker.workdir
tine.yaml:1:45: servers.a.state: goes with command, but this server has docker; that is docker.state`},
		{"keys of a url", "servers: {a: {docker: i, headers: {a: b}, transport: sse, credential: shared}}\n",
			`tine.yaml:1:26: servers.a.headers: goes with url or remote, but this server has docker
tine.yaml:1:43: servers.a.transport: goes with url, but this server has docker; that is docker.transport
tine.yaml:1:59: servers.a.credential: goes with url, but this server has docker`},
		{"another driver", "servers: {a: {docker: i, driver: process}}\n",
			`tine.yaml:1:34: servers.a.driver: "process" does not go with docker; write driver: docker, or leave it out`},

		{"http without a port", "servers: {a: {docker: {image: i, transport: http}}}\n",
			`tine.yaml:1:34: servers.a.docker: port is missing, which transport http needs; say where in the container the server listens`},
		{"http keys of stdio", "servers: {a: {docker: {image: i, reach: port, path: /mcp}}, b: {docker: {image: i, transport: stdio, port: 1}}}\n",
			`tine.yaml:1:34: servers.a.docker.reach: goes with transport: http, but this is stdio; set a port, or remove it
tine.yaml:1:47: servers.a.docker.path: goes with transport: http, but this is stdio; set a port, or remove it
tine.yaml:1:102: servers.b.docker.port: goes with transport: http, but this is stdio; set a port, or remove it`},
		{"a path that is none", "servers: {a: {docker: {image: i, port: 1, path: mcp}}}\n",
			`tine.yaml:1:49: servers.a.docker.path: "mcp" is not the path of a URL; write it like /mcp`},
		{"http on no network", "servers: {a: {docker: {image: i, port: 1, network: none}}, b: {docker: {image: i, port: 1, run_args: [--net=host]}}}\n",
			`tine.yaml:1:43: servers.a.docker.network: with none a server that speaks http can't be reached; name a network of the engine such as bridge, or leave it out
tine.yaml:1:64: servers.b.docker.network: on the network of the host the first session would take the port; name another network, or write scope: shared`},

		{"state", "servers: {a: {docker: {image: i, state: [data, /, /a, root, /a/b]}}, b: {docker: {image: i, state: []}}}\n",
			`tine.yaml:1:42: servers.a.docker.state[0]: "data" is not a whole path in the container; write it like /data, or root for the container itself
tine.yaml:1:48: servers.a.docker.state[1]: "/" is the container itself; write state: [root]
tine.yaml:1:55: servers.a.docker.state[3]: root is the container as a whole, and nothing stands beside it; keep it alone, or remove it
tine.yaml:1:61: servers.a.docker.state[4]: "/a/b" and another lie in each other; keep the one above
tine.yaml:1:100: servers.b.docker.state: names nothing; write state: [/data], or state: [root] for the container itself`},
		{"relative paths", "servers: {a: {docker: {image: i, workdir: srv, tmpfs: [tmp], binds: [{source: /a, target: a}, '/x:y', '/x']}}}\n",
			`tine.yaml:1:43: servers.a.docker.workdir: "srv" is not a whole path in the container; write it like /srv
tine.yaml:1:56: servers.a.docker.tmpfs[0]: want a whole path in the container below its root, like /tmp
tine.yaml:1:91: servers.a.docker.binds[0].target: "a" is not a whole path in the container; write it like /data
tine.yaml:1:95: servers.a.docker.binds[1]: "/x:y" is not SOURCE:TARGET with a whole path in the container; write it like ./data:/data:ro
tine.yaml:1:103: servers.a.docker.binds[2]: "/x" is a volume without a source, which would not be found again; name it as state, or write SOURCE:TARGET`},
		{"over each other", "servers: {a: {docker: {image: i, state: [/d], tmpfs: [/d/t, /x], binds: ['a:/d', 'a:/x', 'a:/y', 'b:/y', 'c:/']}}}\n",
			`tine.yaml:1:55: servers.a.docker.tmpfs[0]: lies over what is state, and memory is forgotten; choose another path
tine.yaml:1:74: servers.a.docker.binds[0]: lies over what is state, and what is bound there would be shared by every fork; remove one of them
tine.yaml:1:82: servers.a.docker.binds[1]: something else has the same target already; keep one
tine.yaml:1:98: servers.a.docker.binds[3]: something else has the same target already; keep one
tine.yaml:1:106: servers.a.docker.binds[4]: target can't be the root of the container; choose a path below it`},
		{"Tine's own", "servers: {a: {docker: {image: i, binds: ['tine-state-x:/d'], labels: {tine.server: b}, run_args: [--label, tine.role=x, -v, 'tine-v:/x']}}}\n",
			`tine.yaml:1:42: servers.a.docker.binds[0]: volumes whose names begin with tine are Tine's own, which it removes; use another
tine.yaml:1:71: servers.a.docker.labels: "tine.server" is none to choose, as those of Tine's own begin with tine; call it otherwise
tine.yaml:1:99: servers.a.docker.run_args: --label: labels of Tine's own begin with tine; call it otherwise
tine.yaml:1:121: servers.a.docker.run_args: --volume: volumes whose names begin with tine are Tine's own, which it removes; use another`},
		{"too little", "servers: {a: {docker: {image: i, memory: 5MiB, cpus: 0, pids: 0}}}\n",
			`tine.yaml:1:42: servers.a.docker.memory: "5MiB" is out of range; want 6MiB to 1024TiB
tine.yaml:1:54: servers.a.docker.cpus: 0 is out of range; want 0.01 to 1024
tine.yaml:1:63: servers.a.docker.pids: 0 is out of range; want 1 to 4194304`},
		{"a root that is state and not writable", "servers: {a: {docker: {image: i, state: [root], writable: false}}, b: {docker: {image: i, state: [root], run_args: --read-only}}}\n",
			`tine.yaml:1:49: servers.a.docker.writable: is false, but the root is the state; remove one of them
tine.yaml:1:106: servers.b.docker.run_args: --read-only, but the root is the state; remove one of them`},
		{"an engine behind ssh", "servers: {a: {docker: {image: i, host: 'ssh://me@box'}}}\n",
			`tine.yaml:1:40: servers.a.docker.host: an engine can't be reached over ssh; forward its socket (ssh -L) and write unix:///that/socket`},
		{"an engine's address", "servers: {a: {docker: {image: i, host: /var/run/docker.sock}}}\n",
			`tine.yaml:1:40: servers.a.docker.host: "/var/run/docker.sock" is not an engine's address; write it like unix:///var/run/docker.sock or tcp://engine.example.org:2376`},

		{"template without state", "servers: {a: {docker: i, template: ./t}}\n",
			`tine.yaml:1:26: servers.a.template: is what the state begins with, and there is none; add docker.state: [PATH], or [root] for the container itself`},
		{"template without a place", "servers: {a: {docker: {image: i, state: [root]}, template: ./t}}\n",
			`tine.yaml:1:50: servers.a.template: nothing says where it goes in the container; add docker.template_path`},
		{"a place without a template", "servers: {a: {docker: {image: i, state: [/d], template_path: /d/x}}}\n",
			`tine.yaml:1:62: servers.a.docker.template_path: says where a template goes, and there is none; add template, or template_roots at the top for those of sessions`},
		{"a place that is lost", "servers: {a: {docker: {image: i, state: [/d], template_path: /e}, template: ./t}, b: {docker: {image: i, state: [root], binds: ['x:/e'], template_path: /e/f}, template: ./t}, c: {docker: {image: i, state: [root], tmpfs: [/e], template_path: /e}, template: ./t}}\n",
			`tine.yaml:1:62: servers.a.docker.template_path: "/e" lies outside of what is state, so no fork would have it; add it to docker.state, or choose a path below one of it
tine.yaml:1:153: servers.b.docker.template_path: "/e/f" lies in what is bound, which belongs to the host; choose another, or remove the bind
tine.yaml:1:242: servers.c.docker.template_path: "/e" lies in a tmpfs, which begins empty; choose another, or remove that`},
		{"template roots", "template_roots: [/, '']\n",
			`tine.yaml:1:18: template_roots[0]: "/" is everything there is, and any caller who opens a session could read it; name the directory of the templates
tine.yaml:1:21: template_roots[1]: is empty; name a directory, or remove it`},

		{"what is filled in at a start", "servers: {a: {docker: {image: i, command: ['${workspace}']}, env: {A: '${state.x}'}}}\n",
			`tine.yaml:1:44: servers.a.docker.command[0]: ${workspace} is known only in args, env and cwd of a server, as there is none before one starts
tine.yaml:1:71: servers.a.env.A: ${state.x} is known only in args, env and cwd of a server, as there is none before one starts`},
		{"workspace", "servers: {a: {docker: i, workspace: true}}\n",
			`tine.yaml:1:37: servers.a.workspace: a container has no workspace; name what it remembers with docker.state, and remove this`},
		{"forks", "servers: {a: {docker: i, fork: memory}, b: {docker: i, fork: files}}\n",
			`tine.yaml:1:32: servers.a.fork: "memory" copies a running server, which driver docker can't; builtin, sandbox or remote with remote.fork or remote.snapshot can; use files with docker.state, fresh, share or refuse
tine.yaml:1:62: servers.b.fork: "files" carries the files of a server, and this one has none that Tine knows of; name them with docker.state: [PATH], or [root] for the container itself`},
		{"startup and merged", "servers: {a: {docker: i, startup: {arguments: 3}, merged: true}, b: {builtin: time, merged: false}, c: {command: x, startup: {tool: 'a b', arguments: {x: .inf}}}}\n",
			`tine.yaml:1:26: servers.a.startup: tool is missing; name the tool that a new instance must answer
tine.yaml:1:47: servers.a.startup.arguments: want a map, got a number
tine.yaml:1:51: servers.a.merged: goes with builtin: rollout and builtin: orchestrator; all others are in the merged view, so remove it
tine.yaml:1:85: servers.b.merged: goes with builtin: rollout and builtin: orchestrator; all others are in the merged view, so remove it
tine.yaml:1:133: servers.c.startup.tool: "a b" is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores
tine.yaml:1:151: servers.c.startup.arguments: can't be written as JSON; use plain numbers`},
	})
}
