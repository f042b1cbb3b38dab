package config

import (
	"io/fs"
	"reflect"
	"strings"
	"testing"
)

func TestRemoteServers(t *testing.T) {
	opts := env(map[string]string{
		"MCP_REMOTE_SERVERS": `[
  {"id": "open", "name": "Open Data", "endpoint": "https://open.example.com/mcp", "auth_type": "none", "enabled": true},
  {"id": "bearer", "endpoint": "https://b.example.com", "auth_type": "api-key", "key_env": "KEY"},
  {"id": "bare", "endpoint": "https://b.example.com", "auth_type": "api-key", "key_file": "/run/key", "header": "X-API-Key", "region": "eu"},
  {"id": "oauth", "endpoint": "https://o.example.com", "auth_type": "oauth", "key_env": "KEY"},
  {"id": "login", "endpoint": "https://o.example.com", "auth_type": "oauth"},
  {"id": "nokey", "endpoint": "https://o.example.com", "auth_type": "api-key"},
  {"id": "unset", "endpoint": "https://o.example.com", "auth_type": "api-key", "key_env": "NOPE"},
  {"id": "nofile", "endpoint": "https://o.example.com", "auth_type": "api-key", "key_file": "/run/nope"},
  {"id": "off", "endpoint": "https://off.example.com", "enabled": false, "auth_type": "oauth"},
  {"id": "ph", "endpoint": "https://${HOST}/mcp"},
  {"id": "fs", "endpoint": "https://fs.example.com"}
]`, "KEY": " s3cret\n",
	})
	opts.ReadFile = func(p string) ([]byte, error) {
		if p == "/run/key" {
			return []byte("f1le\n"), nil
		}
		return nil, fs.ErrNotExist
	}
	c := mustParse(t, "default_view: open\nservers:\n  fs: {command: npx}\n", opts)
	type want struct {
		title, url string
		headers    map[string]string
		enabled    bool
		disabled   string
	}
	tests := map[string]want{
		"fs":     {title: "fs", enabled: true},
		"open":   {title: "Open Data", url: "https://open.example.com/mcp", enabled: true},
		"bearer": {"bearer", "https://b.example.com", map[string]string{"Authorization": "Bearer s3cret"}, true, ""},
		"bare":   {"bare", "https://b.example.com", map[string]string{"X-API-Key": "f1le"}, true, ""},
		"oauth":  {"oauth", "https://o.example.com", map[string]string{"Authorization": "Bearer s3cret"}, true, ""},
		"login":  {"login", "https://o.example.com", nil, true, ""},
		"nokey":  {"nokey", "https://o.example.com", nil, true, `server "nokey" is off: auth_type api-key needs key_env or key_file, which say where the key is`},
		"unset":  {"unset", "https://o.example.com", nil, true, `server "unset" is off: variable NOPE (key_env) is not set; set it to the key`},
		"nofile": {"nofile", "https://o.example.com", nil, true, `server "nofile" is off: file /run/nope does not exist (key_file); create it`},
		"off":    {"off", "https://off.example.com", nil, false, ""},
		"ph":     {"ph", "", nil, true, `server "ph" is off: variable HOST is not set (endpoint); set it, or write ${HOST:-default}`},
	}
	if len(c.Servers) != len(tests) {
		t.Errorf("%d servers, want %d", len(c.Servers), len(tests))
	}
	for id, w := range tests {
		s := serverOf(t, c, id)
		got := want{s.Title, s.URL, s.Headers, s.Enabled, s.Disabled}
		if !reflect.DeepEqual(got, w) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, got, w)
		}
		if login := id == "login" || id == "off"; login != (s.Auth.Type == AuthLogin) {
			t.Errorf("%s: auth %+v", id, s.Auth)
		}
		if id != "fs" && (s.Driver != "url" || s.Scope != "shared") {
			t.Errorf("%s: driver %s, scope %s", id, s.Driver, s.Scope)
		}
	}
	all := strings.Join(c.Warnings, "\n")
	for _, w := range []string{
		`MCP_REMOTE_SERVERS:4:126: [2]: key "region" means nothing to Tine; known keys: id,`,
		`MCP_REMOTE_SERVERS:12:3: server "fs" is in the config too; that one counts`,
		`MCP_REMOTE_SERVERS:7:3: server "nokey" is off`,
	} {
		if !strings.Contains(all, w) {
			t.Errorf("no warning %q in\n%s", w, all)
		}
	}
	if strings.Contains(string(Marshal(c))+all, "s3cret") {
		t.Error("the key is shown")
	}
}

func TestRemoteServersOnDefault(t *testing.T) {
	c, err := Load("", env(map[string]string{"MCP_REMOTE_SERVERS": `[{"id": "x", "endpoint": "https://x.example.com"}]`}))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 8 || c.Servers[7].ID != "x" {
		t.Errorf("%+v", c.Servers)
	}
	if c, err = Load("", env(map[string]string{"MCP_REMOTE_SERVERS": " \n"})); err != nil || len(c.Servers) != 7 {
		t.Errorf("an empty variable: %v", err)
	}
}

func TestRemoteServersErrors(t *testing.T) {
	tests := []struct{ in, want string }{
		{`[{"id": "x"`, `MCP_REMOTE_SERVERS:1:12: the JSON ends too early; a closing bracket, brace or quote is missing`},
		{`{"id": "x"}`, `MCP_REMOTE_SERVERS:1:1: want a JSON array, got a map; write [{"id": "x", "endpoint": "https://x.example.org/mcp"}]`},
		{`[3]`, `MCP_REMOTE_SERVERS:1:2: [0]: want an object with id and endpoint, got a number`},
		{`[{}]`, "MCP_REMOTE_SERVERS:1:2: [0]: id is missing\nMCP_REMOTE_SERVERS:1:2: [0]: endpoint is missing; it is the server's URL\nMCP_REMOTE_SERVERS:1:2: [0]: nothing to run or reach; give it a command, a url, a builtin, docker, remote or a preset"},
		{`[{"id": "a__b", "endpoint": "https://x"}]`, `MCP_REMOTE_SERVERS:1:9: [0]: server id "a__b" contains "__", which separates server and tool; write "a_b"`},
		{`[{"id": "a", "endpoint": "nope"}]`, `MCP_REMOTE_SERVERS:1:26: [0].endpoint: "nope" is not an absolute http or https URL; write it like https://mcp.example.org/mcp`},
		{`[{"id": "a", "endpoint": "https://x", "auth_type": "apikey"}]`, `MCP_REMOTE_SERVERS:1:52: [0].auth_type: got "apikey", want none, api-key or oauth; did you mean "api-key"?`},
		{`[{"id": "a", "endpoint": "https://x", "enabled": "yes"}]`, `MCP_REMOTE_SERVERS:1:50: [0].enabled: got "yes", want true or false`},
		{`[{"id": "a", "endpoint": "https://x"}, {"id": "a", "endpoint": "https://y"}]`, `MCP_REMOTE_SERVERS:1:40: id "a" stands twice; give each server its own`},
	}
	for _, tt := range tests {
		_, err := Load("", env(map[string]string{"MCP_REMOTE_SERVERS": tt.in}))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got\n%v\nwant\n%s", tt.in, err, tt.want)
		}
	}
}
