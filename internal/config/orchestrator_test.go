package config

import (
	"reflect"
	"testing"
	"time"
)

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
tine.yaml:1:116: servers.a.workspace: a server that somebody else runs can't see a directory of this machine; remove it`},
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

func TestOrchestrator(t *testing.T) {
	c := mustParse(t, `servers:
  a: {remote: {url: "https://o.example.org/api/", resource: memory_v1}}
  b:
    remote:
      url: https://o.example.org
      resource: x
      create: /make
      delete: /drop/{remote_instance_id}
      call: /call/{remote_instance_id}
      fork: /fork/{remote_instance_id}
      snapshot: /snap/{remote_instance_id}
      health: /ok
      timeout: 1m
      connect_timeout: 1s
      attempts: 1
    headers: {X-Key: "${KEY}"}
    template: {size: 3, tags: [a, "${KEY}"]}
    fork: memory
  c:
    remote: {type: mcp, url: "https://o.example.org/mcp/", resource: y, create_tool: make}
    auth: {type: client_credentials, token_url: "https://l.example.org", client_id: tine, client_secret: "${KEY}"}
    template: snapshot:base
    scope: shared
  d: {remote: {url: "https://o.example.org", resource: x, snapshot: "/snap/{remote_instance_id}"}, template: named, fork: memory}
`, env(map[string]string{"KEY": "hunter2-hunter2"}))
	for id, want := range map[string]Remote{
		"a": {Type: "http", URL: "https://o.example.org/api", Resource: "memory_v1", Create: "/instances", Delete: "/instances/{remote_instance_id}",
			Timeout: 30 * time.Second, ConnectTimeout: 5 * time.Second, Attempts: 3},
		"b": {Type: "http", URL: "https://o.example.org", Resource: "x", Create: "/make", Delete: "/drop/{remote_instance_id}", Call: "/call/{remote_instance_id}",
			Fork: "/fork/{remote_instance_id}", Snapshot: "/snap/{remote_instance_id}", Health: "/ok", Timeout: time.Minute, ConnectTimeout: time.Second, Attempts: 1},
		"c": {Type: "mcp", URL: "https://o.example.org/mcp/", Resource: "y", CreateTool: "make", CallTool: "call_backend_tool", ListTool: "list_backend_tools",
			DeleteTool: "cleanup_session", Timeout: 30 * time.Second, ConnectTimeout: 5 * time.Second, Attempts: 3},
	} {
		if s := serverOf(t, c, id); !reflect.DeepEqual(*as[Remote](s), want) || s.Driver != "remote" || s.Budget.Memory != 0 || s.ConnectTimeout != time.Minute {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, *as[Remote](s), want)
		}
	}
	a, b, m, d := serverOf(t, c, "a"), serverOf(t, c, "b"), serverOf(t, c, "c"), serverOf(t, c, "d")
	if a.Scope != "session" || m.Scope != "shared" || m.Template != "snapshot:base" || m.Details != nil {
		t.Errorf("%+v %+v", a, m)
	}
	if string(b.Details) != `{"size":3,"tags":["a","hunter2-hunter2"]}` || string(d.Details) != `"named"` || b.Template != "" {
		t.Errorf("templates %s, %s", b.Details, d.Details)
	}
}
