package config

import (
	"strings"
	"time"
)

// Transports of a container.
const (
	ContainerStdio = "stdio"
	ContainerHTTP  = "http"
)

// Ways to a container that serves HTTP.
const (
	ReachAddress = "address" // the container's own, on a network without a way out
	ReachPort    = "port"    // a port on loopback that the engine publishes
)

// When an image is fetched.
const (
	PullMissing = "missing"
	PullNever   = "never"
	PullAlways  = "always"
)

// RootState in Docker.State is the container itself: what it writes to its own
// root is its state.
const RootState = "root"

// Docker is a server in a container. Server.Env is its environment, and
// Server.Template what its state begins with.
type Docker struct {
	// Host is the engine: unix:///path, tcp://host:port, npipe://; empty for
	// DOCKER_HOST, or the usual socket.
	Host  string `yaml:"host" json:",omitzero"`
	Image string `yaml:"image" json:",omitzero"`
	Pull  string `yaml:"pull" json:",omitzero"` // missing, never or always; default missing

	Entrypoint []string `yaml:"entrypoint" json:",omitzero"` // default the image's
	Command    []string `yaml:"command" json:",omitzero"`    // default the image's
	Workdir    string   `yaml:"workdir" json:",omitzero"`
	User       string   `yaml:"user" json:",omitzero"`
	Hostname   string   `yaml:"hostname" json:",omitzero"`

	Transport string `yaml:"transport" json:",omitzero"` // stdio or http; default stdio, or http where there is a port
	Port      int    `yaml:"port" json:",omitzero"`      // http: inside the container
	Path      string `yaml:"path" json:",omitzero"`      // http: default /mcp
	Reach     string `yaml:"reach" json:",omitzero"`     // http: address or port; default the engine's best

	// State lists what the server remembers: absolute paths in the container, each
	// a volume that is copied with a fork, or "root" alone for the container
	// itself, which is committed.
	State []string `yaml:"state" json:",omitzero"`
	// TemplatePath is where in the container the template's files go; default the
	// first path of state.
	TemplatePath string `yaml:"template_path" json:",omitzero"`
	// Binds are paths of the host that the container sees.
	Binds []Bind `yaml:"binds" json:",omitzero"`
	// Tmpfs are paths in the container that are memory.
	Tmpfs []string `yaml:"tmpfs" json:",omitzero"`

	// Network is none, or the name of one the engine has; empty for none with
	// stdio, and with http for one that only reaches the gateway.
	Network string `yaml:"network" json:",omitzero"`
	Runtime string `yaml:"runtime" json:",omitzero"` // such as runsc; default the engine's

	Memory  int64    `yaml:"memory" json:",omitzero"` // bytes; default 2 GiB
	CPUs    float64  `yaml:"cpus" json:",omitzero"`   // default no bound
	Pids    int64    `yaml:"pids" json:",omitzero"`   // default 512
	ShmSize int64    `yaml:"shm_size" json:",omitzero"`
	CapAdd  []string `yaml:"cap_add" json:",omitzero"`
	// Labels beside ours.
	Labels map[string]string `yaml:"labels" json:",omitzero"`

	// Plain leaves Docker's own defaults in place: its capabilities, its network,
	// a writable root, no bounds. For configs of others, which expect them.
	Plain bool `yaml:"plain" json:",omitzero"`
	// Writable has the root writable though it is no state; default only where it
	// is state, or plain.
	Writable bool `yaml:"writable" json:",omitzero"`
	// Init runs a small init as the first process.
	Init bool `yaml:"init" json:",omitzero"`
	// ReadOnly, Privileged, Devices, CapDrop, SecurityOpt, Ulimits, ExtraHosts and DNS come
	// only from run_args.
	ReadOnly    bool     `yaml:"-" json:",omitzero"` // of the root, though it is plain
	Privileged  bool     `yaml:"-" json:",omitzero"`
	Devices     []string `yaml:"-" json:",omitzero"`
	CapDrop     []string `yaml:"-" json:",omitzero"`
	SecurityOpt []string `yaml:"-" json:",omitzero"`
	Ulimits     []string `yaml:"-" json:",omitzero"` // name=soft[:hard]
	ExtraHosts  []string `yaml:"-" json:",omitzero"`
	DNS         []string `yaml:"-" json:",omitzero"`

	// RunArgs are flags of docker run, kept as they were written. What they say is
	// in the other fields already.
	RunArgs []string `yaml:"run_args" json:",omitzero"`
}

// Root reports whether the container itself is the state.
func (d *Docker) Root() bool { return len(d.State) == 1 && d.State[0] == RootState }

// dockerTable are the keys of docker.
var dockerTable = Table[Docker]{
	Put("host", func(d *Docker) *string { return &d.Host },
		Text("unix:///var/run/docker.sock").As("`unix:///PATH`, `tcp://HOST:PORT`, `npipe:////PATH`").Unless("`DOCKER_HOST`, or the usual socket").Then(engineAddress),
		"the engine"),
	Put("image", func(d *Docker) *string { return &d.Image }, Text("NAME").Then(imageName), "the image; `docker: IMAGE` is short for a map with nothing else"),
	Put("pull", func(d *Docker) *string { return &d.Pull }, OneOf(pulls...).Default(PullMissing), "when the image is fetched"),
	Put("entrypoint", func(d *Docker) *[]string { return &d.Entrypoint }, Line("[/bin/server]").Unless("the image's"), "the entrypoint"),
	Put("command", func(d *Docker) *[]string { return &d.Command }, Line("[--data, /data]").Unless("the image's"), "the command"),
	Put("workdir", func(d *Docker) *string { return &d.Workdir }, InsidePath("/srv").Unless("the image's"), "the working directory"),
	Put("user", func(d *Docker) *string { return &d.User }, Word("1000:1000").Unless("the image's"), "the user"),
	Put("hostname", func(d *Docker) *string { return &d.Hostname }, Word("server").Unless("the engine's"), "the hostname inside"),
	Put("transport", func(d *Docker) *string { return &d.Transport }, OneOf(containerTransports...).Unless("`http` where there is a port, else `stdio`"), "how it speaks MCP"),
	Put("port", func(d *Docker) *int { return &d.Port }, Int[int](1, 65535), "`http`: where the server listens in the container"),
	Put("path", func(d *Docker) *string { return &d.Path }, URLPath().Unless("`/mcp`"), "`http`: where it speaks MCP"),
	Put("reach", func(d *Docker) *string { return &d.Reach }, OneOf(reaches...).Unless("the engine's best"), "`http`: by the container's own address, or by a port on loopback"),
	Put("state", func(d *Docker) *[]string { return &d.State }, Texts("[/data]").As("list of paths in the container, or `[root]`").Unless("none"),
		"its state: volumes, which are copied with a fork, or the container itself, which is committed"),
	Put("template_path", func(d *Docker) *string { return &d.TemplatePath }, InsidePath("/data").Unless("the first path of `docker.state`"), "where the files of `template` go"),
	Put("binds", func(d *Docker) *[]Bind { return &d.Binds }, bindList.Unless("none"),
		"`source`: a path of the host, or the name of a volume; `target`: a path in the container; `read_only`: boolean. A path may not hold this config, a file that it reads or trusts, or the state folder; read-only, what is no secret may be seen"),
	Put("tmpfs", func(d *Docker) *[]string { return &d.Tmpfs }, Texts("[/tmp]").As("list of paths in the container").Unless("none"), "tmpfs mounts; `PATH:OPTIONS` as `docker run` has it"),
	Put("network", func(d *Docker) *string { return &d.Network }, Word("bridge").As("`none`, or the name of one the engine has").Unless("none with `stdio`, with `http` one that only reaches Tine"), "the network of the container"),
	Put("runtime", func(d *Docker) *string { return &d.Runtime }, Word("runsc").Unless("the engine's"), "such as `runsc`"),
	Put("memory", func(d *Docker) *int64 { return &d.Memory }, Size[int64](minContainer, MaxBytes).Unless("`2GiB`; no bound with `plain`"), "memory limit"),
	Put("cpus", func(d *Docker) *float64 { return &d.CPUs }, Number(0.01, 1024).Unless("no bound"), "CPU limit"),
	Put("pids", func(d *Docker) *int64 { return &d.Pids }, Int[int64](1, mostPids).Unless("`512`; no bound with `plain`"), "processes and threads"),
	Put("shm_size", func(d *Docker) *int64 { return &d.ShmSize }, Size[int64](4<<10, MaxBytes).Unless("the engine's"), "size of `/dev/shm`"),
	Put("cap_add", func(d *Docker) *[]string { return &d.CapAdd }, Texts("[NET_BIND_SERVICE]").Unless("none"), "capabilities to add"),
	Put("labels", func(d *Docker) *map[string]string { return &d.Labels }, TextMap("{team: a}").Unless("none"), "labels beside Tine's own, which begin with `tine.`"),
	Put("plain", func(d *Docker) *bool { return &d.Plain }, Bool(), "keep Docker's own defaults: its capabilities, its network, a writable root, no bounds"),
	Put("writable", func(d *Docker) *bool { return &d.Writable }, Bool().Unless("where the root is the state, or `plain`"), "whether the root can be written to"),
	Put("init", func(d *Docker) *bool { return &d.Init }, Bool(), "run a small init as the first process"),
	Put("run_args", func(d *Docker) *[]string { return &d.RunArgs }, Line(`["--memory", "512m"]`).Unless("none"), "flags of `docker run`"),
}

// dockerKind is a server in a container.
var dockerKind = KindOf[Docker]{
	Kind: Kind{
		About:  About{Name: "docker", Type: "an image, or a map", Schema: TextSchema, Meaning: "a server in a container, see [below](#containers)"},
		Budget: defaultBudgetCommand,
	},
	Keys: dockerTable, Read: readDocker, Check: templatePath, Fork: dockerFork,
	Connect: func(*Server) time.Duration { return defaultConnectDocker },
	Fill:    fillDocker,
	Target: func(s *Server, c *Docker) string {
		return CommandLine("docker "+s.ShownText("docker.image", c.Image), s.ShownLine("docker.command", c.Command))
	},
	// What the flags say is in the other fields.
	Same: func(c *Docker) { c.RunArgs = nil },
	// Where a template went is over when an instance starts.
	Instance: func(c *Docker) { c.RunArgs, c.TemplatePath = nil, "" },
}.Make()

// engineAddress checks where an engine is.
func engineAddress(c Object, key string, dst *string) {
	switch n := c.Get(key); {
	case strings.HasPrefix(*dst, "ssh://"):
		c.Wrong(key, n, "an engine can't be reached over ssh; forward its socket (ssh -L) and write unix:///that/socket")
	case !engineHost.MatchString(*dst):
		c.Wrong(key, n, "%s is not an engine's address; write it like unix:///var/run/docker.sock or tcp://engine.example.org:2376", n.Quoted())
	}
}

func imageName(c Object, key string, dst *string) {
	if n := c.Get(key); !OneWord.MatchString(*dst) {
		c.Wrong(key, n, "%s can't name an image; write NAME, NAME:TAG or NAME@DIGEST", n.Shown())
	}
}

// Bind is a path of the host, or the name of a volume of the engine's, in a
// container.
type Bind struct {
	Source   string `yaml:"source"`
	Target   string `yaml:"target"`
	ReadOnly bool   `yaml:"read_only" json:",omitzero"`
}
