package config

import (
	"regexp"
	"strings"
	"testing"
)

var madeOf = regexp.MustCompile(`(?m)^ +# made of preset: .*\n`)

// again loads what is shown of a config, and returns what is shown of that.
func again(t *testing.T, in string, opts Options) (c, back *Config, shown string) {
	t.Helper()
	c, err := Parse([]byte(in), opts)
	if err != nil {
		t.Fatalf("%v in\n%s", err, in)
	}
	shown = string(Marshal(c))
	back, err = Parse([]byte(shown), opts)
	if err != nil {
		t.Fatalf("what is shown of\n%s\ncan't be loaded: %v\n%s", in, err, shown)
	}
	if now := string(Marshal(back)); now != madeOf.ReplaceAllString(shown, "") {
		t.Errorf("%s\nis shown as\n%s\nand then as\n%s", in, shown, now)
	}
	return c, back, shown
}

// What is shown means the same when it is loaded.
func TestShownLoadsAgain(t *testing.T) {
	opts := noEnv()
	opts.OS = "linux"
	for _, in := range []string{
		"servers: {a: {preset: memory}, b: {preset: filesystem}, c: {preset: time}, d: {preset: fetch}, e: {preset: everything}, f: {preset: duckdb}}",
		"servers: {a: {preset: memory, driver: process}, b: {preset: fetch, driver: process}, c: {preset: everything, driver: process}, d: {preset: memory, sandbox: {memory: 512MiB}}, e: {preset: fetch, driver: sandbox}}",
		"servers: {a: {preset: memory, docker: i}, b: {preset: fetch, docker: i}, c: {preset: duckdb, docker: {image: i}}}",
		"servers: {a: {docker: {image: x, state: [/data]}}, b: {docker: {image: x, state: [root]}}, c: {docker: {image: x, state: [/a, /b], template_path: /b}, template: /srv/t}}\ntemplate_roots: [/srv]",
		`servers: {a: {docker: {image: x, state: [/data], port: 8000, run_args: "--cap-add SYS_PTRACE --tmpfs /x --ulimit nofile=1:2 -v /usr/share/doc:/y -e A=b -l a=b --dns 1.1.1.1 --init -u 5 --entrypoint /e --rm"}}}`,
		`servers: {a: {docker: {image: x, plain: true, run_args: "--privileged --read-only --pids-limit -1 --device /dev/fuse --security-opt label=disable --cap-drop all --add-host h=10.0.0.1 -m 1g --network host"}}}`,
		"servers: {a: {builtin: time}}\nauth: {tokens: [{name: a, hash: 'sha256:" + strings.Repeat("ab", 32) + "'}]}",
		"servers: {a: {command: ls, sandbox: {port: 80, root: host}, fork: fresh}, b: {command: ls, sandbox: true, warm: 3, on_fork: {tool: x}}, c: {command: ls, driver: sandbox}}",
		`{journal: off, sessions: {memory: off, share: 50%}, workspace: true, servers: {a: {command: ls, policy: {retry: off, breaker: off, cache: off}, journal: off, enabled: false}, "on": {builtin: time}}}`,
		`servers: {a: {remote: {url: "https://x.example.org/", resource: y}, template: [1, 2]}}`,
	} {
		c, back, shown := again(t, in, opts)
		if ch := Diff(c, back); !ch.Empty() {
			t.Errorf("%s\nmeans something else than what is shown of it: %+v\n%s", in, ch, shown)
		}
		if len(back.Warnings) > 0 {
			t.Errorf("%s: %q", in, back.Warnings)
		}
	}
}

// A placeholder in a flag without a key stays hidden.
func TestShownFlagsHidePlaceholders(t *testing.T) {
	c := mustParse(t, `servers: {a: {docker: {image: x, run_args: [--add-host, "db=${ADDRESS}", --security-opt, "apparmor=${PROFILE}", --dns, 1.1.1.1]}}}`,
		env(map[string]string{"ADDRESS": "10.1.2.3", "PROFILE": "hidden-profile"}))
	shown := string(Marshal(c))
	if strings.Contains(shown, "10.1.2.3") || strings.Contains(shown, "hidden-profile") || !strings.Contains(shown, "--dns=1.1.1.1") {
		t.Error(shown)
	}
}

// A mask that was taken for a value is told.
func TestMaskIsWarnedAbout(t *testing.T) {
	c := mustParse(t, `servers:
  a: {url: "https://h.example.org", headers: {Authorization: "****"}}
  b: {command: x, args: ["--token=****"], env: {KEY: "****", STAR: "***", FROM: "${FROM}"}}
`, env(map[string]string{"FROM": "****"}))
	want := []string{"tine.yaml:2:62: servers.a.headers.Authorization: holds ****", "tine.yaml:3:26: servers.b.args[0]: holds ****", "tine.yaml:3:54: servers.b.env.KEY: holds ****"}
	if len(c.Warnings) != len(want) {
		t.Fatalf("got %q", c.Warnings)
	}
	for i, w := range c.Warnings {
		if !strings.HasPrefix(w, want[i]) {
			t.Errorf("got %q, want %q", w, want[i])
		}
	}
}
