//go:build unix

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestCallSlowStart calls tools of servers that are slow to start: the call waits
// for its own, says so, and ends when that one may take no longer.
func TestCallSlowStart(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	slow := func(id, sleep string, more ...string) string {
		return yamlServer(id, "/bin/sh", []string{"-c", "sleep " + sleep + "; exec " + program + " -dir ${state.data}"}, append([]string{"state: [data]"}, more...)...)
	}
	g := startGateway(t, "limits: {list_wait: 10ms}\nservers:\n"+slow("slow", "3")+slow("stuck", "600", "connect_timeout: 2s"))
	s := openSession(t, g.client(t), api.NewSession{}).ID
	call := func(args ...string) (stdout, stderr string, err error) {
		cmd := exec.CommandContext(t.Context(), tineBinary, append([]string{"call", "--state", g.state(), "--session", s}, args...)...)
		cmd.Env = append(os.Environ(), "NO_COLOR=1")
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err = cmd.Run()
		return out.String(), said.String(), err
	}
	if out, said, err := call("slow__put", "key=a", "value=b"); err != nil || !strings.Contains(said, `waiting for server "slow"`) {
		t.Errorf("a call to a server that starts: %v, %q, and said %q", err, out, said)
	}
	if out, said, err := call("slow__put", "key=a", "value=c"); err != nil || said != "" {
		t.Errorf("a call to one that has: %v, %q, and said %q", err, out, said)
	}
	if out, said, err := call("stuck__put", "key=a", "value=b"); err == nil || !strings.Contains(said, `server "stuck"`) || !strings.Contains(said, "did not start within 2s") {
		t.Errorf("a call to one that does not start: %v, %q, and said %q", err, out, said)
	}
}
