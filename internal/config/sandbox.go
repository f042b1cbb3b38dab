package config

// Networks of a Sandbox. A list of domains is the third.
const (
	NetworkNone = "none" // loopback alone
	NetworkHost = "host" // the host's; such a server can't be forked with its memory
)

// Roots of a Sandbox. A path of a directory or of an image's archive is the third.
const (
	RootAllow = "allow" // what a program needs of the host's, by a list
	RootHost  = "host"  // all of the host's but what is masked, read-only
)

// Sandbox are the walls around a program. In the file it is true, or a map.
type Sandbox struct {
	Root       string   `yaml:"root"`        // allow, host, or a path; default allow
	AllowRead  []string `yaml:"allow_read"`  // more paths of the host, read-only
	AllowWrite []string `yaml:"allow_write"` // paths of the host that it may write to, which forks share
	DenyRead   []string `yaml:"deny_read"`   // paths of the host that it must not see
	User       string   `yaml:"user"`        // UID or UID:GID inside; default 1000:1000
	Hostname   string   `yaml:"hostname"`    // default sandbox

	Network string   `yaml:"-"` // none or host; default none, empty with Domains
	Domains []string `yaml:"-"` // what it may reach, through a proxy of ours: example.org, *.example.org, an address or a network, with :PORT for another than 80 and 443

	// Transport is stdio, or http for a server that listens on Port inside.
	Transport string `yaml:"transport"` // default stdio, or http with a port
	Port      int    `yaml:"port"`
	Path      string `yaml:"path"` // default /mcp

	Memory int64   `yaml:"memory"` // bytes; default 2 GiB
	CPUs   float64 `yaml:"cpus"`   // default no limit
	Pids   int64   `yaml:"pids"`   // processes and threads; default 512
	Files  int64   `yaml:"files"`  // open at once, of one process; default 4096
	Disk   int64   `yaml:"disk"`   // bytes that it may write outside of its state; default 1 GiB, and counted as memory
	Slots  int     `yaml:"slots"`  // prepared ahead of time; default 2
}

// OnFork is how a server hears that it is a copy of another.
type OnFork struct {
	Notify bool   `yaml:"-" json:",omitzero"` // by notifications/tine/forked
	Tool   string `yaml:"-" json:",omitzero"` // by a call of this tool
}
