package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestRunArgsErrors(t *testing.T) {
	at := "tine.yaml:1:"
	for in, want := range map[string]string{
		"[--name, x]":               at + "45: servers.a.docker.run_args: --name: each instance has a name of its own, so that there can be several; remove it",
		"[--memory, 5m]":            at + "45: servers.a.docker.run_args: --memory: is out of range; want 6MiB to 1024TiB",
		"[--memory, lots]":          at + "45: servers.a.docker.run_args: --memory: wants a size, like 512m or 2g",
		"[--gpus, all, --sysctl=a]": at + "45: servers.a.docker.run_args: --gpus: Tine has no key for it; remove it\n" + at + "58: servers.a.docker.run_args: --sysctl: Tine has no key for it; remove it",
		"[-it]":                     at + "45: servers.a.docker.run_args: --tty: a terminal would mangle the messages; remove it",
		"[-p, '8080:8000']":         at + "45: servers.a.docker.run_args: --publish: a port of the host would be taken by the first instance; write -p 8000, the port in the container, and Tine finds one of the host",
		"[--restart, always]":       at + "45: servers.a.docker.run_args: --restart: what has died is started again by Tine; remove it",
		"[-v, /data]":               at + "45: servers.a.docker.run_args: --volume: is a volume without a source, which would not be found again; name it as state, or write SOURCE:TARGET",
		"[-v, 'vol:/b:z']":          at + "45: servers.a.docker.run_args: --volume: has an option that Tine does not take over; use ro or rw",
		"[--mount, 'type=npipe,target=/x,source=y']": at + "45: servers.a.docker.run_args: --mount: has a type that Tine does not take over; use bind, volume or tmpfs",
		"[--network, 'container:x']":                 at + "45: servers.a.docker.run_args: --network: another container may end at any time; name a network",
		"[--frobnicate]":                             at + "44: servers.a.docker.run_args: --frobnicate is no flag of docker run that Tine knows; remove it",
		"[--memory]":                                 at + "44: servers.a.docker.run_args: --memory wants a value",
		"[--init, img, --memory]":                    at + "44: servers.a.docker.run_args: what is no flag can't stand here; the image goes to docker.image and its command to docker.command",
		"[--dns, here]":                              at + "45: servers.a.docker.run_args: --dns: wants an address, like 10.0.0.2",
		"[--help]":                                   at + "44: servers.a.docker.run_args: can't be read as flags of docker run; write them like [--memory, 512m]",
		`"--label 'a"`:                               at + "44: servers.a.docker.run_args: a ' does not close; mend the quotes, or write a list",
		"{a: b}":                                     at + `44: servers.a.docker.run_args: want a list of strings, got a map; write run_args: ["--memory", "512m"]`,
		"['--env=${SECRET}', --nope]":                at + "44: servers.a.docker.run_args: one of them is no flag of docker run that Tine knows; remove it",
	} {
		_, err := Parse([]byte("servers: {a: {docker: {image: i, run_args: "+in+"}}}\n"), env(map[string]string{"SECRET": "hunter2"}))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", in, err, want)
		}
	}
	for in, want := range map[string]string{
		"memory: 1GiB, run_args: [-m, 1g]":          "--memory: says what docker.memory says; keep one",
		"user: a, run_args: [-u, b]":                "--user: says what docker.user says; keep one",
		"writable: true, run_args: --read-only":     "is true, but run_args has --read-only; remove one of them",
		"port: 1, run_args: [-p, 2]":                "--publish: is another port than the one given already; keep the one that speaks MCP",
		"labels: {a: b}, run_args: [-l, a=c]":       "--label: docker.labels has this one too; keep one",
		"transport: stdio, run_args: [-p, 2]":       "--publish goes with transport: http, but this is stdio; remove it",
		"binds: ['aa:/a'], run_args: [-v, 'bb:/a']": "something else has the same target already; keep one",
	} {
		_, err := Parse([]byte("servers: {a: {docker: {image: i, "+in+"}}}\n"), noEnv())
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
}

func TestShellWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                nil,
		"  a  b\tc\n":     {"a", "b", "c"},
		`'a b' "c d"`:     {"a b", "c d"},
		`a'b'"c"d`:        {"abcd"},
		`'' ""`:           {"", ""},
		`a\ b \' \\`:      {"a b", "'", `\`},
		`"a\"b\$c\d" '\'`: {`a"b$c\d`, `\`},
		"$HOME `x` *":     {"$HOME", "`x`", "*"},
		"a\\\nb":          {"ab"},
	} {
		if got, err := ShellWords(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{`'a`, `"a`, `a\`, `"a\"`} {
		if got, err := ShellWords(in); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}
