//go:build linux && torture

package e2e

import (
	"os/exec"
	"testing"
)

// TestSoak makes a short soak of the benchmark's: after some thousand calls and
// many reconnects the gateway holds what it held after the first. make soak
// makes the long one.
func TestSoak(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "run", "../bench", "soak",
		"-tine", tineBinary, "-calls", "9000", "-reconnects", "30")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
