package config

import "testing"

func TestOrchestratorErrors(t *testing.T) {
	const at = "servers: {a: {remote: {url: 'https://o.example.org', resource: x"
	testErrors(t, []wrongConfig{
		{"nothing", "servers: {a: {remote: {}}}\n",
			`tine.yaml:1:15: servers.a.remote: url is missing; it is where the orchestrator is
tine.yaml:1:15: servers.a.remote: resource is missing; it says what kind of instance to make`},
		{"a string", "servers: {a: {remote: 'https://o.example.org'}}\n",
			`tine.yaml:1:23: servers.a.remote: want a map of type, url, resource, create, delete, call, fork, snapshot, health, create_tool, call_tool, list_tool, delete_tool, timeout, connect_timeout, attempts, got a string`},
		{"no url", "servers: {a: {remote: {url: o.example.org, resource: ''}}}\n",
			`tine.yaml:1:29: servers.a.remote.url: "o.example.org" is not an absolute http or https URL; write it like https://orchestrator.example.org
tine.yaml:1:54: servers.a.remote.resource: is empty; say what kind of instance to make`},
		{"a user", "servers: {a: {remote: {url: 'https://u:p@o.example.org', resource: x}}}\n",
			`tine.yaml:1:29: servers.a.remote.url: has a user; put the credentials into headers or auth`},
		{"a query", "servers: {a: {remote: {url: 'https://o.example.org?a=b', resource: x}}}\n",
			`tine.yaml:1:29: servers.a.remote.url: has a query, and paths are put after it; remove it`},
		{"paths", at + ", create: make, delete: /all, call: '/{id}', health: '/{remote_instance_id}'}}}\n",
			`tine.yaml:1:75: servers.a.remote.create: "make" is not a path below url; write it like /instances
tine.yaml:1:89: servers.a.remote.delete: "/all" does not say which instance; write it like /instances/{remote_instance_id}
tine.yaml:1:101: servers.a.remote.call: "/{id}" is not a path below url; write it like /instances/{remote_instance_id}/call
tine.yaml:1:118: servers.a.remote.health: "/{remote_instance_id}" names an instance, and there is none yet; write it like /health`},
		{"keys of the other type", at + ", type: mcp, create: /x}}, b: {remote: {url: 'https://o.example.org', resource: x, call_tool: y}}}\n",
			`tine.yaml:1:78: servers.a.remote.create: goes with type: http, but this is type mcp; remove it
tine.yaml:1:148: servers.b.remote.call_tool: goes with type: mcp, but this is type http; remove it`},
		{"a login", at + "}, auth: {type: login}, credential: per-principal}}\n",
			`tine.yaml:1:68: servers.a.auth: type login goes with url; an orchestrator is asked by Tine itself, so use client_credentials or headers
tine.yaml:1:89: servers.a.credential: goes with url, but this server has remote`},
		{"keys of others", at + "}, env: {A: b}, budget: {memory: 1MiB}, workspace: true}}\n",
			`tine.yaml:1:68: servers.a.env: goes with command or docker, but this server has remote
tine.yaml:1:81: servers.a.budget: goes with command, builtin or docker, but this server has remote
tine.yaml:1:116: servers.a.workspace: a server that an orchestrator runs can't see a directory of this machine; remove it`},
		{"fork memory", at + "}, fork: memory}}\n",
			`tine.yaml:1:74: servers.a.fork: "memory" copies a running server, and nothing says that the orchestrator of "a" can; name its endpoint with remote.fork: /instances/{remote_instance_id}/fork, or remote.snapshot, or use fresh, share or refuse`},
		{"fork files", at + ", fork: '/i/{remote_instance_id}/f'}, fork: files}}\n",
			`tine.yaml:1:109: servers.a.fork: "files" carries files that Tine knows of, and the instances of "a" are the orchestrator's; use memory with remote.fork or remote.snapshot, fresh, share or refuse`},
		{"fork of an MCP server", at + ", type: mcp}, fork: memory}}\n",
			`tine.yaml:1:85: servers.a.fork: "memory" copies a running server, and an orchestrator of type mcp has no tool for that; use fresh, share or refuse`},
		{"a template that is nothing", at + "}, template: }}\n",
			`tine.yaml:1:68: servers.a.template: is empty; say what an instance begins with, or remove it`},
		{"what is filled in at a start", at + "}, template: {a: '${workspace}'}}}\n",
			`tine.yaml:1:82: servers.a.template.a: ${workspace} is known only in args, env and cwd of a server, as there is none before one starts`},
	})
}
