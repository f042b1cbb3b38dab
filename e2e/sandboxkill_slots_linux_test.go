package e2e

import (
	"testing"

	"github.com/tine-mcp/tine/internal/torture"
)

// TestSandboxKillSlots does to servers with directories of their own what
// TestSandboxKillGateway does to those without: theirs are shown to sandboxes that
// were made before they had a session, and the gateway is killed
// before, after and in the middle of that.
func TestSandboxKillSlots(t *testing.T) {
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "sessions: {memory: off}\nservers:\n"+
		yamlServer("box", program, []string{"-dir", "${state.data}"}, "state: [data]", "sandbox: {slots: 4}", "timeout: 30s"))
	killGateway(t, g, torture.Or(6, 12), torture.Or(4, 6), 4)
}
