package config

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestPresetErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"no preset", "servers: {a: {preset: filesytem}}\n",
			`tine.yaml:1:23: servers.a.preset: got "filesytem", want filesystem, duckdb, memory, everything, fetch or time; did you mean "filesystem"?`},
		{"a driver that there is not", "servers: {a: {preset: duckdb, driver: builtin}, b: {preset: time, driver: remote}}\n",
			`tine.yaml:1:39: servers.a.driver: got "builtin", but preset duckdb can be had with process, sandbox or docker
tine.yaml:1:75: servers.b.driver: got "remote", but preset time can be had with builtin, process, sandbox or docker`},
		{"without an image", "servers: {a: {preset: memory, driver: docker}}\n",
			`tine.yaml:1:23: servers.a.docker: image is missing, and preset memory brings none; name the image of the server, as in docker: {image: NAME}`},
		{"beside another way", "servers: {a: {preset: memory, builtin: memory}, b: {preset: time, url: 'https://x'}}\n",
			`tine.yaml:1:31: servers.a: preset and builtin exclude each other; keep one
tine.yaml:1:67: servers.b: preset and url exclude each other; keep one`},
		{"beside two", "servers: {a: {preset: memory, command: x, docker: i}}\n",
			`tine.yaml:1:43: servers.a: command and docker exclude each other; keep one`},
		{"another driver than its way", "servers: {a: {preset: memory, driver: builtin, docker: i}}\n",
			`tine.yaml:1:39: servers.a.driver: "builtin" does not go with docker; write driver: docker, or leave it out`},
		{"beside a sandbox", "servers: {a: {preset: memory, docker: i, sandbox: true}, b: {preset: time, sandbox: true, driver: process}, c: {preset: time, driver: builtin, sandbox: true}}\n",
			`tine.yaml:1:42: servers.a.sandbox: goes with command, but this server has docker; give it a command, or remove this
tine.yaml:1:99: servers.b.driver: "process" does not go with sandbox; write driver: sandbox, or leave it out
tine.yaml:1:135: servers.c.driver: "builtin" does not go with sandbox; write driver: sandbox, or leave it out`},
		{"keys of another driver", "servers: {a: {preset: memory, args: [x]}}\n",
			`tine.yaml:1:31: servers.a.args: goes with command, but this server has a builtin`},
	})
}

// TestPresets has what each comes to, in the words of an entry without one.
func TestPresets(t *testing.T) {
	for in, want := range map[string]string{
		"preset: filesystem": "builtin: files",
		"preset: memory":     "builtin: memory",
		"preset: everything": "builtin: everything",
		"preset: fetch":      "builtin: fetch",
		"preset: time":       "builtin: time",
		"preset: duckdb":     `command: uvx, args: [mcp-server-motherduck@1.1.0, --db-path, "${state.data}/data.duckdb", --read-write], state: [data], env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,

		"preset: filesystem, driver: process": `command: npx, args: [-y, "@modelcontextprotocol/server-filesystem", "${workspace}"]`,
		"preset: memory, driver: process":     `command: npx, args: [-y, "@modelcontextprotocol/server-memory"], env: {MEMORY_FILE_PATH: "${state.data}/memory.jsonl"}, state: [data]`,
		"preset: everything, driver: process": `command: npx, args: [-y, "@modelcontextprotocol/server-everything"], scope: session, fork: fresh`,
		"preset: fetch, driver: process":      `command: uvx, args: [mcp-server-fetch], scope: shared, state: none`,
		"preset: time, driver: process":       `command: uvx, args: [mcp-server-time], scope: shared, state: none`,

		"preset: filesystem, docker: i": `docker: {image: i, command: [/data], state: [/data]}`,
		"preset: duckdb, docker: i":     `docker: {image: i, command: [--db-path, /data/data.duckdb, --read-write], state: [/data]}, env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,
		"preset: memory, docker: i":     `docker: {image: i, state: [/data]}, env: {MEMORY_FILE_PATH: /data/memory.jsonl}`,
		"preset: everything, docker: i": `docker: i, fork: fresh`,
		"preset: fetch, docker: i":      `docker: {image: i, network: bridge}, scope: shared, state: none`,
		"preset: time, docker: i":       `docker: i, scope: shared, state: none`,

		"preset: filesystem, sandbox: true": `command: npx, args: [-y, "@modelcontextprotocol/server-filesystem", "${workspace}"], sandbox: true`,
		"preset: duckdb, sandbox: true":     `command: uvx, args: [mcp-server-motherduck@1.1.0, --db-path, "${state.data}/data.duckdb", --read-write], state: [data], sandbox: true, env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,
		"preset: memory, sandbox: true":     `command: npx, args: [-y, "@modelcontextprotocol/server-memory"], env: {MEMORY_FILE_PATH: "${state.data}/memory.jsonl"}, state: [data], sandbox: true`,
		"preset: everything, sandbox: true": `command: npx, args: [-y, "@modelcontextprotocol/server-everything"], sandbox: true`,
		"preset: fetch, sandbox: true":      `command: uvx, args: [mcp-server-fetch], scope: shared, sandbox: {network: host}, state: none`,
		"preset: time, driver: sandbox":     `command: uvx, args: [mcp-server-time], scope: shared, sandbox: true, state: none`,

		"preset: fetch, sandbox: ":                                              `command: uvx, args: [mcp-server-fetch], scope: shared, sandbox: {network: host}, state: none`,
		"preset: fetch, sandbox: {network: [a.org], memory: 1GiB}":              `command: uvx, args: [mcp-server-fetch], scope: shared, sandbox: {network: [a.org], memory: 1GiB}, state: none`,
		"preset: fetch, sandbox: true, scope: session":                          `command: uvx, args: [mcp-server-fetch], scope: session, fork: fresh, sandbox: {network: host}, state: none`,
		"preset: time, sandbox: true, scope: session, warm: 2":                  `command: uvx, args: [mcp-server-time], scope: session, sandbox: true, warm: 2, state: none`,
		"preset: memory, driver: sandbox, command: mcp-memory":                  `command: mcp-memory, env: {MEMORY_FILE_PATH: "${state.data}/memory.jsonl"}, state: [data], sandbox: true`,
		"preset: memory, sandbox: {slots: 0}, command: mcp-memory, env: {A: b}": `command: mcp-memory, env: {MEMORY_FILE_PATH: "${state.data}/memory.jsonl", A: b}, state: [data], sandbox: {slots: 0}`,
		"preset: memory, sandbox: false":                                        `builtin: memory`,
		"preset: duckdb, sandbox: false, args: [x]":                             `command: uvx, args: [mcp-server-motherduck@1.1.0, x], env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,

		// What an entry says itself wins.
		"preset: memory, settings: {max_entities: 3}, scope: shared":                "builtin: memory, settings: {max_entities: 3}, scope: shared",
		"preset: memory, template: ./m":                                             "builtin: memory, template: ./m",
		"preset: time, driver: process, scope: session":                             `command: uvx, args: [mcp-server-time], scope: session, fork: fresh, state: none`,
		"preset: time, driver: process, scope: session, fork: refuse":               `command: uvx, args: [mcp-server-time], scope: session, fork: refuse, state: none`,
		"preset: time, driver: process, args: [--local-timezone, '${TZ}']":          `command: uvx, args: [mcp-server-time, --local-timezone, UTC], scope: shared, state: none`,
		"preset: time, command: mcp-server-time":                                    `command: mcp-server-time, scope: shared, state: none`,
		"preset: duckdb, command: ./duck":                                           `command: ./duck, args: [--db-path, "${state.data}/data.duckdb", --read-write], state: [data], env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,
		"preset: duckdb, state: {data: ./seed}":                                     `command: uvx, args: [mcp-server-motherduck@1.1.0, --db-path, "${state.data}/data.duckdb", --read-write], state: {data: ./seed}, env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,
		"preset: duckdb, args: [--db-path, /d.duckdb]":                              `command: uvx, args: [mcp-server-motherduck@1.1.0, --db-path, /d.duckdb], env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,
		"preset: filesystem, driver: process, args: ['${state.data}']":              `command: npx, args: [-y, "@modelcontextprotocol/server-filesystem", "${state.data}"], state: [data]`,
		"preset: memory, driver: process, env: {A: b, MEMORY_FILE_PATH: /m}":        `command: npx, args: [-y, "@modelcontextprotocol/server-memory"], env: {MEMORY_FILE_PATH: /m, A: b}`,
		"preset: memory, docker: {image: i, state: [/x], memory: 1GiB}":             `docker: {image: i, state: [/x], memory: 1GiB}, env: {MEMORY_FILE_PATH: /data/memory.jsonl}`,
		"preset: duckdb, docker: {image: 'i:${TZ}', command: '--read-write'}":       `docker: {image: "i:UTC", command: [--read-write], state: [/data]}, env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`,
		"preset: filesystem, docker: i, template: ./t, scope: shared":               `docker: {image: i, command: [/data], state: [/data]}, template: ./t, scope: shared`,
		"preset: fetch, docker: {image: i, network: none}, scope: session":          `docker: {image: i, network: none}, scope: session, fork: fresh, state: none`,
		"preset: memory, driver: process, env: {A: '${TZ}'}, timeout: 1s, title: T": `command: npx, args: [-y, "@modelcontextprotocol/server-memory"], env: {MEMORY_FILE_PATH: "${state.data}/memory.jsonl", A: UTC}, state: [data], timeout: 1s, title: T`,
	} {
		opts := env(map[string]string{"TZ": "UTC"})
		got, wanted := mustParse(t, "servers: {a: {"+in+"}}\n", opts), mustParse(t, "servers: {a: {"+want+"}}\n", opts)
		if a, b := &got.Servers[0], &wanted.Servers[0]; !a.same(b) || len(got.Warnings) > 0 || !strings.HasPrefix(in, "preset: "+a.Preset) || got.Workspace != wanted.Workspace {
			t.Errorf("%s:\ngot  %+v %+v\nwant %+v %+v; %q", in, *a, a.Options, *b, b.Options, got.Warnings)
		}
	}
	c := mustParse(t, "servers: {a: {preset: time, driver: process, args: [x, '${K}']}, b: {preset: '${NOPE}'}}\n", env(map[string]string{"K": "hunter2hunter2"}))
	if got := c.Servers[0].Target(); got != "uvx mcp-server-time x ****" || !maps.Equal(c.Servers[0].hidden, map[string]bool{"args.2": true}) {
		t.Errorf("shown as %s", got)
	}
	if b := c.Servers[1]; b.Disabled != `server "b" is off: variable NOPE is not set (preset); set it, or write ${NOPE:-default}` {
		t.Errorf("off because %q", b.Disabled)
	}
}

// The page names every preset with every driver, and its examples load.
func TestPresetDocs(t *testing.T) {
	const page = "../../docs/servers/presets.md"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := range presets {
		p := &presets[i]
		for _, want := range []string{"| `" + p.name + "` |", strings.Join(append([]string{p.command}, append(p.launch, p.args...)...), " ")} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not have %s", page, want)
			}
		}
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("no example")
	}
	used := map[string]bool{}
	for _, b := range blocks {
		c := mustParse(t, b[1], noEnv())
		if len(c.Warnings) > 0 {
			t.Errorf("%q in\n%s", c.Warnings, b[1])
		}
		for _, s := range c.Servers {
			used[s.Driver] = true
		}
	}
	if want := map[string]bool{"builtin": true, "process": true, "sandbox": true, "docker": true}; !reflect.DeepEqual(used, want) {
		t.Errorf("the examples have %v", used)
	}
}
