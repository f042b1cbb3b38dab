package config

import (
	"slices"
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	opts := env(map[string]string{
		"TOKEN": "token-of-the-gateway", "V": "value-from-outside", "SHORT": "12345", "HOST": "hidden.example.org",
		otlpEndpointVar: "https://collector:collector-password@otel.example.org", otlpHeadersVar: "x-team=team-header-value",
	})
	opts.ReadFile = func(string) ([]byte, error) { return []byte("FROM_FILE=value-of-env-file\n"), nil }
	c := mustParse(t, `auth:
  tokens:
    - {name: a, token: "${TOKEN}"}
    - {name: b, token: written-in-the-file}
    - {name: c, hash: "sha256:`+strings.Repeat("ab", 32)+`"}
servers:
  web:
    url: https://user:p%40ssword@web.example.org/mcp?api_key=query%20secret&page=visible-page
    headers:
      Authorization: Bearer bearer-token-value
      X-Basic: Basic dXNlcjpiYXNpYy1wYXNzd29yZA==
      X-Api-Key: key-by-its-name
      X-From: ${V}
      X-Any: any-header
      User-Agent: plain-header
      X-Look: ghp_looks_like_one
      X-Key: ${SHORT}
  token: {url: "https://only-a-token@h.example.org/"}
  gone: {url: "https://${HOST}/secret-path"}
  erp:
    url: https://erp.example.org
    auth: {type: client_credentials, token_url: "https://x.example.org", client_id: "${V}", client_secret: written-client-secret}
  run:
    command: run
    args: [--token, arg-after-flag, --api-key=arg-with-flag, "--dsn=postgres://u:arg-password@h/db", "X-Key: header-arg-value", "--plain=visible-arg", "${V}/x", "${V}-${workspace}/visible-but-hidden", visible]
    env: {PASSWORD: env-by-name, DATABASE: "postgres://u:env-password@h/db", PLAIN: visible-env, FROM: "${V}"}
    env_file: x.env
  set: {builtin: fetch, settings: {password: setting-by-name, list: [{token: setting-in-list}], from: "${V}!", plain: visible-setting}}
`, opts)
	want := []string{
		"token-of-the-gateway", "written-in-the-file", "sha256:" + strings.Repeat("ab", 32),
		"https://collector:collector-password@otel.example.org", "collector:collector-password", "collector-password", "team-header-value",
		"user:p%40ssword", "p%40ssword", "p@ssword", "query%20secret", "query secret",
		"Bearer bearer-token-value", "bearer-token-value",
		"Basic dXNlcjpiYXNpYy1wYXNzd29yZA==", "dXNlcjpiYXNpYy1wYXNzd29yZA==", "user:basic-password", "basic-password",
		"key-by-its-name", "value-from-outside", "ghp_looks_like_one",
		"only-a-token", "https://hidden.example.org/secret-path",
		"written-client-secret",
		"arg-after-flag", "arg-with-flag", "u:arg-password", "arg-password", "header-arg-value", "value-from-outside/x", "value-from-outside-", "/visible-but-hidden",
		"postgres://u:arg-password@h/db",
		"env-by-name", "u:env-password", "env-password", "value-of-env-file",
		"setting-by-name", "setting-in-list", "value-from-outside!", "any-header",
	}
	got := c.Secrets()
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%q is missing", w)
		}
	}
	for i, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("%q is no secret", g)
		}
		if i > 0 && (len(got[i-1]) < len(g) || got[i-1] == g) {
			t.Errorf("%q stands before %q", got[i-1], g)
		}
	}
	one := c.Servers[0].Secrets()
	if !slices.Contains(one, "bearer-token-value") || slices.Contains(one, "written-client-secret") {
		t.Errorf("of one server: %q", one)
	}
	if got := Default().Secrets(); len(got) != 0 {
		t.Errorf("the default has secrets: %q", got)
	}
}
