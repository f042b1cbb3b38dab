package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestRunArgs(t *testing.T) {
	opts := env(map[string]string{"HOST_VAR": "from-the-gateway", "SECRET": "hunter2hunter2"})
	opts.Path = "/srv/tine.yaml"
	opts.ReadFile = func(path string) ([]byte, error) {
		if path != "/srv/a.env" {
			return nil, errors.New("no such file")
		}
		return []byte("# note\n  A=\"quoted\"\nB=of the file # kept\nHOST_VAR\nNO_SUCH\n"), nil
	}
	for in, want := range map[string]Docker{
		"-m 512m --cpus=1.5 --pids-limit -1 --shm-size 1g": {Memory: 512 << 20, CPUs: 1.5, Pids: -1, ShmSize: 1 << 30},
		"--memory 1g -m512m": {Memory: 512 << 20},
		"--net host":         {Network: "host"},
		"--network default -u 1:2 -w /x/ -h box --init": {Network: "bridge", User: "1:2", Workdir: "/x", Hostname: "box", Init: true},
		"--rm -it=false -d -q -a stdin --expose 80":     {},
		"-v ./a:/a:ro --volume=vol:/b --mount type=bind,source=x,target=/c,readonly": {
			Binds: []Bind{{"/srv/a", "/a", true}, {"vol", "/b", false}, {"/srv/x", "/c", true}}},
		"--mount type=tmpfs,target=/t,tmpfs-size=1m --tmpfs /u:size=2m --mount source=v,dst=/d": {
			Tmpfs: []string{"/t:size=1m", "/u:size=2m"}, Binds: []Bind{{"v", "/d", false}}},
		"--cap-add net_admin --cap-drop=ALL --security-opt no-new-privileges --device /dev/fuse --privileged": {
			CapAdd: []string{"NET_ADMIN"}, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, Devices: []string{"/dev/fuse"}, Privileged: true},
		"--ulimit nofile=1:2 --add-host a:1.2.3.4 --add-host b=::1 --dns 1.1.1.1": {
			Ulimits: []string{"nofile=1:2"}, ExtraHosts: []string{"a:1.2.3.4", "b:::1"}, DNS: []string{"1.1.1.1"}},
		`-l a="b c" --label d --entrypoint '/bin/a b' --runtime runsc --pull never`: {
			Labels: map[string]string{"a": "b c", "d": ""}, Entrypoint: []string{"/bin/a b"}, Runtime: "runsc", Pull: "never"},
		"-p 8000/tcp --restart no": {Port: 8000, Transport: "http", Path: "/mcp"},
	} {
		c := mustParse(t, "servers: {a: {docker: {image: i, plain: true, run_args: "+quoteScalar(in)+"}}}\n", opts)
		got := meaningOf(c.Servers[0])
		want.Image, want.Plain, want.Writable = "i", true, true
		SetDefault(&want.Pull, "missing")
		SetDefault(&want.Transport, "stdio")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", in, got, want)
		}
	}

	c := mustParse(t, `servers:
  a:
    docker: {image: i, run_args: [-e, A=flag, --env-file, a.env, --env=OWN=flag, -eC=d, -e, HOST_VAR, -e, NO_SUCH, -e, "K=${SECRET}", --label, "l=${SECRET}"]}
    env: {OWN: entry}
`, opts)
	s := c.Servers[0]
	want := map[string]string{"A": "flag", "B": "of the file # kept", "HOST_VAR": "from-the-gateway", "OWN": "entry", "C": "d", "K": "hunter2hunter2"}
	if !reflect.DeepEqual(s.Env, want) || as[Docker](s).Labels["l"] != "hunter2hunter2" {
		t.Errorf("env %v, labels %v", s.Env, as[Docker](s).Labels)
	}
	shown := string(Marshal(c))
	for _, secret := range []string{"hunter2", "from-the-gateway", "of the file"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%s is shown:\n%s", secret, shown)
		}
	}
	if !strings.Contains(shown, "OWN: entry") || !strings.Contains(strings.Join(s.Secrets(), " "), "hunter2hunter2") {
		t.Errorf("secrets %q, shown\n%s", s.Secrets(), shown)
	}

	// A file that is not there takes one server with it, and no other.
	c = mustParse(t, "servers: {a: {docker: {image: i, run_args: [--env-file, b.env]}}, b: {builtin: time}}\n", opts)
	if c.Servers[0].Disabled == "" || len(c.Warnings) != 1 || c.Servers[1].Disabled != "" {
		t.Errorf("%q, %q", c.Servers[0].Disabled, c.Warnings)
	}
}

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
		"[-v, /data]":               at + "45: servers.a.docker.run_args: --volume: is a volume without a source, which nobody would find again; name it as state, or write SOURCE:TARGET",
		"[-v, 'vol:/b:z']":          at + "45: servers.a.docker.run_args: --volume: has an option that Tine does not take over; use ro or rw",
		"[--mount, 'type=npipe,target=/x,source=y']": at + "45: servers.a.docker.run_args: --mount: has a type that Tine does not take over; use bind, volume or tmpfs",
		"[--network, 'container:x']":                 at + "45: servers.a.docker.run_args: --network: a container of somebody else's may end at any time; name a network",
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
