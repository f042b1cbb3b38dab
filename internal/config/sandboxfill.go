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

// fill sets what is open.
func (b *Sandbox) fill() {
	sandboxTable.Fill(b)
	if len(b.Domains) == 0 {
		setDefault(&b.Network, NetworkNone)
	}
	if b.Transport == "" {
		b.Transport = ContainerStdio
		if b.Port > 0 {
			b.Transport = ContainerHTTP
		}
	}
	if b.Transport == ContainerHTTP {
		setDefault(&b.Path, "/mcp")
	}
}

// meaning is what two sandboxes are compared by.
func (b *Sandbox) meaning() *Sandbox {
	c := *b
	sandboxTable.Tidy(&c)
	return &c
}

// connectSandbox is how long a start may take: what is fetched first takes
// longer.
func (s *Server) connectSandbox() time.Duration {
	if slices.Contains(fetchers, filepath.Base(s.Command)) {
		return defaultConnectFetch
	}
	return defaultConnectCommand
}
