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

// sandboxKind are the walls around a program.
var sandboxKind = KindOf[Sandbox]{
	Kind: Kind{
		About:  About{Name: "sandbox", Type: "boolean, or a map", Default: "`false`", Schema: Schema{"type": "boolean"}.OrPlaceholder(), Meaning: "isolates the program, see [below](#sandboxes)"},
		Around: "command", System: "linux", Budget: defaultBudgetSandbox,
	},
	Keys: sandboxTable, Read: readSandbox, Check: hostPort, Fork: sandboxFork,
	Copies: func(_ *Server, b *Sandbox) string {
		if b.Forks() {
			return ""
		}
		return "one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org]"
	},
	Connect: (*Server).connectSandbox,
	Fill:    fillSandbox,
	Target: func(s *Server, _ *Sandbox) string {
		return CommandLine("sandbox "+s.ShownText("command", s.Command), s.ShownArgs())
	},
	Instance: func(b *Sandbox) { b.Slots = 0 }, // how many are prepared says nothing of one
}.Make()

// OnFork is how a server hears that it is a copy of another.
type OnFork struct {
	Notify bool   `yaml:"-" json:",omitzero"` // by notifications/tine/forked
	Tool   string `yaml:"-" json:",omitzero"` // by a call of this tool
}

// sandboxTable are the keys of sandbox.
var sandboxTable = Table[Sandbox]{
	Put("root", func(b *Sandbox) *string { return &b.Root }, Text(RootAllow).As("`allow`, `host`, or a path").Default(RootAllow).By(wallRoot),
		"what it sees: what programs need of this machine, by a list; or all of it, read-only, but what is hidden; or a directory or an image's archive of its own, in which `command` and `cwd` are then looked for. A path has a slash in it"),
	Put("allow_read", func(b *Sandbox) *[]string { return &b.AllowRead }, hostPaths, "more of this machine that it sees, [as it changes](sandbox.md#when-the-host-changes)"),
	Put("allow_write", func(b *Sandbox) *[]string { return &b.AllowWrite }, hostPaths,
		"what of this machine it may write to; forks share it; no folder with places of keys in it, as your home is, nor one that holds this config or a file that it reads"),
	Put("deny_read", func(b *Sandbox) *[]string { return &b.DenyRead }, hostPaths, "what it must not see; wins over `allow_read`, and must not lie in `allow_write`"),
	Put("user", func(b *Sandbox) *string { return &b.User }, Text(defaultUser).Or(Schema{"type": "integer", "minimum": 1}).As("UID or UID:GID").Default(defaultUser).By(wallUser), "user and group inside; never 0"),
	Put("hostname", func(b *Sandbox) *string { return &b.Hostname }, Text(defaultHostname).Default(defaultHostname).Then(wallHostname), "hostname inside"),
	Put("network", func(b *Sandbox) *Sandbox { return b }, wallNetwork,
		"loopback alone, or the network of this machine, or these domains through a proxy: `example.org`, `*.example.org`, an address or a network such as `10.0.0.0/8`, with `:PORT` for another than 80 and 443. On `host` it can't be copied while it runs, so there is no `fork: memory`, `warm`, `fork_ahead` or `on_fork`"),
	Put("transport", func(b *Sandbox) *string { return &b.Transport }, OneOf(containerTransports...).Unless("`http` where there is a port, else `stdio`"), "how it speaks MCP"),
	Put("port", func(b *Sandbox) *int { return &b.Port }, Int[int](1, 65535), "`http`: where the server listens inside"),
	Put("path", func(b *Sandbox) *string { return &b.Path }, URLPath().Unless("`/mcp`"), "`http`: where it speaks MCP"),
	Put("memory", func(b *Sandbox) *int64 { return &b.Memory }, Size[int64](minContainer, MaxBytes).Default(defaultContainer), "memory limit"),
	Put("cpus", func(b *Sandbox) *float64 { return &b.CPUs }, Number(0.01, 1024).Unless("no bound"), "CPU limit; no effect where there are no cgroups, as for an ordinary user"),
	Put("pids", func(b *Sandbox) *int64 { return &b.Pids }, Int[int64](1, mostPids).Default(defaultPids), "processes and threads"),
	Put("files", func(b *Sandbox) *int64 { return &b.Files }, Int[int64](leastOpenFiles, mostOpenFiles).Default(defaultFiles), "open files of one process"),
	Put("disk", func(b *Sandbox) *int64 { return &b.Disk }, Size[int64](leastDisk, MaxBytes).Default(defaultDisk),
		"bytes that it may write outside of its `state` and the workspace, a quarter of it, at most 64 MiB, in `/dev/shm`; it counts as memory"),
	Put("slots", func(b *Sandbox) *int { return &b.Slots }, Int[int](0, mostSlots).Begin(defaultSlots).Always(), "empty sandboxes prepared ahead"),
}
