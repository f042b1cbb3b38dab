package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A changed config that is not used is in the status, until one is used again.
func TestStatusOfAConfigThatIsNotReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("listen: 127.0.0.1:0\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("servers: {clock: {builtin: time}}\n")
	serve := newTestCLI(t, "serve", "--config", path)
	state := serve.env["TINE_STATE"]
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- serve.cli.run(ctx) }()
	t.Cleanup(func() {
		stop()
		testkit.Within(t, "the end of the gateway", ended)
	})
	status := func(args ...string) string {
		stdout, _, _ := inFolder(t, state, append([]string{"status"}, args...)...)
		return stdout
	}
	testkit.Eventually(t, "a gateway", func() bool { return status() != "" })
	if got := status(); strings.Contains(got, "not reloaded") {
		t.Errorf("at first: %s", got)
	}
	write("servers: {clock: {builtin: tme}}\n")
	testkit.Eventually(t, "a config that is not reloaded", func() bool { return strings.Contains(status(), "not reloaded") })
	if got := status(); !strings.Contains(got, "servers.clock.builtin") || !strings.Contains(got, "the config of before stays") {
		t.Errorf("status: %s", got)
	}
	var s api.Status
	if err := json.Unmarshal([]byte(status("--json")), &s); err != nil || s.NotReloaded == nil || s.NotReloaded.At.IsZero() || !strings.Contains(s.NotReloaded.Reason, "servers.clock.builtin") {
		t.Errorf("status %+v, %v", s.NotReloaded, err)
	}
	write("servers: {clock: {builtin: time}}\n")
	testkit.Eventually(t, "a config that is reloaded", func() bool { return !strings.Contains(status(), "not reloaded") })
}
