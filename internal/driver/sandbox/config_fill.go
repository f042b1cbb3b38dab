package sandbox

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

const (
	defaultDisk     = 1 << 30
	defaultFiles    = 4096
	defaultUser     = "1000:1000"
	defaultHostname = "sandbox"
)

// fetchers are the programs that fetch the server before they run it.
var fetchers = []string{"npx", "uvx"}

// newSandbox is one with the default that zero means something else for.
func newSandbox() *Config {
	b := &Config{}
	keys.Begin(b)
	return b
}

// Forks reports whether a program behind these walls can be copied while it runs:
// not one on the network of the host.
func (b *Config) Forks() bool { return b.Network != NetworkHost }

// fillSandbox sets what is open.
func fillSandbox(_ *config.Server, b *Config) {
	if len(b.Domains) == 0 {
		config.SetDefault(&b.Network, NetworkNone)
	}
	config.FillTransport(&b.Transport, b.Port, &b.Path)
}

// connectTime is how long a start may take: what is fetched first takes
// longer.
func connectTime(s *config.Server) time.Duration {
	if slices.Contains(fetchers, filepath.Base(s.Command)) {
		return config.DefaultConnectFetch
	}
	return config.DefaultConnectCommand
}

// hostPort complains about a port that sessions would take from each other.
func hostPort(o config.Object, s *config.Server, b *Config) {
	scope := s.Scope
	config.SetDefault(&scope, s.DefaultScope())
	if b.Network == NetworkHost && b.Port > 0 && scope != config.ScopeShared {
		o.Fail(o.Get("sandbox").Get("network").Pos, "%s.sandbox.network: on the network of the host the first session would take the port; use none or a list of domains, or write scope: shared", o.Path)
	}
}

// sandboxFork complains about a copy of what can't be copied.
func sandboxFork(o config.Object, s *config.Server, b *Config) bool {
	if s.Fork != config.ForkMemory {
		return false
	}
	if n := o.Get("fork"); !b.Forks() {
		o.Wrong("fork", n, "%s copies a running server, and one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org], or use files with state, fresh, share or refuse", n.Shown())
	}
	return true
}
