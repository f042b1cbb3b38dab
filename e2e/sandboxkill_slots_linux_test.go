package e2e

import "testing"

// TestSandboxKillSlots does to servers with directories of their own what
// TestSandboxKillGateway does to those without: theirs are shown to sandboxes that
// were made before anybody knew whose they will be, and the gateway is killed
// before, after and in the middle of that.
func TestSandboxKillSlots(t *testing.T) {
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "sessions: {memory: off}\nservers:\n"+
		yamlServer("box", program, []string{"-dir", "${state.data}"}, "state: [data]", "sandbox: {slots: 4}", "timeout: 30s"))
	killGateway(t, g, 12, 6, 4)
}
