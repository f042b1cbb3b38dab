package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestFront reads entries of a built-in server that has a program as its body.
func TestFront(t *testing.T) {
	for _, tt := range []struct{ name, entry, driver, command string }{
		{"by itself", "builtin: rlm", "sandbox", "python3"},
		{"with keys of its sandbox", "builtin: rlm, sandbox: {memory: 8GiB}", "sandbox", "python3"},
		{"another Python", "builtin: rlm, settings: {python: /opt/py/bin/python}", "sandbox", "/opt/py/bin/python"},
		{"with packages", "builtin: rlm, settings: {packages: [numpy, pandas==2.3.0]}", "sandbox", "uvx"},
		{"in a container", "builtin: rlm, docker: {image: py}", "docker", ""},
		{"in a container, by its image", "builtin: rlm, docker: py", "docker", ""},
		{"in a container of its own image", "builtin: rlm, driver: docker", "docker", ""},
		{"without isolation", "builtin: rlm, driver: process", "process", "python3"},
		{"without a sandbox", "builtin: rlm, sandbox: false", "process", "python3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse([]byte("servers: {a: {"+tt.entry+"}}"), Options{OS: "linux"})
			if err != nil {
				t.Fatal(err)
			}
			s := c.Servers[0]
			if s.Front != "rlm" || s.Builtin != "" || s.Driver != tt.driver || s.Command != tt.command || s.Scope != ScopeSession {
				t.Errorf("got front %q, builtin %q, driver %q, command %q, scope %q", s.Front, s.Builtin, s.Driver, s.Command, s.Scope)
			}
			shown := s.shown()
			if shown.Get("command") != nil || shown.Get("args") != nil || shown.Get("builtin").Text != "rlm" {
				t.Errorf("it is shown as %s", flow(shown))
			}
			if s.Target() != "builtin rlm" {
				t.Errorf("its target is %s", s.Target())
			}
		})
	}
}

// TestFrontPaths resolves the paths of its settings as all others of a config.
func TestFrontPaths(t *testing.T) {
	c := mustParse(t, "servers: {a: {builtin: rlm, settings: {allow_read: [./data, /srv]}}}", Options{Path: "/etc/app/tine.yaml"})
	if got := fmt.Sprint(c.Servers[0].Settings["allow_read"]); got != "[/etc/app/data /srv]" {
		t.Errorf("they are %s", got)
	}
}

// TestFrontPackages has a program run with packages as uvx does.
func TestFrontPackages(t *testing.T) {
	c := mustParse(t, "servers: {a: {builtin: rlm, settings: {python: ./venv/bin/python, packages: [numpy, pandas]}}}", Options{Path: "/etc/app/tine.yaml"})
	if got := strings.Join(c.Servers[0].Args, " "); !strings.HasPrefix(got, "--python /etc/app/venv/bin/python --from numpy --with pandas python -X utf8 -c ") {
		t.Errorf("it is started with %s", got)
	}
}

// TestFrontElsewhere takes a container where there is no sandbox.
func TestFrontElsewhere(t *testing.T) {
	if c := mustParse(t, "servers: {a: {builtin: rlm}}", Options{OS: "darwin"}); c.Servers[0].Driver != "docker" {
		t.Errorf("the driver is %s", c.Servers[0].Driver)
	}
}

func TestFrontRefuses(t *testing.T) {
	for entry, says := range map[string]string{
		"builtin: rlm, command: python3":                                                 "exclude each other",
		"builtin: rlm, url: 'https://x'":                                                 "exclude each other",
		"builtin: rlm, driver: url":                                                      "does not go with",
		"builtin: rlm, docker: py, driver: sandbox":                                      "",
		"builtin: memory, sandbox: true":                                                 "goes with",
		"builtin: rlm, settings: {names: dashes}":                                        "1:47: servers.a.settings.names must be underscores or dots",
		"builtin: rlm, settings: {nmaes: dots}":                                          "settings.nmaes is not known; there are allow_read",
		"builtin: rlm, settings: {packages: numpy}":                                      "servers.a.settings.packages must be a list of strings, not a string",
		"builtin: rlm, settings: {budget: {coast: 1}}":                                   `settings.budget has no "coast"; it has calls, cost, time, tokens`,
		"builtin: rlm, settings: {budget: {cost: 0}}":                                    "1:48: servers.a.settings.budget.cost must be more than 0; leave it out",
		"builtin: rlm, settings: {key_env: sk-ant 1}":                                    "settings.key_env must be the name of a variable",
		"builtin: rlm, settings: {sub_model: nobody}":                                    `1:51: servers.a.settings.sub_model: model "nobody": no provider`,
		"builtin: rlm, settings: {allow_read: [~/.ssh]}":                                 "1:53: servers.a.settings.allow_read: /home/me/.ssh is a place of keys",
		"builtin: rlm, settings: {model: m, base_url: 'http://h/v1', budget: {cost: 1}}": "settings.prices must have m",
		"builtin: rlm, docker: py, settings: {packages: [numpy]}":                        "a container has the packages of its image",
		"builtin: rlm, sandbox: {nothing: 1}":                                            "nothing",
		"builtin: rlm, sandbox: {memory: 1TiB}, docker: py":                              "",
	} {
		_, err := Parse([]byte("servers: {a: {"+entry+"}}"), Options{OS: "linux", Home: "/home/me"})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}
