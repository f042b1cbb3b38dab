package config

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAuthErrors(t *testing.T) {
	sum := sha256.Sum256([]byte("0123456789abcdef"))
	hash := "sha256:" + hex.EncodeToString(sum[:])
	testErrors(t, []wrongConfig{
		{"neither token nor hash", "auth: {tokens: [{name: a}]}\n",
			`tine.yaml:1:17: auth.tokens[0]: token is missing; make one with: tine token new, and give it here or its hash`},
		{"both", "auth: {tokens: [{name: a, token: 0123456789abcdef, hash: '" + hash + "'}]}\n",
			`tine.yaml:1:52: auth.tokens[0]: token and hash exclude each other; keep hash`},
		{"hash without its kind", "auth: {tokens: [{name: a, hash: '" + hash[7:] + "'}]}\n",
			`tine.yaml:1:33: auth.tokens[0].hash: is not the hash of a token; write sha256: and 64 hexadecimal digits, as tine token new prints it`},
		{"hash of another's token", "auth:\n  tokens:\n    - {name: a, token: 0123456789abcdef}\n    - {name: b, hash: '" + strings.ToUpper(hash) + "'}\n",
			`tine.yaml:4:23: auth.tokens[1].hash: the same token as "a" has; each needs its own`},
		{"name like an issuer's", "auth: {tokens: [{name: 'oidc:ada', token: 0123456789abcdef}]}\n",
			`tine.yaml:1:24: auth.tokens[0].name: "oidc:ada" is not a name; use 1 to 64 letters, digits, dots, dashes, underscores and @`},
		{"role", "auth: {tokens: [{name: a, token: 0123456789abcdef, role: admin}]}\n",
			`tine.yaml:1:58: auth.tokens[0].role: got "admin", want user, viewer or operator`},

		{"no issuer", "auth: {oidc: {}}\n",
			`tine.yaml:1:14: auth.oidc: issuer is missing; it is the URL that tokens have as iss`},
		{"oidc is no map", "auth: {oidc: 'https://x'}\n",
			`tine.yaml:1:14: auth.oidc: want a map of issuer, audience, scopes, principal, algorithms, ca_file, got a string`},
		{"issuer", "auth: {oidc: {issuer: login.example.org}}\n",
			`tine.yaml:1:23: auth.oidc.issuer: "login.example.org" is not an absolute https URL; write it like https://login.example.org`},
		{"plain http", "auth: {oidc: {issuer: 'http://login.example.org'}}\n",
			`tine.yaml:1:23: auth.oidc.issuer: "http://login.example.org" would be spoken to unencrypted; use https, as plain http is for loopback addresses alone`},
		{"issuer with a query", "auth: {oidc: {issuer: 'https://login.example.org?a'}}\n",
			`tine.yaml:1:23: auth.oidc.issuer: must be a URL without a query; write it like https://login.example.org`},
		{"issuer without a host", "auth: {oidc: {issuer: 'https://:80'}}\n",
			`tine.yaml:1:23: auth.oidc.issuer: "https://:80" is not an absolute https URL; write it like https://login.example.org`},
		{"algorithms", "auth:\n  oidc:\n    issuer: https://x\n    algorithms: [RS256, none, HS256]\n",
			`tine.yaml:4:25: auth.oidc.algorithms[1]: "none" would let in unsigned tokens; remove it
tine.yaml:4:31: auth.oidc.algorithms[2]: "HS256" is symmetric, so a server that can check a token could make one; remove it`},
		{"unknown algorithm", "auth: {oidc: {issuer: 'https://x', algorithms: [RS256, RS999, RS256]}}\n",
			`tine.yaml:1:56: auth.oidc.algorithms[1]: got "RS999", want RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA
tine.yaml:1:63: auth.oidc.algorithms[2]: "RS256" stands twice`},
		{"no algorithm", "auth: {oidc: {issuer: 'https://x', algorithms: []}}\n",
			`tine.yaml:1:48: auth.oidc.algorithms: an empty list would let no token through; leave it out for all that are safe`},
		{"empty values", "auth: {oidc: {issuer: 'https://x', audience: '', principal: '', scopes: [a b]}}\n",
			`tine.yaml:1:46: auth.oidc.audience: is empty; leave it out to want the URL that is called
tine.yaml:1:61: auth.oidc.principal: is empty; name the claim that says who it is, such as sub or email
tine.yaml:1:74: auth.oidc.scopes[0]: "a b" is not a scope; scopes are visible ASCII characters without spaces, quotes and backslashes`},

		{"empty rule", "auth:\n  rules:\n    -\n",
			`tine.yaml:3:7: auth.rules[0]: is empty; say whom it is for and what it gives, or remove it`},
		{"rules are no list", "auth: {rules: {servers: [a]}}\n",
			`tine.yaml:1:15: auth.rules: want a list, got a map; write rules: [{principals: [ada], servers: [files]}]`},
		{"unknown key of a rule", "auth: {rules: [{server: [a]}]}\n",
			`tine.yaml:1:17: unknown key "server" in auth.rules[0]; did you mean "servers"?`},
		{"role of a rule", "auth: {rules: [{role: root}]}\n",
			`tine.yaml:1:23: auth.rules[0].role: got "root", want user, viewer or operator`},
		{"patterns", "separator: '.'\nauth: {rules: [{principals: ['['], servers: ['a['], tools: ['[]'], claims: {g: ['\\'], h: '['}}]}\n",
			`tine.yaml:2:30: auth.rules[0].principals[0]: "[" is not a pattern; write a principal's name, with * for any characters
tine.yaml:2:46: auth.rules[0].servers[0]: "a[" is not a pattern; write a server's id, with * for any characters
tine.yaml:2:61: auth.rules[0].tools[0]: "[]" is not a pattern; write server.tool, with * for any characters
tine.yaml:2:81: auth.rules[0].claims.g[0]: "\\" is not a pattern; write what the claim holds, with * for any characters
tine.yaml:2:90: auth.rules[0].claims.h: "[" is not a pattern; write what the claim holds, with * for any characters`},
		{"lists that give all by accident", "auth: {rules: [{principals: [], servers: [], claims: {}}]}\n",
			`tine.yaml:1:29: auth.rules[0].principals: an empty list would mean all; leave it out for that, or name some
tine.yaml:1:42: auth.rules[0].servers: an empty list would mean all; leave it out for that, or name some
tine.yaml:1:54: auth.rules[0].claims: want a map of claims to patterns, got an empty one; write claims: {groups: [admins]}`},
		{"null gives nothing", "auth:\n  rules:\n    - principals: [a]\n      tools:\n      claims:\n        groups:\n",
			`tine.yaml:4:7: auth.rules[0].tools: an empty list would mean all; leave it out for that, or name some
tine.yaml:6:9: auth.rules[0].claims.groups: an empty list would never match; name what the claim may hold`},
		{"rate of a rule", "auth: {rules: [{rate: {calls: -1, burst: 0}}, {rate: 5}, {rate: {per: 1s}}]}\n",
			`tine.yaml:1:31: auth.rules[0].rate.calls: -1 is out of range; want 0 to 1000000
tine.yaml:1:42: auth.rules[0].rate.burst: 0 is out of range; want 1 to 1000000
tine.yaml:1:54: auth.rules[1].rate: want a map of calls, burst, got a number
tine.yaml:1:66: unknown key "per" in auth.rules[2].rate; known keys: calls, burst`},
		{"prompts and resources", "auth: {rules: [{prompts: [], resources: ['[']}]}\n",
			`tine.yaml:1:26: auth.rules[0].prompts: an empty list names nothing; leave it out, or name some
tine.yaml:1:42: auth.rules[0].resources[0]: "[" is not a pattern; write a server's id, with * for any characters`},
		{"a list of one", "auth: {rules: [{servers: files}]}\n",
			`tine.yaml:1:26: auth.rules[0].servers: want a list of strings, got a string; write servers: [files]`},
	})
}

func TestIssuerDefaults(t *testing.T) {
	for _, issuer := range []string{"https://x.example.org/a", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:9/x/"} {
		c := mustParse(t, "auth: {oidc: {issuer: '"+issuer+"'}}", noEnv())
		want := &OIDC{Issuer: issuer, Principal: "sub", Algorithms: []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}}
		if !reflect.DeepEqual(c.Auth.OIDC, want) {
			t.Errorf("got %+v, want %+v", c.Auth.OIDC, want)
		}
	}
	if c := mustParse(t, "auth:\n  oidc:\n  rules:\n  tokens:\n", noEnv()); c.HasAuth() || c.Auth.Rules != nil {
		t.Errorf("keys without values: %+v", c.Auth)
	}
}

// TestWorkspaceIsNoServer says that the name of the workspace hides the files of a server.
func TestWorkspaceIsNoServer(t *testing.T) {
	c := mustParse(t, "servers: {workspace: {builtin: time}}\n", noEnv())
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "stands for the session's workspace") {
		t.Errorf("got %q", c.Warnings)
	}
}

func TestRuleWarnings(t *testing.T) {
	in := `auth:
  rules:
    - servers: [time, tine, "ti*", '\x', remote]
      tools: [time__now, tme__now, "t*__now", now, "*", "ti?e__x", "no[_]__x", remote__x]
servers: {time: {builtin: time}}
`
	c := mustParse(t, in, env(map[string]string{RemoteServersVar: `[{"id": "remote", "endpoint": "http://x"}]`}))
	want := []string{
		`tine.yaml:3:23: auth.rules[0].servers[1]: "tine" names a server that is not there; did you mean "time"?`,
		`tine.yaml:4:26: auth.rules[0].tools[1]: "tme__now" names a server that is not there; did you mean "time"?`,
		`tine.yaml:4:47: auth.rules[0].tools[3]: "now" matches no tool; write SERVER__TOOL`,
	}
	if !slices.Equal(c.Warnings, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(c.Warnings, "\n"), strings.Join(want, "\n"))
	}
}

// Whatever lets people in is enough off loopback, and for any origin.
func TestExposureCountsEveryAuth(t *testing.T) {
	const open = "listen: 0.0.0.0:80\npublic_url: https://x\ncors: {origins: ['*']}\nservers: {time: {builtin: time}}\n"
	for _, auth := range []string{
		"auth: {oidc: {issuer: 'https://x'}}\n",
		"auth: {tokens: [{name: a, token: 0123456789abcdef}]}\n",
		"auth: {tokens: [{name: a, hash: 'sha256:" + strings.Repeat("0", 64) + "'}]}\n",
	} {
		if c := mustParse(t, open+auth, noEnv()); !c.HasAuth() || c.CheckExposure(false) != nil {
			t.Errorf("%s: %v", auth, c.CheckExposure(false))
		}
	}
	if _, err := Parse([]byte(open+"auth: {rules: [{servers: [time]}]}\n"), noEnv()); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("rules without tokens count as auth: %v", err)
	}
	other := noEnv()
	other.OtherAuth = true
	c := mustParse(t, open, other)
	if err := c.CheckExposure(true); err != nil {
		t.Error(err)
	}
	// The caller finds out later that there is none after all.
	if err := c.CheckExposure(false); err == nil || !strings.HasPrefix(err.Error(), "listen: 0.0.0.0:80 is not a loopback address") {
		t.Errorf("listen without auth: %v", err)
	}
	c.Listen = DefaultListen
	if err := c.CheckExposure(false); err == nil || !strings.HasPrefix(err.Error(), "public_url: anyone who reaches https://x") {
		t.Errorf("behind a proxy without auth: %v", err)
	}
	c.PublicURL = "http://localhost:8463"
	if err := c.CheckExposure(false); err == nil || !strings.HasPrefix(err.Error(), `cors.origins[0]: "*" without auth`) {
		t.Errorf("any origin without auth: %v", err)
	}
}
