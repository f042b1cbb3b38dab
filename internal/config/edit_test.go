package config

import (
	"strings"
	"testing"
)

// TestEdit adds a server to a text, which must be what is expected, and takes it
// out again, which must leave the text as it was.
func TestEdit(t *testing.T) {
	program := Addition{Command: "npx", Args: []string{"-y", "@scope/pkg", "a: b", "yes"}, Env: map[string]string{"KEY": "${SECRET:-x}", "A": "1"}}
	remote := Addition{URL: "https://x.example.org/mcp", Headers: map[string]string{"Authorization": "Bearer ${T:-x}"}}
	const yamlProgram = `new:
    command: npx
    args: [-y, "@scope/pkg", "a: b", "yes"]
    env:
      A: "1"
      KEY: "${SECRET:-x}"
`
	for _, tt := range []struct {
		name, path string
		before     string
		add        Addition
		after      string
		stays      string // what is left when it is taken out again; empty for before
	}{
		{"a block", "tine.yaml", "# top\nservers:\n  # one\n  a: {builtin: time} # in the line\n", program,
			"# top\nservers:\n  # one\n  a: {builtin: time} # in the line\n  " + yamlProgram, ""},
		{"keys after it", "tine.yaml", "servers:\n  a:\n    builtin: time\n    # of a\n\n# of log\nlog: {level: debug}\n", Addition{Builtin: "memory"},
			"servers:\n  a:\n    builtin: time\n    # of a\n  new:\n    builtin: memory\n\n# of log\nlog: {level: debug}\n", ""},
		{"another indentation", "tine.yaml", "servers:\n    b:\n        builtin: time\n# end", Addition{Builtin: "memory", Sandbox: false},
			"servers:\n    b:\n        builtin: time\n    new:\n      builtin: memory\n# end", ""},
		{"no line break at the end", "tine.yaml", "servers:\n  a: {builtin: time}", Addition{Builtin: "memory"},
			"servers:\n  a: {builtin: time}\n  new:\n    builtin: memory\n", "servers:\n  a: {builtin: time}\n"},
		{"carriage returns", "tine.yaml", "# top\r\nservers: # all\r\n  # of a\r\n  a: {builtin: time}\r\nlog: {level: warn}\r\n", Addition{Builtin: "memory"},
			"# top\r\nservers: # all\r\n  # of a\r\n  a: {builtin: time}\r\n  new:\r\n    builtin: memory\r\nlog: {level: warn}\r\n", ""},
		{"a byte order mark", "tine.yaml", "\xef\xbb\xbfservers:\n  a: {builtin: time}\n", Addition{Builtin: "memory"},
			"\xef\xbb\xbfservers:\n  a: {builtin: time}\n  new:\n    builtin: memory\n", ""},
		{"no servers", "tine.yaml", "log: {level: debug} # loud\n", remote,
			"log: {level: debug} # loud\n\nservers:\n  new:\n    url: https://x.example.org/mcp\n    headers:\n      Authorization: \"Bearer ${T:-x}\"\n", "log: {level: debug} # loud\n\nservers:\n"},
		{"nothing at all", "tine.yaml", "", Addition{Builtin: "memory"}, "servers:\n  new:\n    builtin: memory\n", "servers:\n"},
		{"an empty map", "tine.yaml", "servers: {} # none yet\nlog: {level: debug}\n", Addition{Builtin: "memory"},
			"servers: # none yet\n  new:\n    builtin: memory\nlog: {level: debug}\n", "servers: # none yet\nlog: {level: debug}\n"},
		{"no value", "tine.yaml", "servers:\n  # to come\n", Addition{Builtin: "memory"},
			"servers:\n  # to come\n  new:\n    builtin: memory\n", ""},
		{"text over lines", "tine.yaml", "servers:\n  a:\n    command: sh\n    args:\n      - -c\n      - |\n        # no comment\n        cat\n\n  b: {builtin: time}\n", Addition{Builtin: "memory"},
			"servers:\n  a:\n    command: sh\n    args:\n      - -c\n      - |\n        # no comment\n        cat\n\n  b: {builtin: time}\n  new:\n    builtin: memory\n", ""},
		{"anchors", "tine.yaml", "servers:\n  a: &a\n    builtin: time\n  b:\n    <<: *a\n    title: B\n", Addition{Builtin: "memory"},
			"servers:\n  a: &a\n    builtin: time\n  b:\n    <<: *a\n    title: B\n  new:\n    builtin: memory\n", ""},
		{"mcpServers in YAML", "x.yaml", "mcpServers:\n  a: {command: a}\n", remote,
			"mcpServers:\n  a: {command: a}\n  new:\n    type: http\n    url: https://x.example.org/mcp\n    headers:\n      Authorization: \"Bearer ${T:-x}\"\n", ""},

		{"JSON", ".mcp.json", "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"a\"\n    }\n  }\n}\n", Addition{Command: "npx", Args: []string{"-y", "p<q"}, Env: map[string]string{"K": "v"}},
			"{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"a\"\n    },\n    \"new\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"p<q\"],\n      \"env\": {\n        \"K\": \"v\"\n      }\n    }\n  }\n}\n", ""},
		{"JSON with comments", ".mcp.json", "{\n\t\"mcpServers\": {\n\t\t// one\n\t\t\"a\": {\"command\": \"a\"} // in the line, {\n\t\t/* last */\n\t}, \"other\": 1,\n}", Addition{URL: "https://x.example.org/sse"},
			"{\n\t\"mcpServers\": {\n\t\t// one\n\t\t\"a\": {\"command\": \"a\"}, // in the line, {\n\t\t\"new\": {\n\t\t\t\"type\": \"sse\",\n\t\t\t\"url\": \"https://x.example.org/sse\"\n\t\t}\n\t\t/* last */\n\t}, \"other\": 1,\n}", ""},
		{"JSON with a trailing comma", ".mcp.json", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"}, // x\n  },\n}\n", Addition{Command: "b"},
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"}, // x\n    \"new\": {\n      \"command\": \"b\"\n    },\n  },\n}\n", ""},
		{"JSON on one line", ".mcp.json", `{"mcpServers": {"a": {"command": "a"}}, "x": [1]}`, Addition{Command: "b", Args: []string{"c"}},
			`{"mcpServers": {"a": {"command": "a"}, "new": {"command": "b", "args": ["c"]}}, "x": [1]}`, ""},
		{"JSON that ends on the line", ".mcp.json", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}}}\n", Addition{Command: "b"},
			"{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"},\n  \"new\": {\n    \"command\": \"b\"\n  }}}\n", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}\n  }}\n"},
		{"JSON without servers", ".mcp.json", "{}\n", Addition{Command: "b"},
			"{\n  \"mcpServers\": {\n    \"new\": {\n      \"command\": \"b\"\n    }\n  }\n}\n", "{\n  \"mcpServers\": {}\n}\n"},
		{"JSON with no server", ".mcp.json", "{\n  \"mcpServers\": {}\n}\n", Addition{Command: "b"},
			"{\n  \"mcpServers\": {\n    \"new\": {\n      \"command\": \"b\"\n    }\n  }\n}\n", "{\n  \"mcpServers\": {}\n}\n"},
		{"VS Code", "mcp.json", "{\n  \"inputs\": [],\n  \"servers\": {\n    \"a\": {\"command\": \"a\"}\n  }\n}\n", remote,
			"{\n  \"inputs\": [],\n  \"servers\": {\n    \"a\": {\"command\": \"a\"},\n    \"new\": {\n      \"type\": \"http\",\n      \"url\": \"https://x.example.org/mcp\",\n      \"headers\": {\n        \"Authorization\": \"Bearer ${T:-x}\"\n      }\n    }\n  }\n}\n", ""},
		{"ours in JSON", "tine.json", "{\n  \"listen\": \"127.0.0.1:1\",\n  \"servers\": {\n    \"a\": {\"builtin\": \"time\"}\n  }\n}\n", Addition{Builtin: "memory"},
			"{\n  \"listen\": \"127.0.0.1:1\",\n  \"servers\": {\n    \"a\": {\"builtin\": \"time\"},\n    \"new\": {\n      \"builtin\": \"memory\"\n    }\n  }\n}\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := noEnv()
			opts.Path = tt.path
			text, c, err := AddServer([]byte(tt.before), opts, "new", tt.add)
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != tt.after {
				t.Fatalf("added:\n%s\nwant:\n%s", text, tt.after)
			}
			if s := c.Servers[len(c.Servers)-1]; s.ID != "new" || s.Command != tt.add.Command || s.URL != tt.add.URL || s.Builtin != tt.add.Builtin || strings.Join(s.Args, "|") != strings.Join(tt.add.Args, "|") {
				t.Errorf("read as %+v", s)
			}
			back, _, err := RemoveServer(text, opts, "new")
			if err != nil {
				t.Fatal(err)
			}
			want := tt.stays
			if want == "" {
				want = tt.before
			}
			if string(back) != want {
				t.Errorf("removed:\n%q\nwant:\n%q", back, want)
			}
		})
	}
}

func TestEditRemovesAnyServer(t *testing.T) {
	const yaml = "servers:\n  # first\n  a:\n    builtin: time\n    # in a\n\n  # second\n  b: {builtin: fetch}\n  c:\n    command: sh\n    args: [-c, cat]\n# end\nlog: {level: debug}\n"
	const json = "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}, // of a\n  \"b/b\": {\n    \"command\": \"b\"\n  } /* , */,\n  \"c\": {\"command\": \"c\"}\n}}\n"
	for _, tt := range []struct{ path, text, id, want string }{
		{"tine.yaml", yaml, "a", "servers:\n  # first\n\n  # second\n  b: {builtin: fetch}\n  c:\n    command: sh\n    args: [-c, cat]\n# end\nlog: {level: debug}\n"},
		{"tine.yaml", yaml, "b", "servers:\n  # first\n  a:\n    builtin: time\n    # in a\n\n  # second\n  c:\n    command: sh\n    args: [-c, cat]\n# end\nlog: {level: debug}\n"},
		{"tine.yaml", yaml, "c", "servers:\n  # first\n  a:\n    builtin: time\n    # in a\n\n  # second\n  b: {builtin: fetch}\n# end\nlog: {level: debug}\n"},
		{".mcp.json", json, "a", "{\"mcpServers\": {\n  // of a\n  \"b/b\": {\n    \"command\": \"b\"\n  } /* , */,\n  \"c\": {\"command\": \"c\"}\n}}\n"},
		{".mcp.json", json, "b-b", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}, // of a\n  /* , */\n  \"c\": {\"command\": \"c\"}\n}}\n"},
		{".mcp.json", json, "c", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}, // of a\n  \"b/b\": {\n    \"command\": \"b\"\n  } /* , */\n}}\n"},
	} {
		opts := noEnv()
		opts.Path = tt.path
		got, c, err := RemoveServer([]byte(tt.text), opts, tt.id)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s without %s: %v\n%s\nwant\n%s", tt.path, tt.id, err, got, tt.want)
		} else if len(c.Servers) != 2 {
			t.Errorf("%s without %s: %d servers", tt.path, tt.id, len(c.Servers))
		}
	}
}

func TestEditRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, path, text string
		add              Addition
		id, say          string // without an addition it is removed
	}{
		{"a name that is there", "tine.yaml", "servers:\n  a: {builtin: time}\n", Addition{Builtin: "time"}, "a", "tine servers remove a"},
		{"a name that can't be", "tine.yaml", "servers: {}\n", Addition{Builtin: "time"}, "a b", "is not valid"},
		{"an unknown name", "tine.yaml", "servers:\n  alpha: {builtin: time}\n", Addition{}, "alhpa", `did you mean "alpha"?`},
		{"one of the environment", "tine.yaml", "servers:\n  alpha: {builtin: time}\n", Addition{}, "far", "MCP_REMOTE_SERVERS"},
		{"a file that is wrong", "tine.yaml", "servrs: {}\n", Addition{Builtin: "time"}, "a", "wrong as it is"},
		{"an entry that is wrong", "tine.yaml", "servers: {}\n", Addition{Builtin: "tiem"}, "a", `did you mean "time"?`},
		{"an entry of another program that is wrong", ".mcp.json", "{}", Addition{URL: "ftp://x"}, "a", "nothing was changed"},
		{"a built-in server in a file of another program", ".mcp.json", "{}", Addition{Builtin: "time"}, "a", "tine config import"},
		{"braces", "tine.yaml", "servers: {a: {builtin: time}}\n", Addition{Builtin: "time"}, "b", "add this to it: {b: {builtin: time}}"},
		{"removing from braces", "tine.yaml", "servers: {a: {builtin: time}}\n", Addition{}, "a", "by hand"},
		{"an alias", "tine.yaml", "servers: &s\n  a: {builtin: time, title: &t X}\n  b: {builtin: fetch, title: *t}\n", Addition{}, "a", "wrong then"},
		{"RewardKit", "r.yaml", "backends:\n  - {backend_name_ref: fs, backend_type: memory, orchestration_mode: local_docker, mcp_transport: stdio, docker_image: img}\n", Addition{Builtin: "time"}, "a", "tine config import r.yaml"},
		{"a name that stands twice", ".mcp.json", `{"mcpServers": {"a": {"command": "a"}, "a": {"command": "b"}}}`, Addition{}, "a", "by hand"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := env(map[string]string{"MCP_REMOTE_SERVERS": `[{"id":"far","endpoint":"https://far.example.org/mcp"}]`})
			opts.Path = tt.path
			var err error
			if tt.add.Command+tt.add.URL+tt.add.Builtin != "" {
				_, _, err = AddServer([]byte(tt.text), opts, tt.id, tt.add)
			} else {
				_, _, err = RemoveServer([]byte(tt.text), opts, tt.id)
			}
			if err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("%v; want %q", err, tt.say)
			}
		})
	}
}
