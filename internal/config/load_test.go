package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func mustParse(t *testing.T, in string, opts Options) *Config {
	t.Helper()
	c, err := Parse([]byte(in), opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serverOf(t *testing.T, c *Config, id string) Server {
	t.Helper()
	for _, s := range c.Servers {
		if s.ID == id {
			s.hidden, s.gone, s.derived = nil, nil, derived{}
			return s
		}
	}
	t.Fatalf("no server %q", id)
	return Server{}
}

// defaultPolicy is what docs/config.md says of an entry without policy.
var defaultPolicy = Policy{
	MaxTimeout:  time.Hour,
	Retry:       Retry{Attempts: 3, Pause: 200 * time.Millisecond, MaxPause: 5 * time.Second},
	Breaker:     Breaker{Failures: 5, Open: 30 * time.Second, Probes: 1},
	Rate:        Rate{Calls: 0, Burst: 1},
	Concurrency: Concurrency{Calls: 0, Queue: 128, Wait: 10 * time.Second},
	Cache:       Cache{Lists: 5 * time.Minute},
}

// defaultSessions is what docs/config.md says of a config without sessions, on a
// machine with 16 GiB.
var defaultSessions = Sessions{
	Max: 10000, PerPrincipal: 2000, Idle: 24 * time.Hour, Memory: 12 << 30, Instances: 10000, Share: 90, Snapshots: 64 << 30,
	Wait: 30 * time.Second, MaxWait: 10 * time.Minute, ForkWait: 30 * time.Second, OnLoss: "tell", Implicit: "own", Autosnapshot: Autosnapshot{Keep: 8},
}

func TestDefault(t *testing.T) {
	c := standard(16 << 30)
	want := &Config{
		Listen: "127.0.0.1:8463", Separator: "__", LongNames: "keep", Errors: "results",
		Log: Log{"info", "text"},
		Limits: Limits{Body: 16 << 20, Header: 64 << 10, Message: 64 << 20, Connections: 4096, Calls: 4096,
			ListWait: 25 * time.Second, Fetch: 10 * time.Minute, Idle: time.Hour, Drain: 10 * time.Second},
		Journal:   Journal{Mode: "full", MaxAge: 7 * 24 * time.Hour, MaxSize: 1 << 30},
		Telemetry: Telemetry{OTLP{Sample: 1}},
		Sessions:  defaultSessions,
		Workspace: Workspace{On: true},
		Agents:    defaultAgents,
		hidden:    map[string]bool{},
	}
	for _, name := range []string{"files", "memory", "sqlite", "time", "fetch", "everything", "rollout"} {
		scope, timeout, policy := "shared", 5*time.Minute, defaultPolicy
		if name == "rollout" {
			timeout, policy.MaxTimeout = 24*time.Hour, 24*time.Hour
		}
		if name == "files" || name == "memory" || name == "sqlite" {
			scope = "session"
		}
		want.Servers = append(want.Servers, Server{
			ID: name, Title: name, Driver: "builtin", Builtin: name, Scope: scope, Enabled: true, Protocol: "auto",
			Workspace: name == "files", Budget: Budget{1 << 20},
			ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout:     10 * time.Second, Timeout: timeout,
			Credential: "shared", Policy: policy, Journal: "full",
			hidden: map[string]bool{}, derived: derived{true, true},
		})
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if err := c.CheckExposure(false); err != nil {
		t.Error(err)
	}
	loaded, err := Load("", noEnv())
	if err != nil {
		t.Fatal(err)
	}
	if !Diff(c, loaded).Empty() {
		t.Errorf("Load without a path is not the default: %+v", Diff(c, loaded))
	}
}

const everyKey = `# every key there is
x-anything: &common {FOO: bar}
listen: "[::]:9000"
public_url: https://tine.example.org/gw/
tls: {cert: certs/tine.pem, key: ~/tine.key}
cors: {origins: ["https://App.example.org", "http://localhost:3000", "*"]}
auth:
  tokens:
    - {name: ada, token: "${TOKEN}"}
    - {name: ci, token: 0123456789abcdef, role: operator}
    - {name: bo, hash: "sha256:AB34567890123456789012345678901234567890123456789012345678901234", role: viewer}
  oidc:
    issuer: https://login.example.org/realms/x
    audience: tine
    scopes: openid mcp:use
    principal: email
    algorithms: [ES256, EdDSA]
    ca_file: idp.pem
  rules:
    - principals: [ada, "oidc:*@example.org"]
      claims: {groups: [admins, "team-*"], email_verified: true, level: 3}
      role: operator
    - servers: [f*, web]
      tools: [fs.read_*, "web.*"]
limits:
  body: 4MB
  header: 8192
  message: 1 GiB
  connections: 10
  calls: ${CALLS}
  list_wait: 500ms
  fetch: 60m
  idle: 1h30m
  drain: 0s
log: {level: debug, format: json}
journal: {mode: meta, max_age: 30d, max_size: 2TiB}
telemetry:
  otlp: {endpoint: "https://otel.example.org:4318/", headers: {X-Key: "${TOKEN}"}, sample: 0.25, ca_file: otel.pem}
sessions:
  max: 100
  per_principal: 10
  ttl: 2d
  idle: 0
  memory: 50%
  instances: ${CALLS}
  share: 75%
  snapshots: 5GB
  wait: 0s
  max_wait: 90s
  fork_wait: 1m
  on_loss: refuse
  implicit: shared
  autosnapshot: {every: 20, before: ["fs.write_*", web.post], keep: 3}
workspace: {template: ~/start}
sandbox_binary: bin/tine-sandbox
separator: "."
long_names: shorten
errors: protocol
default_view: web
agents:
  dir: [agents, ~/more]
  env: [GITHUB_TOKEN]
  concurrency: 3
  tags: [gpu]
  executors:
    own: {command: ./bin/own, args: [-q, 2], env: {LEVEL: 3}}
    claude-code: {type: claude-code}
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
    title: The Web
    driver: url
    url: https://mcp.example.org/mcp
    headers: {Authorization: "Bearer ${TOKEN}", X-Count: 3}
    transport: sse
    ca_file: ca.pem
    scope: session
    enabled: ${OFF}
    protocol: 2025-06-18
    client_capabilities: []
    connect_timeout: 1s
    timeout: 1m
    journal: off
    policy:
      max_timeout: 1h30m
      retry: {attempts: 5, pause: 1s, max_pause: 1m}
      breaker: {failures: 9, open: 1m30s, probes: 3}
      rate: {calls: 2.5, burst: 10}
      concurrency: {calls: 4, queue: 0, wait: 0}
      cache: {lists: 0, results: 1d12h, tools: ["get_*", "${OFF}"]}
  erp:
    url: https://erp.example.org/mcp
    auth:
      type: client_credentials
      token_url: https://login.example.org/token
      client_id: tine
      client_secret: "${TOKEN}"
      scopes: [read, write]
      audience: erp
      resource: urn:erp
    policy: {retry: off, breaker: off, cache: off, rate: {calls: 3}}
  desk:
    url: https://desk.example.org/mcp
    auth:
      type: login
      auth_url: https://login.example.org/authorize
      token_url: http://localhost:9/token
      client_id: abc
      scopes: read write
      redirect: http://127.0.0.1:8765/callback
    credential: per-principal
    timeout: 2h
  fs:
    command: ./bin/server
    args: [-y, 8, 0x10, true, 1.50, "${TOKEN}"]
    env: {<<: *common, PORT: 8080, DEBUG: false, V: 1.0, E: "", N: "null"}
    eager: true
    tools:
      allow: ["read_*", list]
      deny: [read_secret]
      rename: {list: ls, ls: list}
      describe: {list: Lists.}
  here:
    command: ./run
    cwd: work
    scope: shared
    fork: share
  db:
    command: db
    args: ["--data=${state.data}", "${state.log-1}/x", "${TOKEN}:${workspace}"]
    env: {CACHE: "${state.cache}"}
    cwd: ${workspace}/sub
    state: {data: seed/data, log-1: , cache: "${TOKEN}"}
    fork: files
    budget: {memory: 256MB}
  notes: {builtin: memory, template: notes.jsonl, budget: {memory: 8MiB}, fork: fresh}
  sql: {builtin: sqlite, template: "snapshot:base", workspace: true}
  host: {builtin: files, settings: {root: docs}, scope: shared}
  clock: {builtin: time, settings: {zone: "${ZONE:-UTC}", n: 3, deep: {list: [1, a, null, 1.5, true]}}}
`

var defaultAgents = Agents{
	Concurrency: 16, Depth: 5, Children: 16, Runs: 1000, Match: 5 * time.Minute, Lease: 30 * time.Second, Idle: 7 * 24 * time.Hour, Keep: 7 * 24 * time.Hour,
}

func TestEveryKey(t *testing.T) {
	dir := t.TempDir()
	opts := env(map[string]string{"TOKEN": "correct-horse-battery", "CALLS": "7", "OFF": "false"})
	opts.Path = filepath.Join(dir, "tine.yaml")
	opts.Home = filepath.Join(dir, "home")
	c := mustParse(t, everyKey, opts)
	if len(c.Warnings) != 0 {
		t.Errorf("warnings: %q", c.Warnings)
	}
	want := Config{
		Path: opts.Path, Listen: "[::]:9000", PublicURL: "https://tine.example.org/gw",
		TLS:  TLS{filepath.Join(dir, "certs/tine.pem"), filepath.Join(dir, "home/tine.key")},
		CORS: CORS{[]string{"https://app.example.org", "http://localhost:3000", "*"}},
		Auth: Auth{
			Tokens: []Token{
				{Name: "ada", Token: "correct-horse-battery", Role: "user"},
				{Name: "ci", Token: "0123456789abcdef", Role: "operator"},
				{Name: "bo", Hash: "sha256:ab34567890123456789012345678901234567890123456789012345678901234", Role: "viewer"},
			},
			OIDC: &OIDC{
				Issuer: "https://login.example.org/realms/x", Audience: []string{"tine"}, Scopes: []string{"openid", "mcp:use"},
				Principal: "email", Algorithms: []string{"ES256", "EdDSA"}, CAFile: filepath.Join(dir, "idp.pem"),
			},
			Rules: []Rule{
				{
					Principals: []string{"ada", "oidc:*@example.org"}, Role: "operator",
					Claims: map[string][]string{"groups": {"admins", "team-*"}, "email_verified": {"true"}, "level": {"3"}},
				},
				{Role: "user", Servers: []string{"f*", "web"}, Tools: []string{"fs.read_*", "web.*"}},
			},
		},
		Limits: Limits{Body: 4e6, Header: 8192, Message: 1 << 30, Connections: 10, Calls: 7,
			ListWait: 500 * time.Millisecond, Fetch: time.Hour, Idle: 90 * time.Minute, Drain: 0},
		Log: Log{"debug", "json"}, SandboxBinary: filepath.Join(dir, "bin/tine-sandbox"), Separator: ".", LongNames: "shorten", Errors: "protocol", DefaultView: "web",
		Agents: Agents{
			Dirs: []string{filepath.Join(dir, "agents"), filepath.Join(dir, "home/more")}, Env: []string{"GITHUB_TOKEN"}, Concurrency: 3, Tags: []string{"gpu"},
			Executors: []Executor{
				{Name: "own", Type: "command", Command: filepath.Join(dir, "bin/own"), Args: []string{"-q", "2"}, Env: map[string]string{"LEVEL": "3"}},
				{Name: "claude-code", Type: "claude-code"},
			},
			Depth: 2, Children: 3, Runs: 4, Time: 2 * time.Hour, Match: time.Minute, Lease: 10 * time.Second, Idle: 48 * time.Hour, Keep: 24 * time.Hour,
		},
		Journal: Journal{Mode: "meta", MaxAge: 30 * 24 * time.Hour, MaxSize: 2 << 40},
		Telemetry: Telemetry{OTLP{
			Endpoint: "https://otel.example.org:4318/", Headers: map[string]string{"X-Key": "correct-horse-battery"},
			Sample: 0.25, CAFile: filepath.Join(dir, "otel.pem"),
		}},
		Sessions: Sessions{
			Max: 100, PerPrincipal: 10, TTL: 48 * time.Hour, Memory: 8 << 30, Instances: 7, Share: 75, Snapshots: 5e9, MaxWait: 90 * time.Second, ForkWait: time.Minute, OnLoss: "refuse", Implicit: "shared",
			Autosnapshot: Autosnapshot{Every: 20, Before: []string{"fs.write_*", "web.post"}, Keep: 3},
		},
		Workspace: Workspace{On: true, Template: filepath.Join(dir, "home/start")},
	}
	got := *c
	got.Servers, got.Warnings, got.hidden, got.files = nil, nil, nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	var order []string
	for _, s := range c.Servers {
		order = append(order, s.ID)
	}
	if want := "web erp desk fs here db notes sql host clock"; strings.Join(order, " ") != want {
		t.Errorf("servers in order %v, want %s", order, want)
	}
	servers := map[string]Server{
		"web": {
			ID: "web", Title: "The Web", Driver: "url", URL: "https://mcp.example.org/mcp",
			Headers:   map[string]string{"Authorization": "Bearer correct-horse-battery", "X-Count": "3"},
			Transport: "sse", CAFile: filepath.Join(dir, "ca.pem"), Scope: "session", Protocol: "2025-06-18",
			ClientCapabilities: []string{}, ConnectTimeout: time.Second, Timeout: time.Minute,
			Policy: Policy{
				MaxTimeout:  90 * time.Minute,
				Retry:       Retry{5, time.Second, time.Minute},
				Breaker:     Breaker{9, 90 * time.Second, 3},
				Rate:        Rate{2.5, 10},
				Concurrency: Concurrency{4, 0, 0},
				Cache:       Cache{0, 36 * time.Hour, []string{"get_*", "false"}},
			},
			Journal: "off",
		},
		"erp": {
			ID: "erp", Title: "erp", Driver: "url", URL: "https://erp.example.org/mcp", Transport: "auto", Scope: "shared",
			Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			Auth: ServerAuth{
				Type: "client_credentials", TokenURL: "https://login.example.org/token", ClientID: "tine", ClientSecret: "correct-horse-battery",
				Scopes: []string{"read", "write"}, Audience: "erp", Resource: "urn:erp",
			},
			Policy: Policy{
				MaxTimeout: time.Hour, Retry: Retry{1, 200 * time.Millisecond, 5 * time.Second}, Breaker: Breaker{0, 30 * time.Second, 1},
				Rate: Rate{3, 3}, Concurrency: Concurrency{0, 128, 10 * time.Second},
			},
			ConnectTimeout: 10 * time.Second, Timeout: 5 * time.Minute,
		},
		"desk": {
			ID: "desk", Title: "desk", Driver: "url", URL: "https://desk.example.org/mcp", Transport: "auto", Scope: "shared",
			Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			Auth: ServerAuth{
				Type: "login", AuthURL: "https://login.example.org/authorize", TokenURL: "http://localhost:9/token", ClientID: "abc",
				Scopes: []string{"read", "write"}, Redirect: "http://127.0.0.1:8765/callback",
			},
			Credential:     "per-principal",
			Policy:         Policy{2 * time.Hour, defaultPolicy.Retry, defaultPolicy.Breaker, defaultPolicy.Rate, defaultPolicy.Concurrency, defaultPolicy.Cache},
			ConnectTimeout: 10 * time.Second, Timeout: 2 * time.Hour,
		},
		"fs": {
			ID: "fs", Title: "fs", Driver: "process", Command: filepath.Join(dir, "bin/server"),
			Args:  []string{"-y", "8", "0x10", "true", "1.50", "correct-horse-battery"},
			Env:   map[string]string{"FOO": "bar", "PORT": "8080", "DEBUG": "false", "V": "1.0", "E": "", "N": "null"},
			Scope: "session", Enabled: true, Eager: true, Protocol: "auto",
			ClientCapabilities: []string{"elicitation", "sampling"},
			Tools: Tools{
				Allow: []string{"read_*", "list"}, Deny: []string{"read_secret"},
				Rename: map[string]string{"list": "ls", "ls": "list"}, Describe: map[string]string{"list": "Lists."},
			},
			ConnectTimeout: time.Minute, Timeout: 5 * time.Minute,
		},
		"here": {
			ID: "here", Title: "here", Driver: "process", Command: "./run", Cwd: filepath.Join(dir, "work"),
			Scope: "shared", Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout: time.Minute, Timeout: 5 * time.Minute, Fork: "share",
		},
		"db": {
			ID: "db", Title: "db", Driver: "process", Command: "db",
			Args: []string{"--data=${state.data}", "${state.log-1}/x", "correct-horse-battery:${workspace}"},
			Env:  map[string]string{"CACHE": "${state.cache}"}, Cwd: "${workspace}/sub",
			State: []StateDir{{"data", filepath.Join(dir, "seed/data")}, {"log-1", ""}, {"cache", filepath.Join(dir, "correct-horse-battery")}},
			Scope: "session", Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout: time.Minute, Timeout: 5 * time.Minute, Workspace: true, Fork: "files", Budget: Budget{256e6},
		},
		"notes": {
			ID: "notes", Title: "notes", Driver: "builtin", Builtin: "memory", Template: filepath.Join(dir, "notes.jsonl"),
			Scope: "session", Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout: 10 * time.Second, Timeout: 5 * time.Minute, Fork: "fresh", Budget: Budget{8 << 20},
		},
		"sql": {
			ID: "sql", Title: "sql", Driver: "builtin", Builtin: "sqlite", Template: "snapshot:base",
			Scope: "session", Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout: 10 * time.Second, Timeout: 5 * time.Minute, Workspace: true,
		},
		"host": {
			ID: "host", Title: "host", Driver: "builtin", Builtin: "files", Settings: map[string]any{"root": filepath.Join(dir, "docs")},
			Scope: "shared", Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout: 10 * time.Second, Timeout: 5 * time.Minute,
		},
		"clock": {
			ID: "clock", Title: "clock", Driver: "builtin", Builtin: "time",
			Settings: map[string]any{"zone": "UTC", "n": int64(3), "deep": map[string]any{"list": []any{int64(1), "a", nil, 1.5, true}}},
			Scope:    "shared", Enabled: true, Protocol: "auto", ClientCapabilities: []string{"elicitation", "sampling"},
			ConnectTimeout: 10 * time.Second, Timeout: 5 * time.Minute,
		},
	}
	for id, want := range servers {
		// What most of them leave open.
		SetDefault(&want.Credential, "shared")
		SetDefault(&want.Journal, "meta")
		if want.Budget.Memory == 0 {
			want.Budget.Memory = map[string]int64{"process": 64 << 20, "builtin": 1 << 20}[want.Driver]
		}
		if reflect.DeepEqual(want.Policy, Policy{}) {
			want.Policy = defaultPolicy
		}
		if got := serverOf(t, c, id); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, got, want)
		}
	}
}

func TestEmptyFile(t *testing.T) {
	for _, in := range []string{"", "\n# nothing\n", "servers:\n", "servers: {}\n", "---\n", "{}", "\ufeffservers: {}\n"} {
		c := mustParse(t, in, noEnv())
		if len(c.Servers) != 0 || c.Listen != DefaultListen {
			t.Errorf("%q: got %+v", in, c)
		}
		if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "no servers") {
			t.Errorf("%q: warnings %q", in, c.Warnings)
		}
	}
}

func TestMissingVariableDisablesOneServer(t *testing.T) {
	c := mustParse(t, `servers:
  gh:
    url: https://${GH_HOST}/mcp
    headers:
      Authorization: Bearer ${GH_TOKEN}
  off: {command: "${NOPE}", enabled: false}
  ok: {builtin: time}
`, noEnv())
	gh := serverOf(t, c, "gh")
	want := `server "gh" is off: variable GH_HOST is not set (url); set it, or write ${GH_HOST:-default}; variable GH_TOKEN is not set (headers.Authorization); set it, or write ${GH_TOKEN:-default}`
	if gh.Disabled != want {
		t.Errorf("got  %s\nwant %s", gh.Disabled, want)
	}
	if !gh.Enabled || gh.Driver != "url" || gh.Scope != "shared" {
		t.Errorf("defaults of a disabled server: %+v", gh)
	}
	if off := serverOf(t, c, "off"); off.Disabled == "" || off.Enabled || off.Driver != "process" {
		t.Errorf("a server that is off anyway: %+v", off)
	}
	if ok := serverOf(t, c, "ok"); ok.Disabled != "" {
		t.Errorf("the other server is off: %s", ok.Disabled)
	}
	if len(c.Warnings) != 1 || c.Warnings[0] != "tine.yaml:3:10: "+want {
		t.Errorf("warnings: %q", c.Warnings)
	}
}

func TestCheckExposure(t *testing.T) {
	for listen, fine := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:80": true, "[::1]:80": true, "localhost:80": true, "LOCALHOST:80": true, "[::ffff:127.0.0.1]:80": true,
		"0.0.0.0:80": false, ":80": false, "[::]:80": false, "192.168.1.2:80": false, "localhost.example.org:80": false, "127.1:80": false,
		"80": false, "": false, "localhost:99999": false,
	} {
		c := Default()
		c.Listen = listen
		if err := c.CheckExposure(false); (err == nil) != fine {
			t.Errorf("%q: %v", listen, err)
		}
	}
	c := Default()
	c.Listen, c.Auth.Tokens, c.PublicURL = "0.0.0.0:80", []Token{{Name: "a", Token: "0123456789abcdef"}}, "https://x.example.org"
	if err := c.CheckExposure(false); err != nil {
		t.Error(err)
	}
}

// Tokens don't cross the network in the clear, wherever the address comes from.
func TestPlainHTTPOffLoopbackIsRefused(t *testing.T) {
	const in = "listen: 0.0.0.0:80\nauth: {tokens: [{name: a, token: 0123456789abcdef}]}\nservers: {time: {builtin: time}}\n"
	const want = "listen: 0.0.0.0:80 is not a loopback address, and tokens would cross the network in the clear; set tls, set public_url"
	if _, err := Parse([]byte(in), noEnv()); err == nil || !strings.Contains(err.Error(), "tine.yaml:1:9: "+want) {
		t.Errorf("in the file: %v", err)
	}
	// Who may listen elsewhere than the file says looks when that is known.
	other := noEnv()
	other.OtherAuth = true
	c := mustParse(t, in, other)
	if err := c.CheckExposure(true); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("when it is known: %v", err)
	}
	c.Listen = DefaultListen
	if err := c.CheckExposure(true); err != nil {
		t.Errorf("on loopback instead: %v", err)
	}
	c.Listen = "0.0.0.0:80"
	c.TLS.Cert = "cert.pem"
	if err := c.CheckExposure(true); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	if c := mustParse(t, in+"public_url: https://x.example.org\n", noEnv()); len(c.Warnings) != 0 || c.CheckExposure(false) != nil {
		t.Errorf("behind a proxy: %q, %v", c.Warnings, c.CheckExposure(false))
	}
}

func TestLoadReadsFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("key", "s3cret\r\n")
	write("vars.env", "# comment\nexport A=1\nB = two words # said\nC='lit $x #'\nD=\"a\\nb \\\"q\\\"\"\nE=\nOWN=file\nM=\"line 1\nline 2\"\nF=x#y\n")
	path := write("tine.yaml", `servers:
  a: {url: "https://x.example.org", headers: {X-Key: "${file:key}"}}
  b: {command: npx, env_file: vars.env, env: {OWN: entry}}
  c: {command: npx, env_file: nope.env}
  d: {command: npx, args: ["${file:nope}"]}
`)
	c, err := Load(path, Options{Home: dir, Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	if got := serverOf(t, c, "a").Headers["X-Key"]; got != "s3cret" {
		t.Errorf("key from file: %q", got)
	}
	want := map[string]string{"A": "1", "B": "two words", "C": "lit $x #", "D": "a\nb \"q\"", "E": "", "OWN": "entry", "M": "line 1\nline 2", "F": "x#y"}
	if got := serverOf(t, c, "b").Env; !reflect.DeepEqual(got, want) {
		t.Errorf("env_file:\ngot  %q\nwant %q", got, want)
	}
	for _, id := range []string{"c", "d"} {
		if s := serverOf(t, c, id); !strings.Contains(s.Disabled, "nope") {
			t.Errorf("%s: %q", id, s.Disabled)
		}
	}
	if len(c.Warnings) != 2 {
		t.Errorf("warnings: %q", c.Warnings)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestEnvFileErrors(t *testing.T) {
	for in, want := range map[string]string{
		"A=1\nnonsense\n": "2: want NAME=value",
		"A='x\n":          "1: A: the quotes do not close",
		"A=\"x\" y":       "1: A: there is text after the closing quote",
		"A B=1":           "1: want NAME=value",
		"A=\x00":          "1: not UTF-8 text",
	} {
		if _, err := parseEnvFile(in); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}

func TestIncludedFileMustBePlain(t *testing.T) {
	if _, err := readIncluded(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, MaxIncluded+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readIncluded(big); err == nil {
		t.Error("a file over the limit was read")
	}
}

// A file of another program has one key that counts, and a slip in it is told.
func TestMisspeltMCPServers(t *testing.T) {
	for _, key := range []string{"mcpServer", "mcpservers", "mcp_servers"} {
		_, err := Parse([]byte(`{"`+key+`": {"a": {"command": "a"}}}`), noEnv())
		if err == nil || !strings.Contains(err.Error(), `did you mean "mcpServers"?`) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
