package sandbox

import (
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

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

// Config are the walls around a program. In the file it is true, or a map.
type Config struct {
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

// Kind is what a config says of the walls around a program.
var Kind = config.KindOf[Config]{
	Kind: config.Kind{
		About:  config.About{Name: "sandbox", Type: "boolean, or a map", Default: "`false`", Schema: config.Schema{"type": "boolean"}.OrPlaceholder(), Meaning: "isolates the program, see [below](#sandboxes)"},
		Around: "command", AroundMend: "name the program that runs behind the walls",
		Copier: "sandbox", Budget: 128 << 20,
		Unfit: func(system string) string {
			if system == "linux" {
				return ""
			}
			return "a sandbox needs Linux, and this is " + system + "; run Tine on Linux, or use docker or no sandbox here"
		},
		Short: func(n *config.Node) *config.Node {
			if n.Shape != config.ShapeNull && !(n.Scalar() && strings.EqualFold(n.Text, "true")) {
				return nil
			}
			return config.MapNode()
		},
	},
	Keys: keys, Read: readSandbox, Check: hostPort, Fork: sandboxFork,
	Copies: func(_ *config.Server, b *Config) string {
		if b.Forks() {
			return ""
		}
		return "one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org]"
	},
	Connect: connectTime,
	Fill:    fillSandbox,
	Target: func(s *config.Server, _ *Config) string {
		return config.CommandLine("sandbox "+s.ShownText("command", s.Command), s.ShownArgs())
	},
	Instance: func(b *Config) { b.Slots = 0 }, // how many are prepared says nothing of one
}.Make()

// keys are the keys of sandbox.
var keys = config.Table[Config]{
	config.Put("root", func(b *Config) *string { return &b.Root }, config.Text(RootAllow).As("`allow`, `host`, or a path").Default(RootAllow).By(wallRoot),
		"what it sees: what programs need of this machine, by a list; or all of it, read-only, but what is hidden; or a directory or an image's archive of its own, in which `command` and `cwd` are then looked for. A path has a slash in it"),
	config.Put("allow_read", func(b *Config) *[]string { return &b.AllowRead }, hostPaths, "more of this machine that it sees, [as it changes](sandbox.md#when-the-host-changes)"),
	config.Put("allow_write", func(b *Config) *[]string { return &b.AllowWrite }, hostPaths,
		"what of this machine it may write to; forks share it; no folder with places of keys in it, as your home is, nor one that holds this config or a file that it reads"),
	config.Put("deny_read", func(b *Config) *[]string { return &b.DenyRead }, hostPaths, "what it must not see; wins over `allow_read`, and must not lie in `allow_write`"),
	config.Put("user", func(b *Config) *string { return &b.User }, config.Text(defaultUser).Or(config.Schema{"type": "integer", "minimum": 1}).As("UID or UID:GID").Default(defaultUser).By(wallUser), "user and group inside; never 0"),
	config.Put("hostname", func(b *Config) *string { return &b.Hostname }, config.Text(defaultHostname).Default(defaultHostname).Then(wallHostname), "hostname inside"),
	config.Put("network", func(b *Config) *Config { return b }, wallNetwork,
		"loopback alone, or the network of this machine, or these domains through a proxy: `example.org`, `*.example.org`, an address or a network such as `10.0.0.0/8`, with `:PORT` for another than 80 and 443. On `host` it can't be copied while it runs, so there is no `fork: memory`, `warm`, `fork_ahead` or `on_fork`"),
	config.Put("transport", func(b *Config) *string { return &b.Transport }, config.OneOf(config.ContainerTransports...).Unless("`http` where there is a port, else `stdio`"), "how it speaks MCP"),
	config.Put("port", func(b *Config) *int { return &b.Port }, config.Int[int](1, 65535), "`http`: where the server listens inside"),
	config.Put("path", func(b *Config) *string { return &b.Path }, config.URLPath().Unless("`/mcp`"), "`http`: where it speaks MCP"),
	config.Put("memory", func(b *Config) *int64 { return &b.Memory }, config.Size[int64](config.MinMemory, config.MaxBytes).Default(config.DefaultMemory), "memory limit"),
	config.Put("cpus", func(b *Config) *float64 { return &b.CPUs }, config.Number(0.01, 1024).Unless("no bound"), "CPU limit; no effect where there are no cgroups, as for an ordinary user"),
	config.Put("pids", func(b *Config) *int64 { return &b.Pids }, config.Int[int64](1, config.MaxPids).Default(config.DefaultPids), "processes and threads"),
	config.Put("files", func(b *Config) *int64 { return &b.Files }, config.Int[int64](leastOpenFiles, mostOpenFiles).Default(defaultFiles), "open files of one process"),
	config.Put("disk", func(b *Config) *int64 { return &b.Disk }, config.Size[int64](leastDisk, config.MaxBytes).Default(defaultDisk),
		"bytes that it may write outside of its `state` and the workspace, a quarter of it, at most 64 MiB, in `/dev/shm`; it counts as memory"),
	config.Put("slots", func(b *Config) *int { return &b.Slots }, config.Int[int](0, mostSlots).Begin(defaultSlots).Always(), "empty sandboxes prepared ahead"),
}
