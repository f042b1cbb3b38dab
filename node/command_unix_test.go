//go:build unix

package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// shell runs a script, with this test program as a server in $0.
func shell(mode, script string, args ...string) func() (mcp.Transport, error) {
	return func() (mcp.Transport, error) {
		cmd := exec.Command("sh", append([]string{"-c", script, os.Args[0]}, args...)...)
		cmd.Env = append(os.Environ(), "NODE_TEST_SERVER="+mode)
		return &mcp.CommandTransport{Command: cmd, TerminateDuration: 200 * time.Millisecond}, nil
	}
}

// gonePID waits until the process whose id is in a file has ended.
func gonePID(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of process "+strconv.Itoa(pid), func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err == nil && strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) != nil
	})
}

// TestGroup has programs that start others, as npx does, and leave them behind.
func TestGroup(t *testing.T) {
	for name, script := range map[string]string{
		"ends by itself":   `sleep 300 & echo $! >"$1"; "$0"; true`,
		"ends when told":   `sleep 300 & echo $! >"$1"; "$0"; wait`,
		"does not want to": `trap "" TERM; (trap "" TERM; while :; do sleep 1; done) & echo $! >"$1"; "$0"; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pid")
			s, err := node.Connect(t.Context(), shell("nodes", script, path), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			gonePID(t, path)
		})
	}
	path := filepath.Join(t.TempDir(), "pid")
	refused(t, shell("hang", `sleep 300 & echo $! >"$1"; trap "" TERM; "$0"; wait`, path), &node.Options{SetupTimeout: 300 * time.Millisecond}, "no answer in time")
	gonePID(t, path)
}

// TestStrayOutput has programs that write to their standard output what is no message.
func TestStrayOutput(t *testing.T) {
	s := connect(t, shell("nodes", `echo "Starting up"; echo; printf '%070000d\n' 5; exec "$0"`), nil)
	if out, err := node.Call[addIn, addOut](t.Context(), get(t, s, "add"), addIn{1, 2}); err != nil || out.Sum != 3 {
		t.Error(out, err)
	}
	refused(t, shell("", `echo "Starting up"; exec sleep 300`), &node.Options{SetupTimeout: 300 * time.Millisecond}, "no answer in time", "standard output, which is for messages, it wrote: Starting up")
	refused(t, shell("", `echo "Usage: x"; exit 2`), nil, "exit status 2", "it wrote: Usage: x")
}
