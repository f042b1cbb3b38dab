package catalog

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

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
