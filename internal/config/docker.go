package config

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

// Bind is a path of the host, or the name of a volume of the engine's, in a
// container.
type Bind struct {
	Source   string `yaml:"source"`
	Target   string `yaml:"target"`
	ReadOnly bool   `yaml:"read_only" json:",omitzero"`
}
