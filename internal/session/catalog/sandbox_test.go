package catalog

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// carrier is a driver of which only what a fork carries is asked.
type carrier struct {
	driver.Driver
	driver.Keeper
	carries string
}

func (c carrier) Carries(driver.Spec) string { return c.carries }

func TestForkOfSandbox(t *testing.T) {
	none, host := &config.Sandbox{Network: config.NetworkNone}, &config.Sandbox{Network: config.NetworkHost}
	const network = `server "s" is on the network of the host, and such a one can't be copied while it runs; set servers.s.sandbox.network to none or to the domains it needs; `
	for _, tt := range []struct {
		name    string
		sandbox *config.Sandbox
		fork    string
		carries string
		mode    string
		why     string
	}{
		{"memory by default", none, "", driver.CarryMemory, config.ForkMemory, ""},
		{"memory as told", none, config.ForkMemory, driver.CarryMemory, config.ForkMemory, "servers.s.fork says so"},
		{"files on the network of the host", host, "", driver.CarryFiles, config.ForkFiles, ""},
		{"nothing on the network of the host", host, "", driver.CarryNone, config.ForkRefuse,
			network + "or name its directories with servers.s.state: [NAME] and ${state.NAME} in its args or env, or set servers.s.fork to fresh or share"},
		{"memory on the network of the host", host, config.ForkMemory, driver.CarryFiles, config.ForkRefuse,
			network + "or set servers.s.fork to files, fresh, share or refuse"},
		{"nothing that anybody declared, outside", nil, "", driver.CarryNone, config.ForkRefuse,
			`what server "s" remembers is not known; set servers.s.sandbox to true, and a fork carries all of it (on Linux), or name its directories with servers.s.state: [NAME] and ${state.NAME} in its args or env, or set servers.s.fork to fresh or share`},
		{"memory where it can't be had", none, config.ForkMemory, driver.CarryNone, config.ForkRefuse,
			`the sandbox of server "s" can't be copied while it runs; see tine doctor; or set servers.s.fork to files, fresh, share or refuse`},
	} {
		e := &Entry{Server: config.Server{ID: "s", Driver: "sandbox", Command: "x", Scope: config.ScopeSession, Options: tt.sandbox, Fork: tt.fork}}
		e.Runner = carrier{carries: tt.carries}
		if mode, why := e.ForkMode(); mode != tt.mode || why != tt.why {
			t.Errorf("%s: %s, %s", tt.name, mode, why)
		}
		if e.Spec().Options != tt.sandbox {
			t.Errorf("%s: the spec has %+v", tt.name, e.Spec().Options)
		}
	}
}

// What is ready, and how a copy hears of it, changes nothing about what runs.
func TestHashOfSandbox(t *testing.T) {
	parse := func(more string) string {
		c, err := config.Parse([]byte("servers: {a: {command: x, "+more+"}}"), config.Options{Path: "tine.yaml", OS: "linux"})
		if err != nil {
			t.Fatal(err)
		}
		return c.Servers[0].SpecHash()
	}
	base := parse("sandbox: true")
	for _, more := range []string{"sandbox: {slots: 9}", "sandbox: true, warm: 3", "sandbox: true, fork_ahead: true", "sandbox: true, on_fork: notify", "driver: sandbox"} {
		if parse(more) != base {
			t.Errorf("%s is something else", more)
		}
	}
	for _, more := range []string{"scope: session", "sandbox: {network: host}", "sandbox: {memory: 1GiB}", "sandbox: {deny_read: [/a]}"} {
		if got := parse(more); got == base || strings.TrimSpace(got) == "" {
			t.Errorf("%s is the same", more)
		}
	}
}
