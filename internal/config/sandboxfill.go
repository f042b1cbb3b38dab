package config

import (
	"path/filepath"
	"slices"
	"time"
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
func newSandbox() *Sandbox {
	b := &Sandbox{}
	sandboxTable.Begin(b)
	return b
}

// Forks reports whether a program behind these walls can be copied while it runs:
// not one on the network of the host.
func (b *Sandbox) Forks() bool { return b.Network != NetworkHost }

// fillSandbox sets what is open.
func fillSandbox(_ *Server, b *Sandbox) {
	if len(b.Domains) == 0 {
		SetDefault(&b.Network, NetworkNone)
	}
	if b.Transport == "" {
		b.Transport = ContainerStdio
		if b.Port > 0 {
			b.Transport = ContainerHTTP
		}
	}
	if b.Transport == ContainerHTTP {
		SetDefault(&b.Path, "/mcp")
	}
}

// connectSandbox is how long a start may take: what is fetched first takes
// longer.
func (s *Server) connectSandbox() time.Duration {
	if slices.Contains(fetchers, filepath.Base(s.Command)) {
		return DefaultConnectFetch
	}
	return DefaultConnectCommand
}

// hostPort complains about a port that sessions would take from each other.
func hostPort(o Object, s *Server, b *Sandbox) {
	scope := s.Scope
	SetDefault(&scope, s.DefaultScope())
	if b.Network == NetworkHost && b.Port > 0 && scope != ScopeShared {
		o.Fail(o.Get("sandbox").Get("network").Pos, "%s.sandbox.network: on the network of the host the first session would take the port; use none or a list of domains, or write scope: shared", o.Path)
	}
}

// sandboxFork complains about a copy of what can't be copied.
func sandboxFork(o Object, s *Server, b *Sandbox) bool {
	if s.Fork != ForkMemory {
		return false
	}
	if n := o.Get("fork"); !b.Forks() {
		o.Wrong("fork", n, "%s copies a running server, and one on the network of the host can't be copied; name the domains it needs with sandbox.network: [example.org], or use files with state, fresh, share or refuse", n.Shown())
	}
	return true
}
