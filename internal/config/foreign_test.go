package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// short tells what of a server a foreign config decides.
type short struct {
	Title, Command, URL, Transport, Cwd string
	Args                                []string
	Env, Headers                        map[string]string
	Off                                 bool
	Disabled                            string
}

func shorten(s Server) short {
	if s.Title == s.ID {
		s.Title = ""
	}
	return short{s.Title, s.Command, s.URL, s.Transport, s.Cwd, s.Args, s.Env, s.Headers, !s.Enabled, s.Disabled}
}

func TestForeignFormats(t *testing.T) {
	tests := []struct {
		name, path, in string
		vars           map[string]string
		want           map[string]short
		warnings       []string
	}{
		{
			name: "Claude Desktop", path: "claude_desktop_config.json",
			in: `{"globalShortcut": "Ctrl+Space", "mcpServers": {
  "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"], "env": {"N": 3, "B": true}},
  "My Server": {"command": "uvx", "args": ["x"]}
}, "servers": null}`,
			want: map[string]short{
				"filesystem": {Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/tmp"}, Env: map[string]string{"N": "3", "B": "true"}},
				"My-Server":  {Title: "My Server", Command: "uvx", Args: []string{"x"}},
			},
			warnings: []string{`:3:3: server "My Server" is called My-Server here, because "My Server" can't be an id`},
		},
		{
			name: "Claude Code", path: ".mcp.json",
			in: `{"mcpServers": {
  "api": {"type": "http", "url": "${API_BASE:-https://api.example.com}/mcp", "headers": {"Authorization": "Bearer ${API_KEY}", "Accept": "x"}},
  "old": {"type": "sse", "url": "https://old.example.com/sse", "timeout": 30000},
  "local": {"type": "stdio", "command": "./server", "args": [], "env": {"K": "${MISSING}"}},
  "both": {"type": "http", "command": "npx", "args": ["x"], "url": "https://x.example.com"},
  "ws": {"type": "ws", "url": "wss://x"},
  "none": {"type": "http"},
  "nil": null
}}`,
			vars: map[string]string{"API_KEY": "k"},
			want: map[string]short{
				"api":   {URL: "https://api.example.com/mcp", Transport: "streamable", Headers: map[string]string{"Authorization": "Bearer k"}},
				"old":   {URL: "https://old.example.com/sse", Transport: "sse"},
				"local": {Command: "DIR/server", Args: []string{}, Env: map[string]string{"K": ""}, Disabled: `server "local" is off: variable MISSING is not set (env.K); set it, or write ${MISSING:-default}`},
				"both":  {URL: "https://x.example.com", Transport: "streamable"},
				"ws":    {Disabled: `server "ws" is off: type "ws" is none that Tine speaks; use stdio, http or sse`, URL: ""},
				"none":  {Disabled: `server "none" is off: type is http, but there is no url`},
				"nil":   {Disabled: `server "nil" is off: want a map with a command or a url, got nothing`},
			},
			warnings: []string{
				`:2:128: header Accept is set by Tine itself; left out`,
				`:5:3: server "both" has a command and a url; its type is http, so the url counts`,
				`:4:78: server "local" is off: variable MISSING is not set (env.K); set it, or write ${MISSING:-default}`,
				`:6:3: server "ws" is off: type "ws" is none that Tine speaks; use stdio, http or sse`,
				`:7:3: server "none" is off: type is http, but there is no url`,
				`:8:3: server "nil" is off: want a map with a command or a url, got nothing`,
			},
		},
		{
			name: "Claude's own file", path: ".claude.json",
			in: `{"numStartups": 3, "log": {"x": 1}, "projects": {"/p": {"mcpServers": {"x": {"command": "x"}}}, "/q": {"mcpServers": {}}},
 "mcpServers": {"a": {"command": "a"}}}`,
			want:     map[string]short{"a": {Command: "a"}},
			warnings: []string{`:1:71: the servers of project "/p" are not read; only those at the top are`},
		},
		{
			name: "only projects", path: ".claude.json",
			in:   `{"projects": {"/p": {"mcpServers": {"x": {"command": "x"}}}}}`,
			want: map[string]short{},
			warnings: []string{
				`:1:36: the servers of project "/p" are not read; only those at the top are`,
				`: there are no servers; add one under servers:`,
			},
		},
		{
			name: "Cursor", path: ".cursor/mcp.json",
			in: `{"mcpServers": {
  "a": {"command": "python", "args": ["${workspaceFolder}${/}tools${pathSeparator}mcp.py", "${userHome}/x"], "envFile": "${workspaceFolder}/none.env"},
  "b": {"url": "http://localhost:3000/sse", "auth": {"CLIENT_ID": "x"}}
}}`,
			want: map[string]short{
				"a": {Command: "python", Args: []string{"ROOT/tools/mcp.py", "/home/ada/x"}, Disabled: `server "a" is off: env_file: read ROOT/none.env: no such file`},
				"b": {URL: "http://localhost:3000/sse", Transport: "auto"},
			},
			warnings: []string{
				`:3:45: server "b": key "auth" means nothing to Tine; left out`,
				`:2:110: server "a" is off: env_file: read ROOT/none.env: no such file`,
			},
		},
		{
			name: "Windsurf and Gemini", path: "mcp_config.json",
			in: `{"mcpServers": {
  "@acme/remote__x": {"serverUrl": "https://r.example.com/mcp", "disabledTools": ["rm", "a*"]},
  "g": {"httpUrl": "https://g.example.com/mcp", "trust": true, "includeTools": ["x"]}
}}`,
			want: map[string]short{
				"acme-remote_x": {Title: "@acme/remote__x", URL: "https://r.example.com/mcp", Transport: "auto"},
				"g":             {URL: "https://g.example.com/mcp", Transport: "streamable"},
			},
			warnings: []string{`:2:3: server "@acme/remote__x" is called acme-remote_x here, because "@acme/remote__x" can't be an id`},
		},
		{
			name: "Cline", path: "cline_mcp_settings.json",
			in: `{"mcpServers": {"c": {"command": "npx", "args": ["c"], "disabled": true, "autoApprove": ["x"], "timeout": 60}, "d": {"command": "npx", "disabled": "no"}}}`,
			want: map[string]short{
				"c": {Command: "npx", Args: []string{"c"}, Off: true},
				"d": {Command: "npx", Disabled: `server "d" is off: disabled: got "no", want true or false`},
			},
			warnings: []string{`:1:112: server "d" is off: disabled: got "no", want true or false`},
		},
		{
			name: "VS Code", path: ".vscode/mcp.json",
			in: `{
  // servers for this project
  "inputs": [{"type": "promptString", "id": "key", "description": "API key", "password": true},],
  "servers": {
    "fetch": {"type": "stdio", "command": "uvx", "args": ["mcp-server-fetch", "// no comment"], "dev": {"watch": "x"}},
    "play": {"command": "npx", "args": ["${workspaceFolder}/p"], /* here */ "cwd": "${workspaceFolder}"},
    "api": {"type": "http", "url": "https://api.example.com/mcp", "headers": {"X-Key": "${input:key}"}},
  },
}`,
			want: map[string]short{
				"fetch": {Command: "uvx", Args: []string{"mcp-server-fetch", "// no comment"}},
				"play":  {Command: "npx", Args: []string{"ROOT/p"}, Cwd: "ROOT"},
				"api": {URL: "https://api.example.com/mcp", Transport: "auto", Headers: map[string]string{"X-Key": ""},
					Disabled: `server "api" is off: it asks for input key (${input:key}), which only an editor can ask for (headers.X-Key); write ${NAME} and set that variable`},
			},
			warnings: []string{`:7:88: server "api" is off: it asks for input key (${input:key}), which only an editor can ask for (headers.X-Key); write ${NAME} and set that variable`},
		},
		{
			name: "VS Code without inputs", path: "whatever.txt",
			in:   `{"servers": {"a": {"type": "http", "url": "https://a.example.com"}}}`,
			want: map[string]short{"a": {URL: "https://a.example.com", Transport: "auto"}},
		},
		{
			name: "VS Code settings", path: "settings.json",
			in:   `{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"a": {"command": "a"}}}}`,
			want: map[string]short{"a": {Command: "a"}},
		},
		{
			name: "YAML", path: "servers.yaml",
			in:   "mcpServers:\n  a: {command: a, wat: 1}\n",
			want: map[string]short{"a": {Command: "a"}}, warnings: []string{`:2:19: server "a": key "wat" means nothing to Tine; left out`},
		},
		{
			name: "misspelt keys", path: "mcp.json",
			in:   `{"mcpServers": {"a": {"command": "a", "arg": ["x"], "enviroment": {}, "disable": true, "scop": "shared"}}}`,
			want: map[string]short{"a": {Command: "a"}},
			warnings: []string{
				`:1:39: server "a": key "arg" means nothing to Tine; left out; did you mean "args"?`,
				`:1:53: server "a": key "enviroment" means nothing to Tine; left out`,
				`:1:71: server "a": key "disable" means nothing to Tine; left out; did you mean "disabled"?`,
				`:1:88: server "a": key "scop" means nothing to Tine; left out`,
			},
		},
		{
			name: "keys of an editor", path: "mcp.json",
			in:   `{"servers": {"a": {"command": "a", "galaxy": "shared", "oauth": {}}}}`,
			want: map[string]short{"a": {Command: "a"}}, warnings: []string{
				`:1:36: server "a": key "galaxy" means nothing to Tine; left out`,
				`:1:56: server "a": key "oauth" means nothing to Tine; left out; did you mean "auth"?`,
			},
		},
		{
			name: "a misspelt key in an editor's file", path: "mcp.json",
			in:   `{"inputs": [], "servers": {"a": {"command": "a", "scop": "shared"}}}`,
			want: map[string]short{"a": {Command: "a"}}, warnings: []string{`:1:50: server "a": key "scop" means nothing to Tine; left out; did you mean "scope"?`},
		},
		{
			name: "broken entries", path: "mcp.json",
			in: `{"mcpServers": {
  "cmd": {"command": 3},
  "env": {"command": "x", "env": {"A": [1], "B": null}},
  "url": {"url": "https://u:p@"},
  "ph": {"command": "x", "args": ["${x%y}"]},
  "two": {"command": "x", "url": "https://x.example.com"},
  "dup": {"command": "a", "command": "b"},
  "ok": {"command": "ok"}
}}`,
			want: map[string]short{
				"cmd": {Disabled: `server "cmd" is off: line 2: cmd.command: want a string, got 3; write command: npx`},
				"env": {Command: "x", Env: map[string]string{}, Disabled: `server "env" is off: line 3: env.env.A: want a string, got a list`},
				"url": {URL: "https://u:p@", Transport: "auto", Disabled: `server "url" is off: line 4: url.url: "https://****@" is not an absolute http or https URL; write it like https://mcp.example.org/mcp`},
				"ph":  {Command: "x", Args: []string{""}, Disabled: `server "ph" is off: line 5: ph.args[0]: ${x%y}: "x%y" is not a variable's name; write $${ for a literal ${, or ${env:NAME} for an unusual name`},
				"two": {Command: "x", URL: "https://x.example.com", Transport: "auto", Disabled: `server "two" is off: line 6: two: command and url exclude each other; keep one`},
				"dup": {Command: "b"},
				"ok":  {Command: "ok"},
			},
			warnings: []string{
				`:7:27: key "command" stands twice, first on line 7; the last one counts`,
				`:3:45: variable "B" has no value; left out`,
				`:2:3: server "cmd" is off: line 2: cmd.command: want a string, got 3; write command: npx`,
				`:3:3: server "env" is off: line 3: env.env.A: want a string, got a list`,
				`:4:3: server "url" is off: line 4: url.url: "https://****@" is not an absolute http or https URL; write it like https://mcp.example.org/mcp`,
				`:5:3: server "ph" is off: line 5: ph.args[0]: ${x%y}: "x%y" is not a variable's name; write $${ for a literal ${, or ${env:NAME} for an unusual name`,
				`:6:3: server "two" is off: line 6: two: command and url exclude each other; keep one`,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			opts := env(tt.vars)
			opts.Path = filepath.Join(root, filepath.FromSlash(tt.path))
			c := mustParse(t, tt.in, opts)
			plain := strings.NewReplacer(filepath.Dir(opts.Path), "DIR", root, "ROOT", `\`, "/")
			got := map[string]short{}
			for _, s := range c.Servers {
				h := shorten(s)
				h.Command, h.Cwd, h.Disabled = plain.Replace(h.Command), rootOf(h.Cwd, root), strings.ReplaceAll(h.Disabled, root, "ROOT")
				for i := range h.Args {
					h.Args[i] = rootOf(h.Args[i], root)
				}
				got[s.ID] = h
			}
			if !reflect.DeepEqual(got, tt.want) {
				for id := range got {
					if !reflect.DeepEqual(got[id], tt.want[id]) {
						t.Errorf("%s:\ngot  %+v\nwant %+v", id, got[id], tt.want[id])
					}
				}
				if len(got) != len(tt.want) {
					t.Errorf("%d servers, want %d", len(got), len(tt.want))
				}
			}
			var warnings []string
			for _, w := range c.Warnings {
				warnings = append(warnings, strings.ReplaceAll(strings.TrimPrefix(w, opts.Path), root, "ROOT"))
			}
			if !reflect.DeepEqual(warnings, tt.warnings) {
				t.Errorf("warnings\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(tt.warnings, "\n"))
			}
		})
	}
}

func rootOf(s, root string) string {
	return filepath.ToSlash(strings.ReplaceAll(s, root, "ROOT"))
}

func TestForeignTimeouts(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"60": time.Minute, "3600": time.Hour, "1.5": 1500 * time.Millisecond, "30000": 30 * time.Second, "600000": 10 * time.Minute,
		"0": 5 * time.Minute, "-1": 5 * time.Minute, `"x"`: 5 * time.Minute,
	} {
		c := mustParse(t, `{"mcpServers": {"a": {"command": "a", "timeout": `+in+`}}}`, noEnv())
		if got := c.Servers[0].Timeout; got != want || c.Servers[0].Disabled != "" {
			t.Errorf("timeout %s: got %v %q, want %v", in, got, c.Servers[0].Disabled, want)
		}
	}
}

func TestForeignToolLists(t *testing.T) {
	c := mustParse(t, `{"mcpServers": {"a": {"command": "a", "disabledTools": ["rm", "a*[x]"], "excludeTools": ["y"], "includeTools": ["z"]}}}`, noEnv())
	want := Tools{Allow: []string{"z"}, Deny: []string{"rm", `a\*\[x]`, "y"}}
	if got := c.Servers[0].Tools; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A tine.yaml may be JSON too, and then looks much like VS Code's file.
func TestOursInJSON(t *testing.T) {
	for _, in := range []string{
		`{"listen": "127.0.0.1:1", "servers": {"a": {"command": "x", "wat": 1}}}`,
		`{"servers": {"a": {"command": "x", "scope": "shared", "wat": 1}}}`,
		`{"servers": {"a": {"command": "x", "sandbox": true, "wat": 1}}}`,
		`{"servers": {"a": {"command": "x", "warm": 1, "wat": 1}}}`,
	} {
		if _, err := Parse([]byte(in), noEnv()); err == nil || !strings.Contains(err.Error(), `unknown key "wat"`) {
			t.Errorf("%s: %v", in, err)
		}
	}
	// An editor's own sandbox is no reason to read its file as ours.
	c := mustParse(t, `{"servers": {"a": {"command": "x", "sandboxEnabled": true, "sandbox": {"network": {}}}}}`, noEnv())
	if s := c.Servers[0]; s.Driver != "process" || len(c.Warnings) != 2 {
		t.Errorf("%+v, %q", s, c.Warnings)
	}
}

func TestIDs(t *testing.T) {
	tests := []struct{ sep, names, want string }{
		{"__", "a b|a/b|a-b|@a/b", "a-b-c868 a-b-c14c a-b a-b-"},
		{"__", "a__b|a_b", "a_b-63e5 a_b"},
		{"__", "tine|Tine", "tine- Tine"},
		{"__", "天気|!!", "server- server-"},
		{"-", "a b|a_b", "ab a_b"},
		{"_", "a_b|a b_", "a-b a-b-"},
	}
	for _, tt := range tests {
		names := strings.Split(tt.names, "|")
		for range 2 {
			book := newIDBook(names, tt.sep)
			seen := map[string]bool{}
			for i, want := range strings.Fields(tt.want) {
				got := book.id(names[i])
				if !strings.HasPrefix(got, want) || checkID(got, tt.sep) != nil || seen[got] {
					t.Errorf("%q with %q: got %q, want %s...: %v", names[i], tt.sep, got, want, checkID(got, tt.sep))
				}
				seen[got] = true
			}
		}
	}
	long := strings.Repeat("x", 63) + "-" + strings.Repeat("y", 40)
	if got := sanitizeID(long, "__"); got != strings.Repeat("x", 63) {
		t.Errorf("a long name: %q", got)
	}
}

// An unknown key of a JSON file that may be ours is an error where it can be a key of ours:
// a server whose sandbox is misspelt would run without walls.
func TestMisspeltInJSON(t *testing.T) {
	for _, tt := range []struct{ path, in, want string }{
		{"mcp.json", `{"servers": {"a": {"command": "a", "sandbx": true}}}`, `:1:36: server "a": unknown key "sandbx"; did you mean "sandbox"?`},
		{"b.yaml", `{"servers": {"a": {"comand": "a"}}}`, `:1:20: server "a": unknown key "comand"; did you mean "command"?`},
		{"tine.json", `{"inputs": [], "servers": {"a": {"command": "a", "scop": "shared"}}}`, `did you mean "scope"?`},
		{"tine.json", `{"servers": {"a": {"command": "a", "galaxy": true}}}`, `:1:36: server "a": unknown key "galaxy"; keys of a server are `},
		{"dir/tine.yaml", `{"servers": {"a": {"command": "a", "galaxy": true}}}`, `unknown key "galaxy"`},
	} {
		_, err := Parse([]byte(tt.in), Options{Path: tt.path})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %s: %v, want %s", tt.in, tt.path, err, tt.want)
		}
	}
}
