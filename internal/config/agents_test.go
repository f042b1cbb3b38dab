package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAgentsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"agents: {dirs: [a]}":                                   `unknown key "dirs" in agents; did you mean "dir"?`,
		"agents: {dir: []}":                                     "agents.dir: is empty; name a folder, or remove it",
		"agents: {dir: [' ']}":                                  "agents.dir[0]: is empty",
		"agents: {env: ['*']}":                                  "agents.env[0]: \"*\" is not the name of a variable",
		"agents: {tags: [a b]}":                                 "agents.tags[0]: \"a b\" is not a tag",
		"agents: {concurrency: -1}":                             "agents.concurrency",
		"agents: {lease: 1}":                                    "agents.lease",
		"agents: {executors: [a]}":                              "agents.executors: want a map of a name to an executor",
		"agents: {executors: {a b: {command: x}}}":              `executor "a b" is not a name`,
		"agents: {executors: {a: {}}}":                          "agents.executors.a: command is missing",
		"agents: {executors: {a: {type: claud-code}}}":          `did you mean "claude-code"?`,
		"agents: {executors: {a: {command: x, arg: [b]}}}":      `unknown key "arg" in agents.executors.a; did you mean "args"?`,
		"agents: {executors: {a: {command: x, env: {'=': b}}}}": `agents.executors.a.env: "=" can't name a variable`,
	} {
		_, err := Parse([]byte(text), noEnv())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ":1:") {
			t.Errorf("%s: %v, want %q with its place", text, err, want)
		}
	}
}

func TestAgentWarnings(t *testing.T) {
	dir := t.TempDir()
	opts := noEnv()
	opts.Path = filepath.Join(dir, "tine.yaml")
	c := mustParse(t, "servers: {time: {builtin: time}}", opts)
	if w := c.AgentWarnings(); len(w) > 0 || !slices.Equal(c.AgentDirs(), []string{filepath.Join(dir, "agents")}) {
		t.Errorf("%q, %q", w, c.AgentDirs())
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c = mustParse(t, "servers: {time: {builtin: time}}\nagents: {dir: [nowhere, file, .], executors: {a: {command: tine-has-no-such-program}, b: {command: ./file}}}", opts)
	w := strings.Join(c.AgentWarnings(), "\n")
	for _, want := range []string{"nowhere", "file is not a folder", "agents.executors.a", "agents.executors.b"} {
		if !strings.Contains(w, want) {
			t.Errorf("no warning of %s in\n%s", want, w)
		}
	}
	if n := len(c.AgentWarnings()); n != 4 {
		t.Errorf("%d warnings in\n%s", n, w)
	}
}
