package config

import (
	"strings"
	"testing"
)

// A key in the wrong place is told the right one.
func TestKeysElsewhere(t *testing.T) {
	for in, want := range map[string]string{
		"servers: {a: {command: x, sandbox: true, memory: 1GiB}}":                  `unknown key "memory" in servers.a; that is servers.a.sandbox.memory`,
		"servers: {a: {command: x, sandbox: true, network: none}}":                 `unknown key "network" in servers.a; that is servers.a.sandbox.network`,
		"servers: {a: {command: x, sandbox: {warm: 2}}}":                           `unknown key "warm" in servers.a.sandbox; that is servers.a.warm`,
		"servers: {a: {command: x, sandbox: {state: [d]}}}":                        `unknown key "state" in servers.a.sandbox; that is servers.a.state`,
		"servers: {a.b: {command: x, sandbox: {env: {A: b}}}}":                     `unknown key "env" in servers.a.b.sandbox; that is servers.a.b.env`,
		"servers: {a: {docker: {image: i, env: {A: b}}}}":                          `unknown key "env" in servers.a.docker; that is servers.a.env`,
		"servers: {a: {docker: {image: i, volumes: ['a:/b']}}}":                    `unknown key "volumes" in servers.a.docker; did you mean "binds"?`,
		"servers: {a: {remote: {url: 'https://x', resource: y, headers: {A: b}}}}": `unknown key "headers" in servers.a.remote; that is servers.a.headers`,
		"servers: {a: {remote: {url: 'https://x', resource: y, auth: {}}}}":        `unknown key "auth" in servers.a.remote; that is servers.a.auth`,
		"docker: {image: x}\nservers: {a: {builtin: time}}":                        `unknown key "docker"; that is servers.NAME.docker`,
		"sandbox: true\nservers: {a: {builtin: time}}":                             `unknown key "sandbox"; that is servers.NAME.sandbox`,
		"servers: {a: {url: 'https://x', client_id: y}}":                           `unknown key "client_id" in servers.a; that is servers.a.auth.client_id`,
		"servers: {a: {builtin: time, policy: {attempts: 5}}}":                     `unknown key "attempts" in servers.a.policy; that is servers.a.policy.retry.attempts`,
	} {
		_, err := Parse([]byte(in), noEnv())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got\n%v\nwant\n%s", in, err, want)
		}
	}
}
