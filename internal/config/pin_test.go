package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// everywhere has a placeholder wherever one may stand that is new.
const everywhere = `servers:
  box:
    docker:
      host: tcp://${SECRET}:1
      image: img:${SECRET}
      entrypoint: [a, "${SECRET}"]
      command: [b, "${SECRET}"]
      workdir: /${SECRET}
      user: ${SECRET}
      hostname: ${SECRET}
      port: 1
      path: /${SECRET}
      state: ["/${SECRET}-state"]
      binds: ["/${SECRET}:/b", {source: "/x/${SECRET}", target: "/c${SECRET}"}]
      tmpfs: ["/t${SECRET}"]
      network: ${SECRET}
      runtime: ${SECRET}
      labels: {plain: "${SECRET}"}
      run_args: [-e, "A=${SECRET}", "--label=l=${SECRET}", --device, "/dev/${SECRET}", --dns=1.1.1.1]
    env: {B: "${SECRET}"}
    template: /t/${SECRET}
    startup: {tool: ping, arguments: {n: 12345678901234567, f: 1.5, key: "${SECRET}"}}
  far:
    remote: {url: "https://o.example.org/${SECRET}", resource: "${SECRET}", call: "/${SECRET}/{remote_instance_id}", attempts: 5}
    headers: {X: "${SECRET}"}
    template: {deep: [{key: "${SECRET}"}], n: 12345678901234567, html: <b>}
  mem: {preset: memory, driver: process, env: {MORE: "${SECRET}"}}
  ctl: {builtin: rollout, merged: true}
`

func TestSecretsStayHidden(t *testing.T) {
	c := mustParse(t, everywhere, env(map[string]string{"SECRET": "hunter2-hunter2"}))
	shown := string(Marshal(c))
	for i := range c.Servers {
		s := &c.Servers[i]
		pin, err := s.Pin()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unpin(pin)
		if err != nil {
			t.Fatal(err)
		}
		want := *s
		want.derived = derived{}
		if !reflect.DeepEqual(back, want) {
			t.Errorf("%s came back as\n%+v\nand was\n%+v", s.ID, back, want)
		}
		again, _ := back.Pin()
		if string(again) != string(pin) {
			t.Errorf("%s is pinned as\n%s\nand then as\n%s", s.ID, pin, again)
		}
		shown += back.Target() + s.Target()
		if s.ID == "box" || s.ID == "far" || s.ID == "mem" {
			if !slices.ContainsFunc(s.Secrets(), func(v string) bool { return strings.Contains(v, "hunter2-hunter2") }) {
				t.Errorf("%s keeps nothing secret: %q", s.ID, s.Secrets())
			}
		}
	}
	if strings.Contains(shown, "hunter2") {
		t.Errorf("a secret is shown:\n%s", shown)
	}
	for _, line := range []string{
		"    docker:\n      host: \"****\"\n      image: \"****\"\n      pull: missing\n      entrypoint: [a, \"****\"]\n",
		"      binds: [{source: \"****\", target: \"****\"}, {source: \"****\", target: \"****\"}]\n",
		"    template:\n      deep: [{key: \"****\"}]\n      html: \"<b>\"\n      \"n\": 12345678901234567\n",
		"    startup:\n      tool: ping\n      arguments:\n        f: 1.5\n        key: \"****\"\n        \"n\": 12345678901234567\n",
		"  # made of preset: memory\n  mem:\n    title: mem\n    driver: process\n    command: npx\n",
		"    builtin: rollout\n    workspace: false\n    budget: {memory: 1MiB}\n    merged: true\n",
		"    driver: remote\n    remote:\n      type: http\n      url: \"****\"\n      resource: \"****\"\n      create: /instances\n",
	} {
		if !strings.Contains(shown, line) {
			t.Errorf("no\n%s\nin\n%s", line, shown)
		}
	}
}

// A value that is missing does not move what is hidden.
func TestHiddenBesideMissing(t *testing.T) {
	c := mustParse(t, "servers: {a: {docker: {image: i, state: ['${NOPE}', '/${SECRET}']}}}\n", env(map[string]string{"SECRET": "hunter2-hunter2"}))
	if shown := string(Marshal(c)); strings.Contains(shown, "hunter2") {
		t.Errorf("a secret is shown:\n%s", shown)
	}
}

// What an older Tine pinned must stay the same text.
func TestPinWithoutNewKeys(t *testing.T) {
	c := mustParse(t, "servers: {a: {command: x}}\n", noEnv())
	pin, err := c.Servers[0].Pin()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"Docker", "Remote", "Preset", "Startup", "Merged", "Details", "Sandbox", "Warm", "ForkAhead", "OnFork"} {
		if strings.Contains(string(pin), key) {
			t.Errorf("%s is in %s", key, pin)
		}
	}
}

// TestPinsOfEarlierGateways: entries that sessions were opened with are read as
// they were meant, and instances that run are still those of their entries,
// however the types of this package change.
func TestPinsOfEarlierGateways(t *testing.T) {
	const file = "testdata/pins"
	opts := env(map[string]string{"TOKEN": "correct-horse-battery", "CALLS": "7", "OFF": "false", "SECRET": "hunter2-hunter2", "UID": "7:8"})
	opts.Path, opts.Home = "/srv/tine/tine.yaml", "/home/ada"
	now := make(map[string]Server)
	for prefix, text := range map[string]string{"keys/": everyKey, "placeholders/": everywhere, "sandbox/": walled} {
		for _, s := range mustParse(t, text, opts).Servers {
			s.derived = derived{}
			now[prefix+s.ID] = s
		}
	}
	// A line is a name, the hash that instances are recorded with, and the pin.
	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(lines)) {
		name, rest, _ := strings.Cut(line, " ")
		hash, pin, _ := strings.Cut(rest, " ")
		seen[name] = true
		s, err := Unpin(json.RawMessage(pin))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.SpecHash() != hash {
			t.Errorf("%s: what was pinned has the hash %s, and instances of it run with %s", name, s.SpecHash(), hash)
		}
		// What the config says today starts the same thing: else each instance
		// ends at an upgrade.
		if now[name].SpecHash() != hash {
			t.Errorf("%s: the config's hash is %s, and instances of it run with %s", name, now[name].SpecHash(), hash)
		}
		if !reflect.DeepEqual(s, now[name]) {
			t.Errorf("%s was pinned as\n%+v\nand the config says\n%+v", name, s, now[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch s := now[name]; {
		case seen[name]:
		case *update: // the lines of before stay as they are
			pin, err := s.Pin()
			if err != nil {
				t.Fatal(err)
			}
			lines = fmt.Appendf(lines, "%s %s %s\n", name, s.SpecHash(), pin)
			if err := os.WriteFile(file, lines, 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not in %s; go test -update adds it", name, file)
		}
	}
}
