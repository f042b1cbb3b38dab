package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const inlineBase = `
workspace: {path: /work}
servers:
  fs: {builtin: memory}
`

func inline(t *testing.T, c *Config, id, entry string) (Server, error) {
	t.Helper()
	s, _, err := c.Inline(id, []byte(entry), Options{State: t.TempDir(), Getenv: func(name string) (string, bool) {
		t.Errorf("variable %s was looked up", name)
		return "leaked", true
	}, ReadFile: func(path string) ([]byte, error) {
		t.Errorf("file %s was read", path)
		return []byte("leaked"), nil
	}})
	return s, err
}

func TestInline(t *testing.T) {
	c := mustParse(t, inlineBase, Options{})
	const literal = `${HOME} ${env:HOME} ${file:/etc/passwd} ${input:x} ${ $${ ${runner.x}`
	s, err := inline(t, c, "own", `{"command": "prog", "args": ["`+literal+`", "${workspace}"], "env": {"MODE": "`+literal+`"}, "timeout": "3s"}`)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Inline || s.Scope != ScopeSession || s.Driver != "process" || s.Timeout.Seconds() != 3 || s.Args[0] != literal || s.Env["MODE"] != literal {
		t.Errorf("got %+v", s)
	}
	if !s.Workspace || s.WorkspacePath != "/work" {
		t.Errorf("it sees the workspace %v at %q", s.Workspace, s.WorkspacePath)
	}
	if !slices.Contains(s.Secrets(), literal) {
		t.Error("its env is no secret")
	}
	web, err := inline(t, c, "web", "url: https://x.example.org/mcp\nheaders: {X-Key: not-a-known-form}\n")
	if err != nil {
		t.Fatal(err)
	}
	if web.Scope != ScopeSession || !slices.Contains(web.Secrets(), "not-a-known-form") {
		t.Errorf("got %+v", web)
	}
	b, err := web.Pin()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unpin(b)
	if err != nil || !again.Inline || again.SpecHash() != web.SpecHash() || !slices.Equal(again.Secrets(), web.Secrets()) {
		t.Errorf("written down it is %+v, %v", again, err)
	}
	plain := web
	if plain.Inline = false; plain.SpecHash() == web.SpecHash() {
		t.Error("a server of the config has the same hash")
	}
}

func TestInlineRefused(t *testing.T) {
	c := mustParse(t, inlineBase, Options{})
	off := mustParse(t, "workspace: false\nservers: {time: {builtin: time}}\n", Options{})
	for name, tt := range map[string]struct{ id, entry, want string }{
		"an unknown key":        {"own", `{"command": "x", "comand": 1}`, "mcp_servers.own"},
		"nothing to run":        {"own", `{}`, "mcp_servers.own"},
		"null":                  {"own", `null`, "mcp_servers.own is empty"},
		"a list":                {"own", `[]`, "mcp_servers.own"},
		"no JSON":               {"own", `{"command": `, "mcp_servers.own can't be read"},
		"a key twice":           {"own", `{"command": "x", "command": "y"}`, "mcp_servers.own has the key"},
		"a bad id":              {"a__b", `{"command": "x"}`, "mcp_servers.a__b"},
		"a reserved id":         {"tine", `{"command": "x"}`, "mcp_servers.tine"},
		"shared":                {"own", `{"command": "x", "scope": "shared"}`, "mcp_servers.own.scope: is shared"},
		"shared with forks":     {"own", `{"command": "x", "fork": "share"}`, "mcp_servers.own.fork: is share"},
		"warm":                  {"own", `{"builtin": "memory", "warm": 2}`, "mcp_servers.own.warm: does not go"},
		"a login":               {"own", `{"url": "https://x.example.org", "auth": {"type": "login"}}`, "mcp_servers.own.auth: does not go"},
		"one that acts on all":  {"own", `{"builtin": "rollout"}`, "mcp_servers.own.builtin"},
		"an undeclared state":   {"own", `{"command": "x", "args": ["${state.data}"]}`, "mcp_servers.own.args"},
		"a placeholder in url":  {"own", `{"url": "https://${workspace}.example.org"}`, "mcp_servers.own.url"},
		"a template of its own": {"own", `{"builtin": "files", "template": "/tmp/x"}`, "mcp_servers.own.template"},
		"too much":              {"own", `{"command": "` + strings.Repeat("x", maxInline) + `"}`, "mcp_servers.own is larger"},
	} {
		if _, err := inline(t, c, tt.id, tt.entry); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := inline(t, off, "own", `{"builtin": "files"}`); err == nil || !strings.Contains(err.Error(), "workspace: false") {
		t.Errorf("without workspaces: %v", err)
	}
	// What is wrong with a secret does not say what it is.
	if _, err := inline(t, c, "own", `{"url": "https://x.example.org", "headers": {"X-Key": "hidden\nvalue"}}`); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a wrong header: %v", err)
	}
}

// No text has a variable or a file read but those that keys name.
func FuzzInline(f *testing.F) {
	for _, seed := range []string{
		`{"command": "x", "args": ["${HOME}", "$${HOME}", "${workspace}"], "env": {"A": "${env:SECRET}"}}`,
		`{"url": "https://${SECRET}/${file:/etc/passwd}", "headers": {"Authorization": "Bearer ${SECRET}"}}`,
		"builtin: memory\nx: &a ${SECRET}\n", `{"sandbox": {"read": ["${SECRET}"]}, "command": "x"}`, `{"docker": {"image": "${SECRET}"}}`,
		`{"builtin": "rlm", "settings": {"model": "${SECRET}"}}`, `{"preset": "fetch"}`,
		`{"command": "docker", "args": ["run", "-i", "-e", "SECRET", "--env", "DOCKER_HOST", "img"]}`,
	} {
		f.Add(seed)
	}
	c, err := Parse([]byte(inlineBase), Options{Path: "tine.yaml"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		s, _, err := c.Inline("own", []byte(entry), Options{Getenv: func(name string) (string, bool) {
			if name != "DOCKER_HOST" { // which says where the engine is, whatever the entry says
				t.Errorf("variable %s was looked up", name)
			}
			return "", false
		}, ReadFile: func(string) ([]byte, error) { return nil, errors.New("not here") }})
		if err == nil && (!s.Inline || s.Scope != ScopeSession || s.ID != "own") {
			t.Errorf("got %+v", s)
		}
	})
}
