//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestIsolationConfig looks for the gateway's config in sandboxes that see its folder,
// also when it is replaced, and when a reload names other files.
func TestIsolationConfig(t *testing.T) {
	var private atomic.Pointer[[]string]
	private.Store(&[]string{})
	p := newPrison(t, Options{Private: func() []string { return *private.Load() }})
	p.put(t, "open/tine.yaml", p.canary)
	p.put(t, "open/token", p.canary)
	p.put(t, "target.yaml", p.canary)
	private.Store(&[]string{p.at("open/tine.yaml"), p.at("open/link.yaml")})
	for name, change := range map[string]func(*driver.Spec){
		"by allow_read": func(*driver.Spec) {},
		"by cwd":        func(s *driver.Spec) { options(*s).AllowRead, s.Cwd = nil, p.at("open") },
		"by the root":   func(s *driver.Spec) { options(*s).Root = RootHost },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(p.at("open/link.yaml")), os.Symlink("../target.yaml", p.at("open/link.yaml"))); err != nil {
				t.Fatal(err)
			}
			p.d = p.driver(p.d.opts) // which remembers nothing of the links before
			c := p.enter(t, change)
			look := func() {
				t.Helper()
				p.leaks(t, c, p.at("open/tine.yaml"), p.at("open/link.yaml"), p.at("target.yaml"))
			}
			look()
			for _, at := range []string{"open/tine.yaml", "open/link.yaml", "target.yaml"} {
				p.put(t, "new", p.canary)
				if err := os.Rename(p.at("new"), p.at(at)); err != nil {
					t.Fatal(err)
				}
			}
			look()
			if name != "by the root" || exists(p.at("open/file")) && strings.HasPrefix(p.world, "/srv") {
				c.gets(t, "read", "path", p.at("open/file"))
			}
		})
	}
	private.Store(&[]string{p.at("open/tine.yaml"), p.at("open/token")})
	p.leaks(t, p.enter(t), p.at("open/tine.yaml"), p.at("open/token"))

	p.put(t, "write/sub/tine.yaml", p.canary)
	private.Store(&[]string{p.at("write/sub/tine.yaml")})
	_, err := p.d.Start(t.Context(), p.spec(t, func(s *driver.Spec) { options(*s).AllowWrite = []string{p.at("write")} }))
	if err == nil || !strings.Contains(err.Error(), "the gateway's config") {
		t.Errorf("a sandbox that may write to the config starts: %v", err)
	}
}

// TestReplacedProgramBesideTheConfig starts a server again after its program was
// replaced, as editors and git do. Its folder is shown entry by entry, because the
// config is in it.
func TestReplacedProgramBesideTheConfig(t *testing.T) {
	var p *prison
	p = newPrison(t, Options{Private: func() []string { return []string{p.at("proj/tine.yaml")} }})
	p.put(t, "proj/tine.yaml", p.canary)
	p.put(t, "proj/data", "old")
	here := func(s *driver.Spec) { options(*s).AllowRead, s.Cwd = nil, p.at("proj") }
	if got := p.enter(t, here).gets(t, "read", "path", p.at("proj/data")); got != "old" {
		t.Errorf("the file has %q", got)
	}
	p.put(t, "new", "new")
	if err := os.Rename(p.at("new"), p.at("proj/data")); err != nil {
		t.Fatal(err)
	}
	p.put(t, "proj/more", "more")
	c := p.enter(t, here)
	for name, want := range map[string]string{"proj/data": "new", "proj/more": "more"} {
		if got := c.gets(t, "read", "path", p.at(name)); got != want {
			t.Errorf("%s has %q in a sandbox that starts later, want %q", name, got, want)
		}
	}
	p.leaks(t, c, p.at("proj/tine.yaml"))
}
