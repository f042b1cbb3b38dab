package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"GET https://user:hunter2@r.example/x": "GET https://***@r.example/x",
		"git+https://tokentoken@h.example/x":   "git+https://***@h.example/x",
		"//r.example/:_authToken=abcdef":       "//r.example/:_authToken=***",
		`"_password": "abcdef"`:                `"_password": "***"`,
		"Authorization: Bearer abc.def-ghi":    "Authorization: Bearer ***",
		"https://r.example/x?token=abc&y=1":    "https://r.example/x?token=***&y=1",
		"npm_0123456789abcdefghijklmn":         "***",
		"npm error 404 @scope/name@1.0.0":      "npm error 404 @scope/name@1.0.0",
	} {
		if got := mask(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestSecretsOfConfigs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"npmrc":    "registry=https://r.example\n//r.example/:_authToken=plainlooking\n; _auth=comment\n//x/:_password = ${PASS_WORD}\n",
		"pip.conf": "[global]\nindex-url = https://me:pipsecret@i.example/simple\n",
		"netrc":    "machine h.example login me password netsecret\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var s secrets
	vars := s.addConfig(filepath.Join(dir, "npmrc"))
	s.addConfig(filepath.Join(dir, "pip.conf"))
	s.addConfig(filepath.Join(dir, "netrc"))
	s.addConfig(filepath.Join(dir, "missing"))
	if fmt.Sprint(vars) != "[PASS_WORD]" {
		t.Errorf("refers to %v", vars)
	}
	got := s.mask("x plainlooking y pipsecret z netsecret comment")
	if got != "x *** y *** z *** comment" {
		t.Errorf("masked: %q", got)
	}
}

func TestOutputKeepsTheEnd(t *testing.T) {
	o := &output{secrets: secrets{"verysecret"}}
	for i := range 1000 {
		fmt.Fprintf(o, "line %d\r\n", i)
	}
	fmt.Fprint(o, "\x1b[31mred\x1b[0m very")
	fmt.Fprint(o, "secret\n")
	o.Write([]byte(strings.Repeat("x", 1<<20)))
	got := o.tail()
	if len(got) != keptLines {
		t.Fatalf("%d lines", len(got))
	}
	if got[keptLines-2] != "red ***" || got[keptLines-3] != "line 999" {
		t.Errorf("the end is %q", got[keptLines-3:])
	}
	if last := got[keptLines-1]; len(last) > keptLine+3 || !strings.HasSuffix(last, "...") {
		t.Errorf("a long line has %d bytes", len(last))
	}
}

func TestEnvironmentIsSmall(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".npmrc"), []byte("//r/:_authToken=${MY_TOKEN}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.TempDir(), Options{Environ: func() []string {
		return []string{"HOME=" + home, "PATH=/bin", "DATABASE_PASSWORD=gatewaysecret", "MY_TOKEN=npmtoken", "HTTPS_PROXY=http://p.example", "npm_config_registry=https://r.example", "UV_CACHE_DIR=/x", "NODE_OPTIONS=--x"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	around := s.surround(Wanted{Kind: NPM, Package: "a", Env: map[string]string{"API_KEY": "serversecret", "PIP_INDEX_URL": "https://u:pw12345@i.example"}}, "/private")
	for name, want := range map[string]string{
		"HOME": "/private", "PATH": "/bin", "HTTPS_PROXY": "http://p.example", "npm_config_registry": "https://r.example",
		"NPM_CONFIG_USERCONFIG": filepath.Join(home, ".npmrc"), "MY_TOKEN": "npmtoken",
		"PIP_INDEX_URL": "https://u:pw12345@i.example", "UV_DEFAULT_INDEX": "https://u:pw12345@i.example",
		"DATABASE_PASSWORD": "", "API_KEY": "", "UV_CACHE_DIR": "", "NODE_OPTIONS": "",
	} {
		if got := around.vars[name]; got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if got := around.secrets.mask("npmtoken pw12345"); got != "*** ***" {
		t.Errorf("masked: %q", got)
	}
	if around.host["HOME"] != home || around.host["DATABASE_PASSWORD"] != "" {
		t.Errorf("interpreters are asked with %v", around.host)
	}
}

func TestNodeScript(t *testing.T) {
	for text, want := range map[string]string{
		"#!/usr/bin/env node\n":            "true []",
		"#!/usr/bin/env -S node --a --b\n": "true [--a --b]",
		"#!/usr/bin/node\n":                "true []",
		"#!/bin/sh\n":                      "false []",
		"#!/usr/bin/env deno\n":            "false []",
		"console.log(1)":                   "true []",
		"#!" + strings.Repeat("x", 1<<16):  "false []",
	} {
		file := filepath.Join(t.TempDir(), "x.js")
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		options, ok := nodeScript(file)
		if got := fmt.Sprint(ok, " ", options); got != want {
			t.Errorf("%.40q: %s, want %s", text, got, want)
		}
	}
}

func TestReadsAreNarrow(t *testing.T) {
	p := python{Exec: "/home/me/bin/python3", Prefixes: []string{"/home/me", "/home/me"}, Stdlib: []string{"/home/me/lib/python3.12"}}
	if got := fmt.Sprint(p.reads("/home/me")); got != "[/home/me/bin/python3 /home/me/lib/python3.12]" {
		t.Errorf("a Python in the home makes visible: %s", got)
	}
	p = python{Exec: "/usr/bin/python3.12", Prefixes: []string{"/usr", "/usr"}, Stdlib: []string{"/usr/lib/python3.12"}}
	if got := fmt.Sprint(p.reads("/home/me")); got != "[/usr/bin/python3.12 /usr/lib/python3.12]" {
		t.Errorf("the system's Python makes visible: %s", got)
	}
	p = python{Exec: "/home/me/.pyenv/versions/3.12/bin/python3.12", Prefixes: []string{"/home/me/.pyenv/versions/3.12"}, Stdlib: []string{"/x"}}
	if got := fmt.Sprint(p.reads("/home/me")); got != "[/home/me/.pyenv/versions/3.12]" {
		t.Errorf("a Python of pyenv makes visible: %s", got)
	}
}
