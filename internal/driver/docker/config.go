package docker

import (
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/config"
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

// RootState in Config.State is the container itself: what it writes to its own
// root is its state.
const RootState = "root"

// Config is a server in a container. Server.Env is its environment, and
// Server.Template what its state begins with.
type Config struct {
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
func (d *Config) Root() bool { return len(d.State) == 1 && d.State[0] == RootState }

// keys are those of docker.
var keys = config.Table[Config]{
	config.Put("host", func(d *Config) *string { return &d.Host },
		config.Text("unix:///var/run/docker.sock").As("`unix:///PATH`, `tcp://HOST:PORT` (also with `http` or `https`), `npipe:////PATH`").Unless("`DOCKER_HOST`, or the usual socket").Then(engineAddress),
		"the engine"),
	config.Put("image", func(d *Config) *string { return &d.Image }, config.Text("NAME").Then(imageName), "the image; `docker: IMAGE` is short for a map with nothing else"),
	config.Put("pull", func(d *Config) *string { return &d.Pull }, config.OneOf(pulls...).Default(PullMissing), "when the image is fetched"),
	config.Put("entrypoint", func(d *Config) *[]string { return &d.Entrypoint }, config.Line("[/bin/server]").Unless("the image's"), "the entrypoint"),
	config.Put("command", func(d *Config) *[]string { return &d.Command }, config.Line("[--data, /data]").Unless("the image's"), "the command"),
	config.Put("workdir", func(d *Config) *string { return &d.Workdir }, config.InsidePath("/srv").Unless("the image's"), "the working directory"),
	config.Put("user", func(d *Config) *string { return &d.User }, config.Word("1000:1000").Unless("the image's"), "the user"),
	config.Put("hostname", func(d *Config) *string { return &d.Hostname }, config.Word("server").Unless("the engine's"), "the hostname inside"),
	config.Put("transport", func(d *Config) *string { return &d.Transport }, config.OneOf(config.ContainerTransports...).Unless("`http` where there is a port, else `stdio`"), "how it speaks MCP"),
	config.Put("port", func(d *Config) *int { return &d.Port }, config.Int[int](1, 65535), "`http`: where the server listens in the container"),
	config.Put("path", func(d *Config) *string { return &d.Path }, config.URLPath().Unless("`/mcp`"), "`http`: where it speaks MCP"),
	config.Put("reach", func(d *Config) *string { return &d.Reach }, config.OneOf(reaches...).Unless("the engine's best"), "`http`: by the container's own address, or by a port on loopback"),
	config.Put("state", func(d *Config) *[]string { return &d.State }, config.Texts("[/data]").As("list of paths in the container, or `[root]`").Unless("none"),
		"its state: volumes, which are copied with a fork, or the container itself, which is committed"),
	config.Put("template_path", func(d *Config) *string { return &d.TemplatePath }, config.InsidePath("/data").Unless("the first path of `docker.state`"), "where the files of `template` go"),
	config.Put("binds", func(d *Config) *[]Bind { return &d.Binds }, bindList.Unless("none"),
		"`source`: a path of the host, or the name of a volume; `target`: a path in the container; `read_only`: boolean. A path may not hold this config, a file that it reads or trusts, or the state folder; read-only, what is no secret may be seen"),
	config.Put("tmpfs", func(d *Config) *[]string { return &d.Tmpfs }, config.Texts("[/tmp]").As("list of paths in the container").Unless("none"), "tmpfs mounts; `PATH:OPTIONS` as `docker run` has it"),
	config.Put("network", func(d *Config) *string { return &d.Network }, config.Word("bridge").As("`none`, or the name of one the engine has").Unless("none with `stdio`, with `http` one that only reaches Tine"), "the network of the container"),
	config.Put("runtime", func(d *Config) *string { return &d.Runtime }, config.Word("runsc").Unless("the engine's"), "such as `runsc`"),
	config.Put("memory", func(d *Config) *int64 { return &d.Memory }, config.Size[int64](config.MinMemory, config.MaxBytes).Unless("`2GiB`; no bound with `plain`"), "memory limit"),
	config.Put("cpus", func(d *Config) *float64 { return &d.CPUs }, config.Number(0.01, 1024).Unless("no bound"), "CPU limit"),
	config.Put("pids", func(d *Config) *int64 { return &d.Pids }, config.Int[int64](1, config.MaxPids).Unless("`512`; no bound with `plain`"), "processes and threads"),
	config.Put("shm_size", func(d *Config) *int64 { return &d.ShmSize }, config.Size[int64](4<<10, config.MaxBytes).Unless("the engine's"), "size of `/dev/shm`"),
	config.Put("cap_add", func(d *Config) *[]string { return &d.CapAdd }, config.Texts("[NET_BIND_SERVICE]").Unless("none"), "capabilities to add"),
	config.Put("labels", func(d *Config) *map[string]string { return &d.Labels }, config.TextMap("{team: a}").Unless("none"), "labels beside Tine's own, which begin with `tine.`"),
	config.Put("plain", func(d *Config) *bool { return &d.Plain }, config.Bool(), "keep Docker's own defaults: its capabilities, its network, a writable root, no bounds"),
	config.Put("writable", func(d *Config) *bool { return &d.Writable }, config.Bool().Unless("where the root is the state, or `plain`"), "whether the root can be written to"),
	config.Put("init", func(d *Config) *bool { return &d.Init }, config.Bool(), "run a small init as the first process"),
	config.Put("run_args", func(d *Config) *[]string { return &d.RunArgs }, config.Line(`["--memory", "512m"]`).Unless("none"), "flags of `docker run`"),
}

// Kind is what a config says of a server in a container.
var Kind = config.KindOf[Config]{
	Kind: config.Kind{
		About:  config.About{Name: "docker", Type: "an image, or a map", Schema: config.TextSchema, Meaning: "a server in a container, see [below](#containers)"},
		Budget: config.DefaultBudget,
		Beside: []string{"env", "env_file", "template"},
		Elsewhere: map[string]string{
			"args": "docker.command", "cwd": "docker.workdir", "state": "docker.state", "transport": "docker.transport",
		},
		NoWorkspace: "a container has no workspace; name what it remembers with docker.state, and remove this",
		Short: func(n *config.Node) *config.Node {
			if n.Shape != config.ShapeString || n.Missing {
				return nil
			}
			image := config.MapNode(config.Pair{Key: "image", KeyPos: n.Pos, Value: n})
			image.Pos = n.Pos
			return image
		},
	},
	Keys: keys, Read: readDocker, Check: templatePath, Fork: dockerFork,
	Connect: func(*config.Server) time.Duration { return 2 * time.Minute },
	Fill:    fillDocker,
	Show:    showDocker,
	Target: func(s *config.Server, c *Config) string {
		return config.CommandLine("docker "+s.ShownText("docker.image", c.Image), s.ShownLine("docker.command", c.Command))
	},
	// What the flags say is in the other fields.
	Same: func(c *Config) { c.RunArgs = nil },
	// Where a template went is over when an instance starts.
	Instance: func(c *Config) { c.RunArgs, c.TemplatePath = nil, "" },
}.Make()

// engineAddress checks where an engine is.
func engineAddress(c config.Object, key string, dst *string) {
	switch n := c.Get(key); {
	case strings.HasPrefix(*dst, "ssh://"):
		c.Wrong(key, n, "an engine can't be reached over ssh; forward its socket (ssh -L) and write unix:///that/socket")
	case !engineHost.MatchString(*dst):
		c.Wrong(key, n, "%s is not an engine's address; write it like unix:///var/run/docker.sock or tcp://engine.example.org:2376", n.Shown())
	}
}

func imageName(c config.Object, key string, dst *string) {
	if n := c.Get(key); !config.OneWord.MatchString(*dst) {
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
