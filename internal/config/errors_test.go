package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// noEnv is a machine with nothing on it.
func noEnv() Options {
	return env(nil)
}

func env(vars map[string]string) Options {
	return Options{
		Path: "tine.yaml",
		Home: "/home/ada",
		Getenv: func(k string) (string, bool) {
			v, ok := vars[k]
			return v, ok
		},
		ReadFile: func(string) ([]byte, error) { return nil, errors.New("no such file") },
		Memory:   func() int64 { return 16 << 30 },
		OS:       "linux",
	}
}

// wrongConfig is a file that must not load, and everything that is said of it.
type wrongConfig struct{ name, in, want string }

func testErrors(t *testing.T, tests []wrongConfig) {
	t.Helper()
	opts := env(map[string]string{"SECRET": "hunter2"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.in), opts)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%T is not an *Error", err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"unknown key with a guess", "lisen: 127.0.0.1:1\n",
			`tine.yaml:1:1: unknown key "lisen"; did you mean "listen"?`},
		{"unknown key from elsewhere", "listen: 127.0.0.1:1\nmcpServers: {}\n",
			`tine.yaml:2:1: unknown key "mcpServers"; did you mean "servers"?`},
		{"unknown key without a guess", "log: {frobnicate: 1}\n",
			`tine.yaml:1:7: unknown key "frobnicate" in log; known keys: level, format`},
		{"unknown key of a server", "servers:\n  fs:\n    comand: npx\n",
			`tine.yaml:3:5: unknown key "comand" in servers.fs; did you mean "command"?`},
		{"key twice", "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n",
			`tine.yaml:2:1: key "listen" stands twice, first on line 1; keep one`},
		{"server twice", "servers:\n  a: {builtin: time}\n  a: {builtin: fetch}\n",
			`tine.yaml:3:3: key "a" stands twice, first on line 2; keep one`},
		{"not a map", "- a\n",
			`tine.yaml:1:1: want a map of keys such as servers and listen, got a list`},
		{"tab", "servers:\n\tx: 1\n",
			"tine.yaml:2:1: not valid YAML: found character '\t' that cannot start any token"},
		{"two documents", "listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2\n",
			`tine.yaml:3:1: a second YAML document; a config is one document, remove the --- before this`},
		{"tag", "listen: !secret x\n",
			`tine.yaml:1:9: tag !secret is not known here; remove it`},
		{"alias without anchor", "servers:\n  a: *nope\n",
			`tine.yaml:2:6: alias *nope names no anchor before it; write &nope at the value it should repeat`},
		{"merge of a list", "x-a: &a [1]\nservers:\n  a:\n    <<: *a\n    command: x\n",
			`tine.yaml:4:9: << merges maps, not a number; write <<: *name of an anchored map`},
		{"not UTF-8", "listen: 127.0.0.1:1\n# caf\xe9\n",
			`tine.yaml:2:6: the file is not UTF-8 text from here on; save it as UTF-8`},

		{"listen is a port", "listen: 8463\n",
			`tine.yaml:1:9: listen: 8463 is only a port; write 127.0.0.1:8463`},
		{"listen without port", "listen: localhost\n",
			`tine.yaml:1:9: listen: "localhost" is not host:port; write it like 127.0.0.1:8463 or [::1]:8463`},
		{"listen with a bad port", "listen: localhost:http\n",
			`tine.yaml:1:9: listen: "localhost:http" has no port from 0 to 65535; write it like 127.0.0.1:8463`},
		{"exposed", "listen: 0.0.0.0:8463\n",
			`tine.yaml:1:9: listen: 0.0.0.0:8463 is not a loopback address, so anyone who reaches it could use every server; add auth.tokens or auth.oidc, make a token with: tine token new NAME, or listen on 127.0.0.1:8463`},
		{"exposed by an empty host", "listen: ':8463'\n",
			`tine.yaml:1:9: listen: :8463 is not a loopback address, so anyone who reaches it could use every server; add auth.tokens or auth.oidc, make a token with: tine token new NAME, or listen on 127.0.0.1:8463`},
		{"exposed by a name", "listen: example.org:8463\n",
			`tine.yaml:1:9: listen: example.org:8463 is not a loopback address, so anyone who reaches it could use every server; add auth.tokens or auth.oidc, make a token with: tine token new NAME, or listen on 127.0.0.1:8463`},
		{"public url", "public_url: tine.example.org\n",
			`tine.yaml:1:13: public_url: "tine.example.org" is not an absolute http or https URL; write it like https://tine.example.org`},
		{"public url with a query", "public_url: https://tine.example.org/?a=b\n",
			`tine.yaml:1:13: public_url: must be a plain URL without user, query and fragment; write it like https://tine.example.org`},
		{"half of tls", "tls:\n  cert: a.pem\n",
			`tine.yaml:2:3: tls: cert and key belong together; give both or none`},

		{"short token", "auth:\n  tokens:\n    - {name: a, token: hunter2}\n",
			`tine.yaml:3:24: auth.tokens[0].token: a token needs at least 16 characters, this has 7; make one with: openssl rand -hex 24`},
		{"token with a space", "auth: {tokens: [{name: a, token: 'correct horse battery'}]}\n",
			`tine.yaml:1:34: auth.tokens[0].token: only visible ASCII characters without spaces can be sent as a bearer token`},
		{"token names", "auth:\n  tokens:\n    - {name: a, token: 0123456789abcdeX}\n    - {name: a, token: 0123456789abcdeY}\n    - {token: 0123456789abcdeZ}\n",
			`tine.yaml:4:14: auth.tokens[1].name: "a" stands twice; give each token its own name
tine.yaml:5:7: auth.tokens[2]: name is missing; it says who comes with this token`},
		{"same token", "auth:\n  tokens:\n    - {name: a, token: 0123456789abcdeX}\n    - {name: b, token: 0123456789abcdeX}\n",
			`tine.yaml:4:24: auth.tokens[1].token: the same token as "a" has; each needs its own`},
		{"numbers as token", "auth:\n  tokens:\n    - {name: a, token: 12345678901234567}\n",
			`tine.yaml:3:24: auth.tokens[0].token: want a string, got a number; write token: "${TINE_TOKEN}"`},
		{"tokens are no map", "auth: {tokens: {a: 0123456789abcdeX}}\n",
			`tine.yaml:1:16: auth.tokens: want a list, got a map; write tokens: [{name: laptop, token: "${TINE_TOKEN}"}]`},
		{"any origin without auth", "cors: {origins: ['*']}\n",
			`tine.yaml:1:18: cors.origins[0]: "*" without auth would let every web page that is open in a browser here use every server; name the origins, or add auth.tokens or auth.oidc`},
		{"origin with a path", "cors: {origins: ['https://a.example.org/']}\n",
			`tine.yaml:1:18: cors.origins[0]: "https://a.example.org/" is not an origin; write scheme://host or scheme://host:port without a path, like https://app.example.org, or "*"`},

		{"size", "limits: {body: 16XB}\n",
			`tine.yaml:1:16: limits.body: "16XB" is not a size; write it like 64KiB, 16MiB, 4MB or 65536`},
		{"size out of range", "limits: {message: 2GiB}\n",
			`tine.yaml:1:19: limits.message: "2GiB" is out of range; want 1KiB to 1GiB`},
		{"size that overflows", "limits: {header: 99999999999GiB}\n",
			`tine.yaml:1:18: limits.header: "99999999999GiB" is not a size; write it like 64KiB, 16MiB, 4MB or 65536`},
		{"duration without unit", "limits: {idle: 30}\n",
			`tine.yaml:1:16: limits.idle: 30 has no unit; write 30s or 30ms`},
		{"duration", "limits: {idle: 1 day}\n",
			`tine.yaml:1:16: limits.idle: "1 day" is not a duration; write it like 500ms, 30s, 5m, 1h30m or 7d`},
		{"negative duration", "limits: {list_wait: -3s}\n",
			`tine.yaml:1:21: limits.list_wait: "-3s" is out of range; want 10ms to 10m`},
		{"fetch in no time", "limits: {fetch: 0s}\n",
			`tine.yaml:1:17: limits.fetch: "0s" is out of range; want 1s to 1d`},
		{"number", "limits: {calls: many}\n",
			`tine.yaml:1:17: limits.calls: got "many", want a whole number from 1 to 1000000`},
		{"word", "log: {level: warning}\n",
			`tine.yaml:1:14: log.level: got "warning", want debug, info, warn or error; did you mean "warn"?`},
		{"separator", "separator: ':'\n",
			`tine.yaml:1:12: separator: ":" can't separate; use 1 to 4 of the characters _ - . such as "__"`},
		{"default view", "default_view: tim\nservers: {time: {builtin: time}}\n",
			`tine.yaml:1:15: default_view: there is no server "tim"; did you mean "time"?`},

		{"servers as a list", "servers: [a]\n",
			`tine.yaml:1:10: servers: want a map of a name to an entry, got a list; write servers: {time: {builtin: time}}`},
		{"id with __", "servers:\n  a__b: {builtin: time}\n",
			`tine.yaml:2:3: server id "a__b" contains "__", which separates server and tool; write "a_b"`},
		{"id with the separator", "separator: '.'\nservers:\n  a.b: {builtin: time}\n",
			`tine.yaml:3:3: server id "a.b" contains the separator "."; write "a-b", or set another separator`},
		{"id that swallows the separator", "servers:\n  a_: {builtin: time}\n",
			`tine.yaml:2:3: server id "a_" ends like the separator "__" begins; write "a"`},
		{"id with a space", "servers:\n  a b: {builtin: time}\n",
			`tine.yaml:2:3: server id "a b" is not valid; use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first`},
		{"reserved id", "servers:\n  tine: {builtin: time}\n",
			`tine.yaml:2:3: server id "tine" is Tine's own; choose another`},
		{"a session's own rollout", "servers:\n  r: {builtin: rollout, scope: session}\n",
			`tine.yaml:2:32: servers.r.scope: is session, but builtin: rollout acts for its caller and is in no session; leave scope out`},
		{"nothing to run", "servers:\n  a: {scope: shared}\n",
			`tine.yaml:2:3: servers.a: nothing to run or reach; give it a command, a url, a builtin, docker, remote or a preset`},
		{"empty server", "servers:\n  a:\n",
			`tine.yaml:2:3: servers.a is empty; give it a command, a url, a builtin, docker, remote or a preset`},
		{"two ways", "servers:\n  a: {command: npx, url: 'http://x'}\n",
			`tine.yaml:2:21: servers.a: command and url exclude each other; keep one`},
		{"key of another way", "servers:\n  a:\n    url: http://x/mcp\n    env: {A: b}\n    cwd: /x\n",
			`tine.yaml:4:5: servers.a.env: goes with command or docker, but this server has a url
tine.yaml:5:5: servers.a.cwd: goes with command, but this server has a url`},
		{"transport of a command", "servers:\n  a: {command: npx, transport: sse}\n",
			`tine.yaml:2:21: servers.a.transport: goes with url, but this server has a command`},
		{"driver", "servers:\n  a: {command: npx, driver: url}\n",
			`tine.yaml:2:29: servers.a.driver: "url" does not go with command; write driver: process, or leave it out`},
		{"transport from elsewhere", "servers:\n  a: {url: 'http://x', transport: http}\n",
			`tine.yaml:2:35: servers.a.transport: got "http", want auto, streamable or sse; did you mean "streamable"?`},
		{"whole command line", "servers:\n  a: {command: npx -y server}\n",
			`tine.yaml:2:16: servers.a.command: is a whole command line; write command: npx and args: [-y, server]`},
		{"args as a string", "servers:\n  a: {command: npx, args: -y}\n",
			`tine.yaml:2:27: servers.a.args: want a list of strings, got a string; write args: ["-y", "some-server"]`},
		{"args with a list", "servers:\n  a: {command: npx, args: [a, [b]]}\n",
			`tine.yaml:2:31: servers.a.args[1]: want a string, got a list`},
		{"env without value", "servers:\n  a:\n    command: npx\n    env:\n      A:\n",
			`tine.yaml:5:7: servers.a.env.A: has no value; write "" for an empty one`},
		{"url", "servers:\n  a: {url: mcp.example.org}\n",
			`tine.yaml:2:12: servers.a.url: "mcp.example.org" is not an absolute http or https URL; write it like https://mcp.example.org/mcp`},
		{"url that hides a secret", "servers:\n  a: {url: 'ftp://me:hunter2@example.org/?token=abc'}\n",
			`tine.yaml:2:12: servers.a.url: "ftp://****@example.org/?token=****" is not an absolute http or https URL; write it like https://mcp.example.org/mcp`},
		{"headers", "servers:\n  a:\n    url: http://x\n    headers: {X-A: a, x-a: b, Accept: c, 'X Y': d, X-Z: \"a\\nb\"}\n",
			`tine.yaml:4:23: servers.a.headers: X-A and x-a are the same header; keep one
tine.yaml:4:31: servers.a.headers: Accept is set by Tine itself; remove it
tine.yaml:4:42: servers.a.headers: "X Y" can't name a header
tine.yaml:4:57: servers.a.headers.X-Z: a header is one line`},
		{"protocol", "servers:\n  a: {builtin: time, protocol: 2025-01-01}\n",
			`tine.yaml:2:32: servers.a.protocol: got "2025-01-01", want auto, 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 or 2026-07-28`},
		{"capabilities", "servers:\n  a: {builtin: time, client_capabilities: [roots, sampeling, roots]}\n",
			`tine.yaml:2:51: servers.a.client_capabilities[1]: got "sampeling", want elicitation, sampling or roots
tine.yaml:2:62: servers.a.client_capabilities[2]: "roots" stands twice`},
		{"tools", "servers:\n  a:\n    builtin: time\n    tools:\n      allow: ['[']\n      rename: {a: x, b: x, c: 'a b'}\n",
			`tine.yaml:5:15: servers.a.tools.allow[0]: "[" is not a pattern; write a tool's name, with * for any characters
tine.yaml:6:25: servers.a.tools.rename: a and b would both be called "x"; choose another name for one
tine.yaml:6:31: servers.a.tools.rename.c: "a b" is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores`},
		{"empty allow", "servers:\n  a: {builtin: time, tools: {allow: []}}\n",
			`tine.yaml:2:37: servers.a.tools.allow: an empty list would let nothing through; leave it out, or set enabled: false`},
		{"boolean", "servers:\n  a: {builtin: time, enabled: yes}\n",
			`tine.yaml:2:31: servers.a.enabled: got "yes", want true or false`},

		{"missing variable outside servers", "public_url: ${NOPE}\n",
			`tine.yaml:1:13: public_url: variable NOPE is not set; set it, or write ${NOPE:-default}`},
		{"unterminated", "servers:\n  a:\n    command: npx\n    args: ['${NOPE']\n",
			`tine.yaml:4:12: servers.a.args[0]: "${NOPE" has no closing brace; write ${NAME}, or $${ for a literal ${`},
		{"placeholder of another kind", "servers:\n  a: {command: npx, args: ['${config:x}']}\n",
			`tine.yaml:2:28: servers.a.args[0]: ${config:x}: "config" is not a kind of placeholder; use ${NAME}, ${NAME:-default}, ${env:NAME} or ${file:PATH}, or $${ for a literal ${`},
		{"shell expression", "servers:\n  a: {command: sh, args: [-c, 'echo ${x%y}']}\n",
			`tine.yaml:2:31: servers.a.args[1]: ${x%y}: "x%y" is not a variable's name; write $${ for a literal ${, or ${env:NAME} for an unusual name`},
		{"value of a variable stays secret", "servers:\n  a: {url: '${SECRET}'}\n",
			`tine.yaml:2:12: servers.a.url: "${SECRET}" is not an absolute http or https URL; write it like https://mcp.example.org/mcp`},

		{"JSON", "{\"servers\": {\n  \"a\": {\"builtin\": \"time\", \"scope\": \"all\"}}}",
			`tine.yaml:2:37: servers.a.scope: got "all", want session or shared`},
	})
}

func TestJSONErrors(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"cut off", "{\"mcpServers\": {\n  \"a\": ",
			"mcp.json:2:8: the JSON ends too early; a closing bracket, brace or quote is missing"},
		{"missing comma", "{\"mcpServers\": {}\n \"b\": 1}",
			"mcp.json:2:2: not valid JSON: invalid character '\"' after object key:value pair"},
		{"bare key", "{\n  mcpServers: {}}",
			"mcp.json:2:3: not valid JSON: invalid character 'm'"},
		{"missing value", "{\"mcpServers\": {\"a\": {\"command\": }}}",
			"mcp.json:1:34: not valid JSON: invalid character '}' looking for beginning of value"},
		{"more", "{\"mcpServers\": {}} {}",
			"mcp.json:1:20: there is more after the end of the JSON value; remove it"},
		{"open comment", "{ /* hm",
			"mcp.json:1:3: not valid JSON: invalid character '/'"},
		{"only a comma", "{\"mcpServers\": {,}}",
			"mcp.json:1:17: not valid JSON: invalid character ','"},
		{"servers are a list", "{\"inputs\": [],\n \"servers\": []}",
			"mcp.json:2:13: servers: want a map of a name to an entry, got a list"},
	}
	opts := noEnv()
	opts.Path = "mcp.json"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.in), opts)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("servers:\n")
	for i := range 50 {
		fmt.Fprintf(&b, "  s%d: {scope: x}\n", i)
	}
	_, err := Parse([]byte(b.String()), noEnv())
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if len(e.Problems) != 20 || e.More != 80 {
		t.Errorf("%d problems and %d more, want 20 and 80", len(e.Problems), e.More)
	}
	if !strings.HasSuffix(err.Error(), "\nand 80 more") {
		t.Errorf("the message does not say how many more: %q", err)
	}
}

func TestBombs(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("x-0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 10; i++ {
		ref := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&laughs, "x-%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(ref+", ", 10), ", "))
	}
	var keys strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&keys, "k%d: v\n", i)
	}
	tests := []struct{ name, in, want string }{
		{"billion laughs", laughs.String(), "more than 100000 values after aliases are expanded"},
		{"recursive alias", "x-a: &a\n  b: *a\n", "alias *a stands inside its own anchor"},
		{"deep flow", strings.Repeat("a: [", 1) + strings.Repeat("[", 20_000), "nested deeper than 64 levels"},
		{"deep flow maps", "a: " + strings.Repeat("{a: ", 5_000), "nested deeper than 64 levels"},
		{"deep block on one line", strings.Repeat("- ", 20_000), "nested deeper than 64 levels"},
		{"deep JSON", strings.Repeat("[", 100_000), "nested deeper than 64 levels"},
		{"large", "# " + strings.Repeat("x", 1<<20), "the file is larger than 1 MiB"},
		{"many keys", keys.String(), "more than 30000 words and marks"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.in), Options{Path: "x"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.300v, want %s", err, tt.want)
			}
		})
	}
}

func TestOneLongLine(t *testing.T) {
	const n = 100_000
	in := `{"mcpServers": {"a": {"command": "x"}}, "other": [` + strings.Repeat(`"é", `, n) + `null], "mcpServers": {"b": {"command": "x"}}}`
	c := mustParse(t, in, noEnv())
	if len(c.Servers) != 1 || c.Servers[0].ID != "b" {
		t.Errorf("%+v", c.Servers)
	}
	at := len([]rune(in[:strings.LastIndex(in, `"mcpServers"`)])) + 1
	if want := fmt.Sprintf(`tine.yaml:1:%d: key "mcpServers" stands twice, first on line 1; the last one counts`, at); c.Warnings[0] != want {
		t.Errorf("got %s, want %s", c.Warnings[0], want)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	in := `{"mcpServers": {"a": {"command": "x"` + strings.Repeat(`, "k": 1`, 500) + `}}}`
	c := mustParse(t, in, noEnv())
	if n := len(c.Warnings); n != maxWarnings+1 || c.Warnings[n-1] != "and 400 more warnings" {
		t.Errorf("%d warnings, the last %q", n, c.Warnings[n-1])
	}
}

func TestErrorsHideSecrets(t *testing.T) {
	for _, in := range []string{
		"auth: hunter2hunter2hunter2\n",
		"auth: {tokens: hunter2hunter2}\n",
		"auth: {tokens: [hunter2hunter2]}\n",
		"auth: {tokens: [{name: a, token: hunter2}]}\n",
		"auth: {tokens: [{name: a, token: [hunter2]}]}\n",
		"public_url: ftp://me:hunter2@example.org\n",
		"public_url: https://me:hunter2@example.org\n",
		"servers: {a: {command: x, env: API_KEY=hunter2}}\n",
		"servers: {a: {command: x, env: {API_KEY: [hunter2]}}}\n",
		"servers: {a: {command: x, args: --token hunter2}}\n",
		"servers: {a: {command: x --token hunter2}}\n",
		"servers: {a: {url: 'http://x', headers: 'Authorization: hunter2'}}\n",
		"servers: {a: {url: 'http://x', headers: {A: \"hunter2\\n\"}}}\n",
		"servers: {a: {url: 'x://me:hunter2@h'}}\n",
		"servers: {a: {builtin: time, settings: hunter2}}\n",
		"servers: {a: hunter2}\n",
		"auth: {tokens: [{name: a, hash: 'sha256:hunter2'}]}\n",
		"auth: {tokens: [{name: a, hash: [hunter2]}]}\n",
		"auth: {oidc: {issuer: 'http://me:hunter2@example.org'}}\n",
		"auth: {oidc: {issuer: '${S}', audience: ['', '${S}'], scopes: '${S}\"', algorithms: ['${S}']}}\n",
		"auth: {rules: [{principals: ['[${S}'], claims: {a: '[${S}'}, role: '${S}', servers: ['[${S}']}]}\n",
		"journal: '${S}'\n",
		"journal: {mode: '${S}', max_age: '${S}', max_size: '${S}'}\n",
		"telemetry: {otlp: {endpoint: 'x://me:hunter2@h', headers: {A: [hunter2]}, sample: '${S}'}}\n",
		"servers: {a: {url: 'http://x', auth: {type: login, client_id: [a], client_secret: [hunter2]}}}\n",
		"servers: {a: {url: 'http://x', auth: {type: login, client_id: a, client_secret: 1, token_url: 'http://me:hunter2@h', auth_url: '${S}'}}}\n",
		"servers: {a: {url: 'http://x', auth: hunter2}}\n",
		"servers: {a: {url: 'http://x', auth: {type: '${S}', scopes: 'a ${S}\"', redirect: '${S}', resource: '${S}'}, journal: '${S}', credential: '${S}'}}\n",
		"servers: {a: {url: 'http://x', policy: {retry: '${S}', rate: {calls: '${S}', burst: '${S}'}, cache: {tools: ['[${S}'], lists: '${S}'}}}}\n",
		"servers: {a: {command: x, enabled: '${S}'}}\n",
		"servers: {a: {command: x, scope: '${S}', timeout: '${S}', protocol: '${S}', tools: {allow: ['[${S}'], rename: {a: ' ${S}'}}}}\n",
		"limits: {body: '${S}', calls: '${S}', idle: '${S}'}\nlisten: ${S}\nseparator: ${S}\ndefault_view: ${S}\ncors: {origins: ['${S}']}\n",
	} {
		_, err := Parse([]byte(in), env(map[string]string{"S": "hunter2"}))
		if err == nil {
			t.Errorf("%s: no error", in)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", in, err)
		}
	}
}
