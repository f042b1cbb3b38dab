package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/docker"
	_ "github.com/tine-mcp/tine/internal/driver/kinds"
	"github.com/tine-mcp/tine/internal/driver/remote"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// as gives the options of an entry, or nil where they are of another kind.
func as[T any](s Server) *T {
	t, _ := s.Options.(*T)
	return t
}

// meaningOf is what a container is compared by.
func meaningOf(s Server) docker.Config { return *s.Meaning().(*docker.Config) }

func init() {
	WholeOptions = func(s *Server) error {
		whole := false
		switch c := s.Options.(type) {
		case *docker.Config:
			whole = c.Image != "" && c.Pull != "" && c.Transport != "" && (c.Transport != ContainerHTTP || c.Port > 0 && c.Path != "") &&
				(c.Plain || c.Memory >= MinMemory && c.Pids != 0) && (!c.Root() || c.Writable) && (s.Template == "" || c.TemplatePath != "")
		case *sandbox.Config:
			copied := s.Warm > 0 || s.ForkAhead || s.OnFork != nil
			whole = s.Command != "" && c.Root != "" && c.User != "" && (c.Network == "") == (len(c.Domains) > 0) && c.Transport != "" &&
				(c.Transport == ContainerHTTP) == (c.Port > 0) && c.Memory >= MinMemory && c.Pids > 0 && c.Files > 0 && c.Disk > 0 && (!copied || c.Forks())
		case *remote.Config:
			whole = c.URL != "" && c.Type != "" && c.Timeout > 0 && c.ConnectTimeout > 0 && c.Attempts > 0
		}
		if !whole {
			return errors.New("not whole")
		}
		return nil
	}
}

func TestContainer(t *testing.T) {
	opts := Env(map[string]string{"TAG": "7"})
	opts.Path = "/srv/tine.yaml"
	for in, want := range map[string]docker.Config{
		"docker: img":                                {Image: "img", Pull: "missing", Transport: "stdio", Memory: 2 << 30, Pids: 512},
		"docker: 'img:${TAG}'":                       {Image: "img:7", Pull: "missing", Transport: "stdio", Memory: 2 << 30, Pids: 512},
		"docker: {image: img, port: 8000}":           {Image: "img", Pull: "missing", Transport: "http", Port: 8000, Path: "/mcp", Memory: 2 << 30, Pids: 512},
		"docker: {image: img, plain: true}":          {Image: "img", Pull: "missing", Transport: "stdio", Plain: true, Writable: true},
		"docker: {image: img, state: [root]}":        {Image: "img", Pull: "missing", Transport: "stdio", State: []string{"root"}, Writable: true, Memory: 2 << 30, Pids: 512},
		"docker: {image: img, state: [/d/, /e]}":     {Image: "img", Pull: "missing", Transport: "stdio", State: []string{"/d", "/e"}, TemplatePath: "/d", Memory: 2 << 30, Pids: 512},
		"docker: {image: img, command: \"a 'b c'\"}": {Image: "img", Pull: "missing", Transport: "stdio", Command: []string{"a", "b c"}, Memory: 2 << 30, Pids: 512},
		"docker: {image: img, plain: true, run_args: --read-only, writable: false}": {
			Image: "img", Pull: "missing", Transport: "stdio", Plain: true, ReadOnly: true, RunArgs: []string{"--read-only"}},
		"docker: {image: img, binds: ['./a:/a:ro', {source: ~/b, target: /b/}, 'vol:/c', 'C:\\x:/d'], entrypoint: []}": {
			Image: "img", Pull: "missing", Transport: "stdio", Memory: 2 << 30, Pids: 512,
			Binds: []docker.Bind{{Source: "/srv/a", Target: "/a", ReadOnly: true}, {Source: "/home/ada/b", Target: "/b"}, {Source: "vol", Target: "/c"}, {Source: `C:\x`, Target: "/d"}}},
		"{docker: {image: img, state: [/d], template_path: /d/x, network: bridge, runtime: runsc, reach: port, port: 1, cap_add: [net_admin]}, template: ./t}": {
			Image: "img", Pull: "missing", Transport: "http", Port: 1, Path: "/mcp", Reach: "port", State: []string{"/d"}, TemplatePath: "/d/x",
			Network: "bridge", Runtime: "runsc", CapAdd: []string{"NET_ADMIN"}, Memory: 2 << 30, Pids: 512},
	} {
		if in[0] != '{' {
			in = "{" + in + "}"
		}
		c := MustParse(t, "servers: {a: "+in+"}\n", opts)
		s := c.Servers[0]
		if len(c.Warnings) > 0 || s.Driver != "docker" || s.Scope != "session" || s.Budget.Memory != 64<<20 || s.ConnectTimeout != 2*time.Minute {
			t.Errorf("%s: %+v, %q", in, s, c.Warnings)
		}
		if !reflect.DeepEqual(*as[docker.Config](s), want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", in, *as[docker.Config](s), want)
		}
	}
	// A place for templates of sessions needs none in the entry.
	MustParse(t, "template_roots: ./t\nservers: {a: {docker: {image: i, state: [root], template_path: /d}}}\n", opts)
}

func TestRunArgs(t *testing.T) {
	opts := Env(map[string]string{"HOST_VAR": "from-the-gateway", "SECRET": "hunter2hunter2"})
	opts.Path = "/srv/tine.yaml"
	opts.ReadFile = func(path string) ([]byte, error) {
		if path != "/srv/a.env" {
			return nil, errors.New("no such file")
		}
		return []byte("# note\n  A=\"quoted\"\nB=of the file # kept\nHOST_VAR\nNO_SUCH\n"), nil
	}
	for in, want := range map[string]docker.Config{
		"-m 512m --cpus=1.5 --pids-limit -1 --shm-size 1g": {Memory: 512 << 20, CPUs: 1.5, Pids: -1, ShmSize: 1 << 30},
		"--memory 1g -m512m": {Memory: 512 << 20},
		"--net host":         {Network: "host"},
		"--network default -u 1:2 -w /x/ -h box --init": {Network: "bridge", User: "1:2", Workdir: "/x", Hostname: "box", Init: true},
		"--rm -it=false -d -q -a stdin --expose 80":     {},
		"-v ./a:/a:ro --volume=vol:/b --mount type=bind,source=x,target=/c,readonly": {
			Binds: []docker.Bind{{Source: "/srv/a", Target: "/a", ReadOnly: true}, {Source: "vol", Target: "/b"}, {Source: "/srv/x", Target: "/c", ReadOnly: true}}},
		"--mount type=tmpfs,target=/t,tmpfs-size=1m --tmpfs /u:size=2m --mount source=v,dst=/d": {
			Tmpfs: []string{"/t:size=1m", "/u:size=2m"}, Binds: []docker.Bind{{Source: "v", Target: "/d"}}},
		"--cap-add net_admin --cap-drop=ALL --security-opt no-new-privileges --device /dev/fuse --privileged": {
			CapAdd: []string{"NET_ADMIN"}, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, Devices: []string{"/dev/fuse"}, Privileged: true},
		"--ulimit nofile=1:2 --add-host a:1.2.3.4 --add-host b=::1 --dns 1.1.1.1": {
			Ulimits: []string{"nofile=1:2"}, ExtraHosts: []string{"a:1.2.3.4", "b:::1"}, DNS: []string{"1.1.1.1"}},
		`-l a="b c" --label d --entrypoint '/bin/a b' --runtime runsc --pull never`: {
			Labels: map[string]string{"a": "b c", "d": ""}, Entrypoint: []string{"/bin/a b"}, Runtime: "runsc", Pull: "never"},
		"-p 8000/tcp --restart no": {Port: 8000, Transport: "http", Path: "/mcp"},
	} {
		c := MustParse(t, "servers: {a: {docker: {image: i, plain: true, run_args: "+QuoteScalar(in)+"}}}\n", opts)
		got := meaningOf(c.Servers[0])
		want.Image, want.Plain, want.Writable = "i", true, true
		SetDefault(&want.Pull, "missing")
		SetDefault(&want.Transport, "stdio")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", in, got, want)
		}
	}

	c := MustParse(t, `servers:
  a:
    docker: {image: i, run_args: [-e, A=flag, --env-file, a.env, --env=OWN=flag, -eC=d, -e, HOST_VAR, -e, NO_SUCH, -e, "K=${SECRET}", --label, "l=${SECRET}"]}
    env: {OWN: entry}
`, opts)
	s := c.Servers[0]
	want := map[string]string{"A": "flag", "B": "of the file # kept", "HOST_VAR": "from-the-gateway", "OWN": "entry", "C": "d", "K": "hunter2hunter2"}
	if !reflect.DeepEqual(s.Env, want) || as[docker.Config](s).Labels["l"] != "hunter2hunter2" {
		t.Errorf("env %v, labels %v", s.Env, as[docker.Config](s).Labels)
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

	// A missing file switches off the server that names it, and no other.
	c = MustParse(t, "servers: {a: {docker: {image: i, run_args: [--env-file, b.env]}}, b: {builtin: time}}\n", opts)
	if c.Servers[0].Disabled == "" || len(c.Warnings) != 1 || c.Servers[1].Disabled != "" {
		t.Errorf("%q, %q", c.Servers[0].Disabled, c.Warnings)
	}
}

// plainSandbox is what docs/config.md says of sandbox: true.
func plainSandbox(change func(*sandbox.Config)) sandbox.Config {
	b := sandbox.Config{Root: "allow", User: "1000:1000", Hostname: "sandbox", Network: "none", Transport: "stdio",
		Memory: 2 << 30, Pids: 512, Files: 4096, Disk: 1 << 30, Slots: 2}
	change(&b)
	return b
}

func TestSandbox(t *testing.T) {
	opts := Env(map[string]string{"YES": "true", "DIR": "/opt/d", "HOST": "Api.Example.org"})
	opts.Path = "/srv/tine.yaml"
	for in, change := range map[string]func(*sandbox.Config){
		"sandbox: true":     func(*sandbox.Config) {},
		"sandbox: ":         func(*sandbox.Config) {},
		"sandbox: {}":       func(*sandbox.Config) {},
		"sandbox: '${YES}'": func(*sandbox.Config) {},
		"driver: sandbox":   func(*sandbox.Config) {},
		"driver: sandbox, sandbox: {allow_read: [], deny_read: []}": func(*sandbox.Config) {},
		"sandbox: {slots: 0, user: 7}":                              func(b *sandbox.Config) { b.Slots, b.User = 0, "7:7" },
		"sandbox: {user: '1:020'}":                                  func(b *sandbox.Config) { b.User = "1:20" },
		"sandbox: {network: host}":                                  func(b *sandbox.Config) { b.Network = "host" },
		"sandbox: {network: ['${HOST}', '*.b.org', 'c:8080', 1a.io, 10.0.0.0/8, '[fd00::1]:5432']}": func(b *sandbox.Config) {
			b.Network, b.Domains = "", []string{"api.example.org", "*.b.org", "c:8080", "1a.io", "10.0.0.0/8", "[fd00::1]:5432"}
		},
		"sandbox: {port: 8000}":                                    func(b *sandbox.Config) { b.Transport, b.Port, b.Path = "http", 8000, "/mcp" },
		"sandbox: {transport: http, port: 8000, path: /x}":         func(b *sandbox.Config) { b.Transport, b.Port, b.Path = "http", 8000, "/x" },
		"sandbox: {root: host}":                                    func(b *sandbox.Config) { b.Root = "host" },
		"sandbox: {root: ./fs}, cwd: /work":                        func(b *sandbox.Config) { b.Root = "/srv/fs" },
		"sandbox: {root: ~/img.tar}, cwd: '${workspace}'":          func(b *sandbox.Config) { b.Root = "/home/ada/img.tar" },
		"sandbox: {root: '${DIR}/../fs/'}":                         func(b *sandbox.Config) { b.Root = "/opt/fs" },
		"sandbox: {memory: 512MiB, cpus: 1.5, pids: 9, files: 99}": func(b *sandbox.Config) { b.Memory, b.CPUs, b.Pids, b.Files = 512<<20, 1.5, 9, 99 },
		"sandbox: {disk: 5GB, hostname: a.b}":                      func(b *sandbox.Config) { b.Disk, b.Hostname = 5e9, "a.b" },
		"sandbox: {allow_read: [~/a, ../b], allow_write: [/w, ~/w]}": func(b *sandbox.Config) {
			b.AllowRead, b.AllowWrite = []string{"/home/ada/a", "/b"}, []string{"/w", "/home/ada/w"}
		},
		"sandbox: {allow_read: [/r], allow_write: [/w], deny_read: [/r/.env, /ww, '${DIR}']}": func(b *sandbox.Config) {
			b.AllowRead, b.AllowWrite, b.DenyRead = []string{"/r"}, []string{"/w"}, []string{"/r/.env", "/ww", "/opt/d"}
		},
	} {
		c := MustParse(t, "servers: {a: {command: x, "+in+"}}\n", opts)
		s, want := c.Servers[0], plainSandbox(change)
		if len(c.Warnings) > 0 || s.Driver != "sandbox" || s.Scope != "session" || s.Budget.Memory != 128<<20 || s.ConnectTimeout != time.Minute || s.Target() != "sandbox x" {
			t.Errorf("%s: %+v, %q", in, s, c.Warnings)
		}
		if as[sandbox.Config](s) == nil || !reflect.DeepEqual(*as[sandbox.Config](s), want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", in, as[sandbox.Config](s), want)
		}
	}
	for in, driver := range map[string]string{
		"command: x, sandbox: false":                  "process",
		"command: x, sandbox: false, driver: process": "process",
		"builtin: time, sandbox: false":               "builtin",
		"docker: i, sandbox: false":                   "docker",
	} {
		if s := MustParse(t, "servers: {a: {"+in+"}}\n", opts).Servers[0]; as[sandbox.Config](s) != nil || s.Driver != driver {
			t.Errorf("%s: %+v", in, s)
		}
	}
}

func TestOrchestrator(t *testing.T) {
	c := MustParse(t, `servers:
  a: {remote: {url: "https://o.example.org/api/", resource: memory_v1}}
  b:
    remote:
      url: https://o.example.org
      resource: x
      create: /make
      delete: /drop/{remote_instance_id}
      call: /call/{remote_instance_id}
      fork: /fork/{remote_instance_id}
      snapshot: /snap/{remote_instance_id}
      health: /ok
      timeout: 1m
      connect_timeout: 1s
      attempts: 1
    headers: {X-Key: "${KEY}"}
    template: {size: 3, tags: [a, "${KEY}"]}
    fork: memory
  c:
    remote: {type: mcp, url: "https://o.example.org/mcp/", resource: y, create_tool: make}
    auth: {type: client_credentials, token_url: "https://l.example.org", client_id: tine, client_secret: "${KEY}"}
    template: snapshot:base
    scope: shared
  d: {remote: {url: "https://o.example.org", resource: x, snapshot: "/snap/{remote_instance_id}"}, template: named, fork: memory}
`, Env(map[string]string{"KEY": "hunter2-hunter2"}))
	for id, want := range map[string]remote.Config{
		"a": {Type: "http", URL: "https://o.example.org/api", Resource: "memory_v1", Create: "/instances", Delete: "/instances/{remote_instance_id}",
			Timeout: 30 * time.Second, ConnectTimeout: 5 * time.Second, Attempts: 3},
		"b": {Type: "http", URL: "https://o.example.org", Resource: "x", Create: "/make", Delete: "/drop/{remote_instance_id}", Call: "/call/{remote_instance_id}",
			Fork: "/fork/{remote_instance_id}", Snapshot: "/snap/{remote_instance_id}", Health: "/ok", Timeout: time.Minute, ConnectTimeout: time.Second, Attempts: 1},
		"c": {Type: "mcp", URL: "https://o.example.org/mcp/", Resource: "y", CreateTool: "make", CallTool: "call_backend_tool", ListTool: "list_backend_tools",
			DeleteTool: "cleanup_session", Timeout: 30 * time.Second, ConnectTimeout: 5 * time.Second, Attempts: 3},
	} {
		if s := ServerOf(t, c, id); !reflect.DeepEqual(*as[remote.Config](s), want) || s.Driver != "remote" || s.Budget.Memory != 0 || s.ConnectTimeout != time.Minute {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, *as[remote.Config](s), want)
		}
	}
	a, b, m, d := ServerOf(t, c, "a"), ServerOf(t, c, "b"), ServerOf(t, c, "c"), ServerOf(t, c, "d")
	if a.Scope != "session" || m.Scope != "shared" || m.Template != "snapshot:base" || m.Details != nil {
		t.Errorf("%+v %+v", a, m)
	}
	if string(b.Details) != `{"size":3,"tags":["a","hunter2-hunter2"]}` || string(d.Details) != `"named"` || b.Template != "" {
		t.Errorf("templates %s, %s", b.Details, d.Details)
	}
}

// TestRewardKit runs a file as it is; TestImport holds that what is imported from
// it means the same.
func TestRewardKit(t *testing.T) {
	opts := NoEnv()
	opts.Path = "/srv/mcp_agent_config.yaml"
	c := MustParse(t, `
log_level: DEBUG
global_docker_options: {network: rk, mem_limit: 1g, volumes: {./all: {bind: /all, mode: ro}}, labels: [a=b], init: true, tty: false}
global_remote_api_defaults: {timeout: 7}
global_remote_apis:
  main: {base_url: "https://o.example.org", auth_type: bearer_token, auth_details: {token: "secret-${X}"}}
backends:
  - {backend_name_ref: fs, backend_type: filesystem, orchestration_mode: local_docker, instance_scoping: session, mcp_transport: stdio,
     docker_image: img, container_command: [/data], container_volumes: {./v: {bind: /v, mode: rw}},
     template_data_path_host: ./t, container_template_data_path: /data, docker_run_args: [-m, 512m, --read-only=false]}
  - {backend_name_ref: mem, backend_type: memory, orchestration_mode: local_docker, docker_image: img, container_port: 80, container_command: null,
     startup_check_mcp_tool: {tool_name: ping}}
  - {backend_name_ref: clock, backend_type: time, orchestration_mode: local_docker, instance_scoping: session, mcp_transport: stdio, docker_image: img, container_port: 9}
  - {backend_name_ref: ro, backend_type: memory, orchestration_mode: local_docker, mcp_transport: stdio, docker_image: img, docker_run_args: "--read-only"}
  - {backend_name_ref: all, backend_type: everything, orchestration_mode: local_docker, instance_scoping: shared_global, mcp_transport: stdio, docker_image: img}
  - {backend_name_ref: far, backend_type: duckdb, orchestration_mode: remote_http_api, remote_api_config_ref: main, remote_resource_type_identifier: db}
`, opts)
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "backends[2].container_port: goes with mcp_transport: http; left out") {
		t.Errorf("warnings %q", c.Warnings)
	}
	if c.Log.Level != "debug" || c.DefaultView != "rollout" || !reflect.DeepEqual(c.TemplateRoots, []string{"/srv/t"}) {
		t.Errorf("%+v", c)
	}
	base := docker.Config{Image: "img", Pull: "missing", Plain: true, Writable: true, Transport: "stdio", Network: "rk", Memory: 1 << 30, Init: true,
		Labels: map[string]string{"a": "b"}, Binds: []docker.Bind{{Source: "/srv/all", Target: "/all", ReadOnly: true}}}
	fs, mem, ro, none := base, base, base, base
	fs.Command, fs.Memory, fs.State, fs.TemplatePath = []string{"/data"}, 512<<20, []string{"root"}, "/data"
	fs.Binds = []docker.Bind{{Source: "/srv/v", Target: "/v"}, {Source: "/srv/all", Target: "/all", ReadOnly: true}}
	mem.Transport, mem.Port, mem.Path, mem.State = "http", 80, "/mcp", []string{"root"}
	ro.Writable, ro.ReadOnly = false, true
	for id, want := range map[string]docker.Config{"fs": fs, "mem": mem, "clock": none, "ro": ro, "all": none} {
		if s := ServerOf(t, c, id); !reflect.DeepEqual(meaningOf(s), want) || s.Driver != "docker" {
			t.Errorf("%s:\ngot  %+v\nwant %+v", id, meaningOf(s), want)
		}
	}
	var short []string
	for _, s := range c.Servers {
		short = append(short, s.ID+" "+s.Driver+" "+s.Scope+" "+s.Fork)
	}
	if want := []string{"fs docker session ", "mem docker session ", "clock docker session fresh", "ro docker session ", "all docker shared ",
		"far remote session ", "rollout builtin shared "}; !reflect.DeepEqual(short, want) {
		t.Errorf("servers %q", short)
	}
	far, ctl := ServerOf(t, c, "far"), ServerOf(t, c, "rollout")
	if as[remote.Config](far).URL != "https://o.example.org" || as[remote.Config](far).Resource != "db" || as[remote.Config](far).Timeout != 7*time.Second || far.Headers["Authorization"] != "Bearer secret-${X}" {
		t.Errorf("far: %+v %v", *as[remote.Config](far), far.Headers)
	}
	if s := ServerOf(t, c, "mem").Startup; s == nil || s.Tool != "ping" || !ctl.Merged || ServerOf(t, c, "fs").Template != "/srv/t" {
		t.Errorf("startup %+v, rollout %+v", s, ctl)
	}
}
