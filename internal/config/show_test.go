package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestMarshal(t *testing.T) {
	opts := env(map[string]string{"TOKEN": "correct-horse-battery", "CALLS": "7", "OFF": "false"})
	opts.Path = filepath.Join(string(filepath.Separator), "srv", "tine.yaml")
	in := everyKey + `  gh:
    url: https://ada:hunter2@api.example.com/mcp?api_key=hunter2&page=3
  all:
    url: ${UNSET:-https://x.example.org}
    enabled: false
  secretive:
    command: run
    args: [--token, hunter2, --api-key=hunter2, "X-Key: hunter2", "postgres://a:hunter2@h/db", ghp_hunter2hunter2, --port, 80]
    env: {API_KEY: hunter2, URL: "https://a:hunter2@h/", PLAIN: shown, AUTH: hunter2, EMPTY_TOKEN: ""}
  lost: {command: "${NOPE}"}
  person: {url: "https://h", auth: {type: login, client_id: hunter, client_secret: hunter2, scopes: "a ${CALLS}", audience: "${TOKEN}"}}
  set: {builtin: fetch, settings: {password: hunter2, list: [{token: hunter2}], u: "https://a:hunter2@h/"}}
`
	c := mustParse(t, in, opts)
	got := strings.ReplaceAll(string(Marshal(c)), `\\`, "/")
	for _, secret := range []string{"hunter2", "correct-horse", "0123456789abcdef"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	const want = `listen: "[::]:9000"
public_url: https://tine.example.org/gw
tls:
  cert: /srv/certs/tine.pem
  key: /home/ada/tine.key
cors:
  origins: [https://app.example.org, http://localhost:3000, "*"]
auth:
  tokens:
    - {name: ada, token: "****", role: user}
    - {name: ci, token: "****", role: operator}
    - {name: bo, hash: sha256:ab34567890123456789012345678901234567890123456789012345678901234, role: viewer}
  oidc:
    issuer: https://login.example.org/realms/x
    audience: [tine]
    scopes: [openid, mcp:use]
    principal: email
    algorithms: [ES256, EdDSA]
    ca_file: /srv/idp.pem
  rules:
    - {principals: [ada, "oidc:*@example.org"], claims: {email_verified: ["true"], groups: [admins, "team-*"], level: ["3"]}, role: operator}
    - {role: user, servers: ["f*", web], tools: ["fs.read_*", "web.*"]}
limits:
  body: 4000000
  header: 8KiB
  message: 1GiB
  connections: 10
  calls: 7
  list_wait: 500ms
  fetch: 1h
  idle: 1h30m
  drain: 0s
log:
  level: debug
  format: json
journal:
  mode: meta
  max_age: 30d
  max_size: 2TiB
telemetry:
  otlp:
    endpoint: https://otel.example.org:4318/
    headers:
      X-Key: "****"
    sample: 0.25
    ca_file: /srv/otel.pem
sessions:
  max: 100
  per_principal: 10
  ttl: 2d
  idle: 0s
  memory: 8GiB
  instances: 7
  share: "75%"
  snapshots: 5000000000
  wait: 0s
  max_wait: 1m30s
  fork_wait: 1m
  on_loss: refuse
  implicit: shared
  autosnapshot: {every: 20, before: ["fs.write_*", web.post], keep: 3}
workspace: {template: /home/ada/start}
sandbox_binary: /srv/bin/tine-sandbox
separator: .
long_names: shorten
default_view: web
errors: protocol
agents:
  dir: [/srv/agents, /home/ada/more]
  env: [GITHUB_TOKEN]
  concurrency: 3
  tags: [gpu]
  executors:
    own:
      type: command
      command: /srv/bin/own
      args: [-q, "2"]
      env:
        LEVEL: "3"
    claude-code:
      type: claude-code
  depth: 2
  children: 3
  runs: 4
  time: 2h
  match: 1m
  lease: 10s
  idle: 2d
  keep: 1d
servers:
  web:
    title: "The Web"
    driver: url
    url: https://mcp.example.org/mcp
    headers:
      Authorization: "****"
      X-Count: "****"
    transport: sse
    ca_file: /srv/ca.pem
    scope: session
    enabled: false
    eager: false
    protocol: "2025-06-18"
    client_capabilities: []
    connect_timeout: 1s
    timeout: 1m
    policy:
      max_timeout: 1h30m
      retry: {attempts: 5, pause: 1s, max_pause: 1m}
      breaker: {failures: 9, open: 1m30s, probes: 3}
      rate: {calls: 2.5, burst: 10}
      concurrency: {calls: 4, queue: 0, wait: 0s}
      cache: {lists: 0s, results: 36h, tools: ["get_*", "****"]}
    journal: "off"
  erp:
    title: erp
    driver: url
    url: https://erp.example.org/mcp
    transport: auto
    auth:
      type: client_credentials
      token_url: https://login.example.org/token
      client_id: tine
      client_secret: "****"
      scopes: [read, write]
      audience: erp
      resource: urn:erp
    credential: shared
    scope: shared
    enabled: true
    eager: false
    protocol: auto
    client_capabilities: [elicitation, sampling]
    connect_timeout: 10s
    timeout: 5m
    policy:
      max_timeout: 1h
      retry: {attempts: 1, pause: 200ms, max_pause: 5s}
      breaker: {failures: 0, open: 30s, probes: 1}
      rate: {calls: 3, burst: 3}
      concurrency: {calls: 0, queue: 128, wait: 10s}
      cache: {lists: 0s, results: 0s}
    journal: meta
  desk:
    title: desk
    driver: url
    url: https://desk.example.org/mcp
    transport: auto
    auth:
      type: login
      token_url: http://localhost:9/token
      auth_url: https://login.example.org/authorize
      client_id: abc
      scopes: [read, write]
      redirect: http://127.0.0.1:8765/callback
    credential: per-principal
    scope: shared
    enabled: true
    eager: false
    protocol: auto
    client_capabilities: [elicitation, sampling]
    connect_timeout: 10s
    timeout: 2h
    policy:
      max_timeout: 2h
      retry: {attempts: 3, pause: 200ms, max_pause: 5s}
      breaker: {failures: 5, open: 30s, probes: 1}
      rate: {calls: 0, burst: 1}
      concurrency: {calls: 0, queue: 128, wait: 10s}
      cache: {lists: 5m, results: 0s}
    journal: meta
  fs:
    title: fs
    driver: process
    command: /srv/bin/server
    args: [-y, "8", "0x10", "true", "1.50", "****"]
    env:
      DEBUG: "false"
      E: ""
      FOO: bar
      "N": "null"
      PORT: "8080"
      V: "1.0"
    workspace: false
    budget: {memory: 64MiB}
    scope: session
    enabled: true
    eager: true
    protocol: auto
    client_capabilities: [elicitation, sampling]
    tools:
      allow: ["read_*", list]
      deny: [read_secret]
      describe:
        list: Lists.
      rename:
        list: ls
        ls: list
    connect_timeout: 1m
    timeout: 5m
    policy:
      max_timeout: 1h
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, line := range []string{
		`    url: "https://****@api.example.com/mcp?api_key=****&page=3"`,
		"  all:\n    title: all\n    driver: url\n    url: \"****\"\n",
		"    args:\n      - --token\n      - \"****\"\n      - \"--api-key=****\"\n      - \"X-Key: ****\"\n      - \"postgres://****@h/db\"\n      - \"****\"\n      - --port\n      - \"80\"\n",
		"    env:\n      API_KEY: \"****\"\n      AUTH: \"****\"\n      EMPTY_TOKEN: \"\"\n      PLAIN: shown\n      URL: \"https://****@h/\"\n",
		"  # server \"lost\" is off: variable NOPE is not set (command); set it, or write ${NOPE:-default}\n  lost:\n",
		"    settings:\n      list: [{token: \"****\"}]\n      password: \"****\"\n      u: \"https://****@h/\"\n",
		"      zone: \"****\"\n",
		"    cwd: \"${workspace}/sub\"\n    state: {data: /srv/seed/data, log-1: null, cache: \"****\"}\n    workspace: true\n    fork: files\n    budget: {memory: 250000KiB}\n    scope: session\n",
		"    builtin: memory\n    template: /srv/notes.jsonl\n    workspace: false\n    fork: fresh\n    budget: {memory: 8MiB}\n",
		"    auth:\n      type: login\n      client_id: hunter\n      client_secret: \"****\"\n      scopes: [\"****\", \"****\"]\n      audience: \"****\"\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no\n%s\nin\n%s", line, got)
		}
	}
}

func TestTarget(t *testing.T) {
	c := mustParse(t, `servers:
  a: {command: npx, args: [-y, "my server", "${KEY}", --password, p, --verbose, x, "it's"]}
  b: {url: "https://u:p@h.example.org/x?sig=1&a=b#"}
  c: {builtin: time}
  d: {url: "https://${KEY}/"}
  e: {command: "${KEY}"}
  f: {url: "${NOPE}"}
`, env(map[string]string{"KEY": "hunter2"}))
	for id, want := range map[string]string{
		"a": `npx -y 'my server' **** --password **** --verbose x 'it'\''s'`,
		"b": "https://****@h.example.org/x?sig=****&a=b#",
		"c": "builtin time",
		"d": "****",
		"e": "****",
		"f": "",
	} {
		for i := range c.Servers {
			if s := &c.Servers[i]; s.ID == id && s.Target() != want {
				t.Errorf("%s: got %s, want %s", id, s.Target(), want)
			}
		}
	}
}

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://example.org/a?b=c":               "https://example.org/a?b=c",
		"https://user@example.org":                "https://****@example.org",
		"https://u:p@ss@example.org/x@y":          "https://****@example.org/x@y",
		"https://example.org?access_token=x&X=1":  "https://example.org?access_token=****&X=1",
		"https://example.org?q=eyJhbGciOiJIUzI1N": "https://example.org?q=****",
		"https://example.org?%74oken=x":           "https://example.org?%74oken=****",
		"https://example.org?a=%zz&token=x":       "https://example.org?a=%zz&token=****",
		"http://u:p%zz@h/":                        "http://****",
		"not a url":                               "not a url",
		"postgres://u:p@/db":                      "postgres://****@/db",
		"":                                        "",
	} {
		if got := RedactURL(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestDiff(t *testing.T) {
	const before = `servers:
  a: {command: npx, env: {K: v}}
  b: {url: "https://x.example.org"}
  c: {builtin: time}
`
	old := mustParse(t, before, noEnv())
	if ch := Diff(old, mustParse(t, before, noEnv())); !ch.Empty() {
		t.Errorf("the same file differs: %+v", ch)
	}
	same := mustParse(t, `
listen: ${L:-127.0.0.1:8463}
servers:
  c: {builtin: time, scope: shared, timeout: 300s}
  b: {url: "${U}", headers: {}, client_capabilities: [elicitation, sampling]}
  a: {command: npx, args: [], env: {K: "${V:-v}"}}
`, env(map[string]string{"U": "https://x.example.org"}))
	if ch := Diff(old, same); !ch.Empty() {
		t.Errorf("the same in other words differs: %+v", ch)
	}
	other := mustParse(t, `
listen: 127.0.0.1:1
limits: {calls: 1}
log: {level: debug}
default_view: d
servers:
  d: {builtin: fetch}
  a: {command: npx, env: {K: w}}
  c: {builtin: time, enabled: false}
`, noEnv())
	ch := Diff(old, other)
	got := strings.Join(ch.Added, ",") + " " + strings.Join(ch.Changed, ",") + " " + strings.Join(ch.Removed, ",") + " " + strings.Join(ch.Rest, ",")
	if want := "d a,c b listen,limits,log,default_view"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	auth := Diff(mustParse(t, "auth: {tokens: [{name: a, token: 0123456789abcdef}, {name: b, token: 1123456789abcdef}, {name: c, token: 2123456789abcdef}], rules: [{servers: [a]}]}", noEnv()),
		mustParse(t, "auth: {tokens: [{name: d, token: 0123456789abcdef}, {name: c, token: 2123456789abcdef}, {name: a, token: 3123456789abcdef}], oidc: {issuer: 'https://a'}, rules: [{servers: [a]}, {servers: [b]}]}", noEnv())).Auth
	if got, want := strings.Join(auth, "; "), "token d added; token a changed; token b removed; oidc added; rules changed, 1 before and 2 now"; got != want {
		t.Errorf("auth: got %s, want %s", got, want)
	}
	for was, is := range map[string]string{
		"auth: {tokens: [{name: a, token: 0123456789abcdef}]}":                            "auth: {tokens: [{name: a, token: 0123456789abcdef, role: viewer}]}",
		"auth: {oidc: {issuer: 'https://a'}}":                                             "auth: {}",
		"auth: {oidc: {issuer: 'https://a', scopes: a}}":                                  "auth: {oidc: {issuer: 'https://a', scopes: b}}",
		"auth: {oidc: {issuer: 'https://a', principal: sub}}":                             "auth: {oidc: {issuer: 'https://a', principal: email}}",
		"auth: {rules: [{claims: {g: a}}]}":                                               "auth: {rules: [{claims: {g: b}}]}",
		"auth: {rules: [{servers: [a]}]}":                                                 "auth: {rules: [{servers: [a]}, {servers: [b]}]}",
		"journal: {max_age: 1h}":                                                          "journal: {max_age: 2h}",
		"telemetry: {otlp: {endpoint: 'http://a', headers: {a: b}}}":                      "telemetry: {otlp: {endpoint: 'http://a', headers: {a: c}}}",
		"telemetry: {otlp: {sample: 0.5}}":                                                "telemetry: {}",
		"servers: {a: {builtin: time}}":                                                   "servers: {a: {builtin: time, policy: {retry: off}}}",
		"servers: {a: {url: 'http://a', policy: {cache: {tools: [a]}}}}":                  "servers: {a: {url: 'http://a', policy: {cache: {tools: [b]}}}}",
		"servers: {a: {url: 'http://a', auth: {type: login}}}":                            "servers: {a: {url: 'http://a', auth: {type: login, scopes: a}}}",
		"servers: {a: {url: 'http://a', auth: {type: login}, credential: per-principal}}": "servers: {a: {url: 'http://a', auth: {type: login}}}",
		"servers: {a: {builtin: time, journal: off}}":                                     "servers: {a: {builtin: time}}",
		"sessions: {max: 5}":                                                              "sessions: {max: 6}",
		"sessions: {autosnapshot: {before: a__b}}":                                        "sessions: {autosnapshot: {before: a__c}}",
		"workspace: true":                                                                 "workspace: ./t",
		"servers: {a: {command: x, args: ['${state.a}'], state: [a]}}":                    "servers: {a: {command: x, args: ['${state.a}'], state: {a: t}}}",
		"servers: {a: {builtin: memory}}":                                                 "servers: {a: {builtin: memory, template: x}}",
		"servers: {a: {builtin: memory, scope: session}}":                                 "servers: {a: {builtin: memory, fork: fresh}}",
		"servers: {a: {command: x}}":                                                      "servers: {a: {command: x, budget: {memory: 1GiB}}}",
		"template_roots: [/a]":                                                            "template_roots: [/a, /b]",
		"servers: {a: {docker: i}}":                                                       "servers: {a: {docker: {image: i, memory: 1GiB}}}",
		"servers: {a: {docker: {image: i, state: [/a]}}}":                                 "servers: {a: {docker: {image: i, state: [/a, /b]}}}",
		"servers: {a: {docker: {image: i, run_args: [--cap-drop, ALL]}}}":                 "servers: {a: {docker: i}}",
		"servers: {a: {command: x}}       ":                                               "servers: {a: {command: x, sandbox: true}}",
		"servers: {a: {command: x, sandbox: true}}":                                       "servers: {a: {command: x, sandbox: {network: [a.org]}}}",
		"servers: {a: {command: x, sandbox: {slots: 1}}}":                                 "servers: {a: {command: x, sandbox: {slots: 0}}}",
		"servers: {a: {command: x, sandbox: true, warm: 1}}":                              "servers: {a: {command: x, sandbox: true, warm: 2}}",
		"servers: {a: {command: x, sandbox: true, on_fork: notify}}":                      "servers: {a: {command: x, sandbox: true, on_fork: tool x}}",
		"servers: {a: {remote: {url: 'http://a', resource: x}}}":                          "servers: {a: {remote: {url: 'http://a', resource: y}}}",
		"servers: {a: {remote: {url: 'http://a', resource: x}, template: {a: 1}}}":        "servers: {a: {remote: {url: 'http://a', resource: x}, template: {a: 2}}}",
		"servers: {a: {builtin: time, startup: {tool: a}}}":                               "servers: {a: {builtin: time}}",
		"servers: {a: {builtin: rollout}}":                                                "servers: {a: {builtin: rollout, merged: true}}",
	} {
		a, b := mustParse(t, was, noEnv()), mustParse(t, is, noEnv())
		top, _, _ := strings.Cut(was, ":")
		if ch := Diff(a, b); top == "servers" && len(ch.Changed) != 1 || top != "servers" && strings.Join(ch.Rest, " ") != top {
			t.Errorf("%s and %s: %+v", was, is, ch)
		}
	}
	for was, is := range map[string]string{
		"auth: {oidc: {issuer: 'https://a'}}":                                              "auth: {oidc: {issuer: 'https://a', principal: sub, scopes: [], audience: [], algorithms: [EdDSA, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512]}, rules: []}",
		"auth: {tokens: [{name: a, token: 0123456789abcdef}], rules: [{servers: [a, b]}]}": "auth: {tokens: [{name: a, token: 0123456789abcdef, role: user}], rules: [{servers: [b, a], role: user}]}",
		"sessions: {memory: 75%}":                                                          "sessions: {memory: 12GiB, snapshots: 64GiB, autosnapshot: {before: []}}",
		"servers: {a: {builtin: files}}":                                                   "{workspace: true, servers: {a: {builtin: files, workspace: true, scope: session, budget: {memory: 1MiB}}}}",
		"servers: {a: {command: x, args: ['${state.a}'], state: [a]}}":                     "servers: {a: {command: x, args: ['${state.a}'], state: {a: null}}}",
		"servers: {a: {docker: i}}":                                                        "servers: {a: {docker: {image: i, pull: missing, memory: 2GiB, pids: 512, binds: [], labels: {}, command: [], transport: stdio}}}",
		"servers: {b: {docker: {image: i, memory: 1GiB}}}":                                 "servers: {b: {docker: {image: i, run_args: '-m 1g --rm'}}}",
		"servers: {a: {command: x, sandbox: true, on_fork: tool x}}":                       "servers: {a: {command: x, driver: sandbox, on_fork: {tool: x}, warm: 0, fork_ahead: false, sandbox: {root: allow, allow_read: [], network: none, user: 1000, slots: 2, transport: stdio, memory: 2GiB}}}",
		"servers: {a: {command: x, sandbox: false}}":                                       "servers: {a: {command: x}}",
		"servers: {a: {builtin: memory}}":                                                  "servers: {a: {preset: memory}}",
		"servers: {a: {remote: {url: 'http://a', resource: x}, template: {a: 1, b: 2}}}":   "servers: {a: {remote: {url: 'http://a/', resource: x, attempts: 3, timeout: 30s}, template: {b: 2, a: 1}}}",
		"servers: {a: {command: x, startup: {tool: a}}}":                                   "servers: {a: {command: x, startup: {tool: a, arguments: {}}}}",
		"journal: off":                  "journal: {mode: off, max_age: 7d, max_size: 1GiB}",
		"servers: {a: {builtin: time}}": "servers: {a: {builtin: time, journal: full, policy: {max_timeout: 1h, rate: {burst: 1}, cache: {tools: []}, retry: {}}}}",
	} {
		if ch := Diff(mustParse(t, was, noEnv()), mustParse(t, is, noEnv())); !ch.Empty() {
			t.Errorf("%s and %s: %+v", was, is, ch)
		}
	}
	// A variable that comes or goes changes its server.
	withVar := "servers: {a: {command: npx, args: ['${V}']}}"
	if ch := Diff(mustParse(t, withVar, noEnv()), mustParse(t, withVar, env(map[string]string{"V": ""}))); len(ch.Changed) != 1 {
		t.Errorf("a variable that was set: %+v", ch)
	}
}
