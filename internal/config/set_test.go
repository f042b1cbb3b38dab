package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const setBase = `servers:
  web:
    url: https://web.example.org
    headers: {authorization: "Bearer ${TOKEN}", X-Plain: a}
    timeout: 1m
    policy: {rate: {calls: 5}, retry: {attempts: 2}, cache: {tools: [a, b]}}
    tools: {allow: [a, b], rename: {a: x, b: y}}
  erp:
    url: https://erp.example.org
    auth: {type: client_credentials, token_url: "https://x", client_id: tine, client_secret: first-secret, scopes: [a, b]}
  person: {url: "https://x", auth: {type: login, client_id: tine, client_secret: login-secret, auth_url: "https://x", token_url: "https://x"}}
  bound: {builtin: time, policy: {max_timeout: 1h, rate: {calls: 5, burst: 5}}}
  run: {command: npx, env: {A: b}}
  far: {remote: {url: "https://o.example.org", resource: x}, headers: {X-Key: "${NOPE}"}}
  box: {docker: img}
  walls: {command: x, sandbox: true}
  each: {url: "https://x", auth: {type: login}, credential: per-principal}
  lost: {url: "https://x", headers: {X-A: "${NOPE}", X-B: "${NADA}"}}
`

func setConfig(t *testing.T) *Config {
	return mustParse(t, setBase, env(map[string]string{"TOKEN": "correct-horse-battery"}))
}

func entryOf(t *testing.T, c *Config, id string) Server {
	t.Helper()
	i := slices.IndexFunc(c.Servers, func(s Server) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("no server %q", id)
	}
	return c.Servers[i]
}

func TestWith(t *testing.T) {
	c := setConfig(t)
	before := string(Marshal(c))
	for _, tt := range []struct {
		name, id, set string
		keys          string
		check         func(s Server) bool
	}{
		{"nothing", "web", ``, "", func(s Server) bool { o := entryOf(t, c, "web"); return s.same(&o) }},
		{"an empty map", "web", `{"policy": {"retry": {}}}`, "", func(s Server) bool { o := entryOf(t, c, "web"); return s.same(&o) }},
		{"deep", "web", `{"policy": {"retry": {"attempts": 7}, "breaker": "off"}, "timeout": "10s"}`,
			"policy.breaker policy.retry.attempts timeout",
			func(s Server) bool {
				p := s.Policy
				return p.Retry == Retry{7, 200 * time.Millisecond, 5 * time.Second} && p.Breaker == Breaker{0, 30 * time.Second, 1} && s.Timeout == 10*time.Second
			}},
		{"burst follows calls", "web", `{"policy": {"rate": {"calls": 50}}}`, "policy.rate.calls",
			func(s Server) bool { return s.Policy.Rate == Rate{50, 50} }},
		{"a burst that was given stays", "bound", `{"policy": {"rate": {"calls": 50}}}`, "policy.rate.calls",
			func(s Server) bool { return s.Policy.Rate == Rate{50, 5} }},
		{"max_timeout follows timeout", "web", `{"timeout": "2h"}`, "timeout",
			func(s Server) bool { return s.Policy.MaxTimeout == 2*time.Hour }},
		{"lists are replaced", "web", `{"tools": {"allow": ["c"]}, "policy": {"cache": {"tools": ["z"]}}}`, "policy.cache.tools tools.allow",
			func(s Server) bool {
				return slices.Equal(s.Tools.Allow, []string{"c"}) && slices.Equal(s.Policy.Cache.Tools, []string{"z"}) && len(s.Tools.Rename) == 2
			}},
		{"maps are merged", "web", `{"tools": {"rename": {"a": "z", "c.d": "x"}}}`, "tools.rename.a tools.rename.c.d",
			func(s Server) bool {
				return reflect.DeepEqual(s.Tools.Rename, map[string]string{"a": "z", "b": "y", "c.d": "x"})
			}},
		{"a header by another case", "web", `{"headers": {"Authorization": "Bearer second-secret", "X-New": 3}}`, "headers.Authorization headers.X-New",
			func(s Server) bool {
				return reflect.DeepEqual(s.Headers, map[string]string{"Authorization": "Bearer second-secret", "X-Plain": "a", "X-New": "3"})
			}},
		{"a header for an orchestrator", "far", `{"headers": {"X-Key": "second-secret"}}`, "headers.X-Key",
			func(s Server) bool { return s.Headers["X-Key"] == "second-secret" && s.Disabled == "" }},
		{"an address with its secret", "erp", `{"auth": {"token_url": "https://y", "client_secret": "second-secret"}}`, "auth.client_secret auth.token_url",
			func(s Server) bool { return s.Auth.TokenURL == "https://y" && s.Auth.ClientSecret == "second-secret" }},
		{"an address where there is no secret", "each", `{"auth": {"token_url": "https://y", "auth_url": "https://y"}}`, "auth.auth_url auth.token_url",
			func(s Server) bool { return s.Auth.TokenURL == "https://y" }},
		{"a secret of auth", "erp", `{"auth": {"client_secret": "second-secret", "scopes": "c d"}}`, "auth.client_secret auth.scopes",
			func(s Server) bool {
				return reflect.DeepEqual(s.Auth, ServerAuth{Type: "client_credentials", TokenURL: "https://x", ClientID: "tine",
					ClientSecret: "second-secret", Scopes: []string{"c", "d"}})
			}},
		{"journal of a command", "run", `{"journal": "off", "connect_timeout": "1s"}`, "connect_timeout journal",
			func(s Server) bool { return s.Journal == "off" && s.ConnectTimeout == time.Second && s.Env["A"] == "b" }},
		{"journal of a command in a sandbox", "walls", `{"journal": "off"}`, "journal",
			func(s Server) bool { return s.Journal == "off" && s.Options != nil && s.Driver == "sandbox" }},
		{"one of two that are missing", "lost", `{"headers": {"X-A": "1"}}`, "headers.X-A",
			func(s Server) bool {
				return s.Disabled == `server "lost" is off: variable NADA is not set (headers.X-B); set it, or write ${NADA:-default}`
			}},
		{"all that are missing", "lost", `{"headers": {"x-a": "1", "X-B": "2"}}`, "headers.X-B headers.x-a",
			func(s Server) bool { return s.Disabled == "" && len(s.Headers) == 2 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, keys, err := entryOf(t, c, tt.id).With([]byte(tt.set))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(keys, " ") != tt.keys {
				t.Errorf("keys %q, want %s", keys, tt.keys)
			}
			if !tt.check(s) {
				t.Errorf("%+v", s)
			}
			shown := *c
			shown.Servers = []Server{s}
			if text := string(Marshal(&shown)); strings.Contains(text, "second-secret") || strings.Contains(text, "correct-horse") {
				t.Errorf("a secret is shown:\n%s", text)
			}
			if strings.Contains(tt.set, "second-secret") && !slices.Contains(s.Secrets(), "second-secret") {
				t.Errorf("secrets: %q", s.Secrets())
			}
		})
	}
	if after := string(Marshal(c)); after != before {
		t.Errorf("the config itself changed from\n%s\nto\n%s", before, after)
	}
}

// What was derived stays derived through several settings.
func TestWithTwice(t *testing.T) {
	s, _, err := entryOf(t, setConfig(t), "web").With([]byte(`{"policy": {"rate": {"calls": 50}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err = s.With([]byte(`{"policy": {"rate": {"calls": 9}}, "timeout": "3h"}`)); err != nil {
		t.Fatal(err)
	}
	if s.Policy.Rate.Burst != 9 || s.Policy.MaxTimeout != 3*time.Hour {
		t.Errorf("%+v", s.Policy)
	}
	if s, _, err = s.With([]byte(`{"policy": {"rate": {"burst": 4}}}`)); err != nil {
		t.Fatal(err)
	}
	if s, _, err = s.With([]byte(`{"policy": {"rate": {"calls": 99}}}`)); err != nil || s.Policy.Rate.Burst != 4 {
		t.Errorf("%+v %v", s.Policy, err)
	}
}

func TestWithErrors(t *testing.T) {
	c := setConfig(t)
	for _, tt := range []struct{ name, id, set, want string }{
		{"not settable", "web", `{"url": "https://y", "enabled": false}`,
			`servers.web.url: can't be set at run time, change it in the config; what can be set is timeout, connect_timeout, policy, journal, headers, auth or tools
servers.web.enabled: can't be set at run time, change it in the config; what can be set is timeout, connect_timeout, policy, journal, headers, auth or tools`},
		{"unknown", "web", `{"polcy": {}}`, `unknown key "polcy" in servers.web; did you mean "policy"?`},
		{"unknown below", "web", `{"policy": {"retry": {"tries": 3}}}`, `unknown key "tries" in servers.web.policy.retry; known keys: attempts, pause, max_pause`},
		{"range", "web", `{"policy": {"retry": {"attempts": 50}}}`, `servers.web.policy.retry.attempts: 50 is out of range; want 1 to 10`},
		{"type", "web", `{"timeout": 30}`, `servers.web.timeout: 30 has no unit; write 30s or 30ms`},
		{"placeholder", "web", `{"headers": {"A": "Bearer ${TOKEN}"}, "tools": {"allow": ["$${x}"]}}`,
			`servers.web.headers.A: placeholders are resolved in the config only; write the value itself
servers.web.tools.allow: placeholders are resolved in the config only; write the value itself`},
		{"null", "web", `{"policy": {"retry": null}}`, `server "web": policy.retry: is null; unset it to go back to the config`},
		{"twice", "web", `{"timeout": "1s", "timeout": "2s"}`, `server "web": key "timeout" stands twice in the settings; keep one`},
		{"no object", "web", `["timeout"]`, `server "web": settings are a JSON object of keys of the server's entry, like {"timeout": "30s"}`},
		{"no JSON", "web", `timeout: 30s`, `server "web": settings are a JSON object of keys of the server's entry, like {"timeout": "30s"}`},
		{"cut off", "web", `{"timeout": `, `server "web": the settings can't be read: the JSON ends too early; a closing bracket, brace or quote is missing`},
		{"headers of a command", "run", `{"headers": {"A": "b"}}`, `servers.run.headers: goes with url or remote, but this server has a command`},
		{"headers of a command in a sandbox", "walls", `{"headers": {"A": "b"}}`, `servers.walls.headers: goes with url or remote, but this server has a command`},
		{"walls", "walls", `{"sandbox": {"network": "host"}, "warm": 3}`,
			`servers.walls.sandbox: can't be set at run time, change it in the config; what can be set is timeout, connect_timeout, policy, journal, headers, auth or tools
servers.walls.warm: can't be set at run time, change it in the config; what can be set is timeout, connect_timeout, policy, journal, headers, auth or tools`},
		{"another address for the config's secret", "erp", `{"auth": {"token_url": "https://y"}}`,
			`servers.erp.auth.token_url: the client secret of the config is not sent to an address that is set at run time; set auth.client_secret with it, or change both in the config`},
		{"another address to log in at", "person", `{"auth": {"auth_url": "https://y", "scopes": "a"}}`,
			`servers.person.auth.auth_url: the client secret of the config is not sent to an address that is set at run time; set auth.client_secret with it, or change both in the config`},
		{"auth beside a header", "web", `{"auth": {"type": "login"}}`,
			`servers.web.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth`},
		{"header beside auth", "erp", `{"headers": {"Authorization": "x"}}`,
			`servers.erp.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth`},
		{"half an auth", "bound", `{"auth": {"type": "login"}}`, `servers.bound.auth: goes with url or remote, but this server has a builtin`},
		{"auth that credential forbids", "each", `{"auth": {"type": "client_credentials", "token_url": "https://x", "client_id": "a", "client_secret": "b"}}`,
			`servers.each.credential: per-principal goes with auth: {type: login}, as only a person can log in; add that, or write credential: shared`},
		{"beyond a bound of the file", "bound", `{"timeout": "2h"}`,
			`servers.bound.policy.max_timeout: 1h is shorter than timeout, which is 2h; raise it, or lower timeout`},
		{"a name that the file took", "web", `{"tools": {"rename": {"c": "y"}}}`,
			`servers.web.tools.rename: b and c would both be called "y"; choose another name for one`},
		{"same header", "web", `{"headers": {"A": "b", "a": "c"}}`, `servers.web.headers: A and a are the same header; keep one`},
		{"nothing let through", "web", `{"tools": {"allow": []}}`,
			`servers.web.tools.allow: an empty list would let nothing through; leave it out, or set enabled: false`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was := entryOf(t, c, tt.id)
			s, keys, err := was.With([]byte(tt.set))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
			if keys != nil || !s.same(&was) {
				t.Errorf("an entry was changed: %q %+v", keys, s)
			}
		})
	}
}

func TestMergeSet(t *testing.T) {
	for _, tt := range []struct{ old, set, want string }{
		{``, ``, `{}`},
		{``, `{"timeout": "1s"}`, `{"timeout":"1s"}`},
		{`{"timeout": "1s"}`, `{}`, `{"timeout":"1s"}`},
		{`{"policy": {"retry": {"attempts": 5}}}`, `{"policy": {"retry": {"pause": "1s"}, "rate": {"calls": 1.50}}}`,
			`{"policy":{"retry":{"attempts":5,"pause":"1s"},"rate":{"calls":1.50}}}`},
		{`{"policy": {"retry": {"attempts": 5}}}`, `{"policy": {"retry": "off"}}`, `{"policy":{"retry":"off"}}`},
		{`{"policy": {"retry": "off"}}`, `{"policy": {"retry": {"attempts": 5}}}`, `{"policy":{"retry":{"attempts":5}}}`},
		{`{"tools": {"allow": ["a", "b"]}}`, `{"tools": {"allow": ["c"]}}`, `{"tools":{"allow":["c"]}}`},
		{`{"headers": {"authorization": "a", "X": "1"}}`, `{"headers": {"Authorization": "b"}}`, `{"headers":{"Authorization":"b","X":"1"}}`},
		{`{"tools": {"rename": {"A": "a"}}}`, `{"tools": {"rename": {"a": "b"}}}`, `{"tools":{"rename":{"A":"a","a":"b"}}}`},
		{`{"policy": {}}`, `{"headers": {}}`, `{}`},
		{`{"headers": {"A": "é\"\u0001<"}}`, ``, `{"headers":{"A":"é\"\u0001\u003c"}}`},
	} {
		got, err := MergeSet([]byte(tt.old), []byte(tt.set))
		if err != nil || string(got) != tt.want || !json.Valid(got) {
			t.Errorf("%s and %s: %s %v, want %s", tt.old, tt.set, got, err, tt.want)
		}
	}
	for _, tt := range [][2]string{{`[]`, `{}`}, {`{}`, `1`}, {`{`, `{}`}, {`{}`, `{"timeout": null}`}, {`{}`, `{"a": 1, "a": 2}`}, {`{}`, `{"tools": {"": {}}}`}} {
		if got, err := MergeSet([]byte(tt[0]), []byte(tt[1])); err == nil {
			t.Errorf("%s and %s: %s", tt[0], tt[1], got)
		}
	}
}

func TestUnsetKeys(t *testing.T) {
	const old = `{"timeout":"1s","policy":{"retry":{"attempts":5},"breaker":"off"},"headers":{"X.A":"1","X":"2"},"tools":{"rename":{"a.b":"c","a":"d"}}}`
	for _, tt := range []struct {
		keys []string
		want string
	}{
		{nil, old},
		{[]string{"timeout", "headers.x", "tools.rename.a"}, `{"policy":{"retry":{"attempts":5},"breaker":"off"},"headers":{"X.A":"1"},"tools":{"rename":{"a.b":"c"}}}`},
		{[]string{"policy.retry.attempts", "headers.X.A", "tools.rename.a.b"}, `{"timeout":"1s","policy":{"breaker":"off"},"headers":{"X":"2"},"tools":{"rename":{"a":"d"}}}`},
		{[]string{"policy", "policy.retry.attempts", "headers", "tools"}, `{"timeout":"1s"}`},
		{[]string{"timeout", "timeout", "policy", "headers", "tools.rename"}, `{}`},
	} {
		got, err := UnsetKeys([]byte(old), tt.keys)
		if err != nil || string(got) != tt.want {
			t.Errorf("%q: %s %v, want %s", tt.keys, got, err, tt.want)
		}
	}
	for key, want := range map[string]string{
		"policy.rate":    `key "policy.rate" is not set; set are headers.X, headers.X.A, policy.breaker, policy.retry.attempts, timeout, tools.rename.a, tools.rename.a.b`,
		"":               `key "" is not set; set are headers.X,`,
		"policy.":        `key "policy." is not set;`,
		"timeout.x":      `key "timeout.x" is not set;`,
		"tools.rename.A": `key "tools.rename.A" is not set;`,
	} {
		if _, err := UnsetKeys([]byte(old), []string{"timeout", key}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := UnsetKeys(nil, []string{"timeout"}); err == nil || err.Error() != `key "timeout" is not set; nothing is` {
		t.Error(err)
	}
}
