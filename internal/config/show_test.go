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
  tokens: [{name: ada, token: "****"}, {name: ci, token: "****"}]
limits:
  body: 4000000
  header: 8KiB
  message: 1GiB
  connections: 10
  calls: 7
  list_wait: 500ms
  idle: 1h30m
  drain: 0s
log:
  level: debug
  format: json
separator: .
long_names: shorten
default_view: web
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
	// A variable that comes or goes changes its server.
	withVar := "servers: {a: {command: npx, args: ['${V}']}}"
	if ch := Diff(mustParse(t, withVar, noEnv()), mustParse(t, withVar, env(map[string]string{"V": ""}))); len(ch.Changed) != 1 {
		t.Errorf("a variable that was set: %+v", ch)
	}
}
