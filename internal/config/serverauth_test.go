package config

import (
	"strings"
	"testing"
)

func TestServerAuthErrors(t *testing.T) {
	auth := func(a string) string { return "servers:\n  a:\n    url: http://x\n    auth: {" + a + "}\n" }
	testErrors(t, []wrongConfig{
		{"of a command", "servers:\n  a: {command: npx, auth: {type: login}, credential: shared}\n",
			`tine.yaml:2:21: servers.a.auth: goes with url or remote, but this server has a command
tine.yaml:2:42: servers.a.credential: goes with url, but this server has a command`},
		{"no map", "servers:\n  a: {url: 'http://x', auth: login, credential: per-principal}\n",
			`tine.yaml:2:30: servers.a.auth: want a map of type, token_url, auth_url, client_id, client_secret, scopes, audience, resource, redirect, got a string`},
		{"no type", auth("client_id: x"),
			`tine.yaml:4:11: servers.a.auth: type is missing; write type: client_credentials or type: login`},
		{"type", auth("type: oauth"),
			`tine.yaml:4:18: servers.a.auth.type: got "oauth", want client_credentials or login`},
		{"nothing of what it needs", auth("type: client_credentials"),
			`tine.yaml:4:11: servers.a.auth: client_id is missing, which type client_credentials needs
tine.yaml:4:11: servers.a.auth: client_secret is missing, which type client_credentials needs`},
		{"keys of a login", auth("type: client_credentials, token_url: 'https://x', client_id: a, client_secret: b, auth_url: 'https://x', redirect: 'http://localhost'"),
			`tine.yaml:4:94: servers.a.auth.auth_url: goes with type login, but this is client_credentials
tine.yaml:4:117: servers.a.auth.redirect: goes with type login, but this is client_credentials`},
		{"half of the urls", auth("type: login, token_url: 'https://x'"),
			`tine.yaml:4:11: servers.a.auth: auth_url and token_url belong together; give both, or none to have them found`},
		{"secret without a client", auth("type: login, client_secret: b"),
			`tine.yaml:4:11: servers.a.auth: client_secret without client_id; give both or none`},
		{"urls", auth("type: login, token_url: 'http://x/t', auth_url: '//x', resource: x, redirect: 'https://me.example.org'"),
			`tine.yaml:4:36: servers.a.auth.token_url: "http://x/t" would be spoken to unencrypted; use https, as plain http is for loopback addresses alone
tine.yaml:4:60: servers.a.auth.auth_url: "//x" is not an absolute https URL; write it like https://login.example.org/oauth/authorize
tine.yaml:4:77: servers.a.auth.resource: "x" is not an absolute URL without a fragment; write it like https://mcp.example.org/mcp
tine.yaml:4:90: servers.a.auth.redirect: "https://me.example.org" is not an http URL on a loopback address, where Tine waits for the person; write it like http://127.0.0.1:8765/callback`},
		{"user in a url", auth("type: login, auth_url: 'https://a:b@x', token_url: 'https://x'"),
			`tine.yaml:4:35: servers.a.auth.auth_url: must be a URL without user and fragment; write it like https://login.example.org/oauth/authorize`},
		{"scopes", auth("type: login, scopes: 'a b a'"),
			`tine.yaml:4:33: servers.a.auth.scopes: "a" stands twice`},
		{"two tokens", "servers:\n  a:\n    url: http://x\n    headers: {authorization: x}\n    auth: {type: login}\n",
			`tine.yaml:5:5: servers.a.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth`},
		{"login of each without a login", "servers:\n  a:\n    url: http://x\n    credential: per-principal\n",
			`tine.yaml:4:5: servers.a.credential: per-principal goes with auth: {type: login}, as only a person can log in; add that, or write credential: shared`},
		{"login of each by machine", auth("type: client_credentials, token_url: 'https://x', client_id: a, client_secret: b") + "    credential: per-principal\n",
			`tine.yaml:5:5: servers.a.credential: per-principal goes with auth: {type: login}, as only a person can log in; add that, or write credential: shared`},
	})
}

// A variable that is missing takes its server out and is no error of the file.
func TestServerAuthWithoutItsSecret(t *testing.T) {
	c := mustParse(t, `servers:
  a:
    url: https://x
    auth: {type: client_credentials, token_url: "${URL}", client_id: "${ID}", client_secret: "${SECRET}"}
  b: {url: "https://x", auth: {type: "${TYPE}"}, credential: per-principal}
  c: {url: "https://x", auth: {type: login, auth_url: "${URL}", token_url: "https://x"}}
  d: {url: "https://x", auth: {}}
`, noEnv())
	for _, id := range []string{"a", "b", "c"} {
		if s := serverOf(t, c, id); !strings.Contains(s.Disabled, "is not set (auth.") {
			t.Errorf("%s: %q", id, s.Disabled)
		}
	}
	if s := serverOf(t, c, "d"); s.Disabled != "" || s.Auth.Type != "" {
		t.Errorf("auth without keys: %+v", s)
	}
}
