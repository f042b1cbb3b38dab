//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// The binaries under test, built once: the gateway as it is shipped, and the
// server that misbehaves.
var (
	tineBinary string
	badServer  string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if to := os.Getenv(driverKey); to != "" {
		return tellScenario(to)
	}
	dir, err := os.MkdirTemp("", "tine-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	badServer = filepath.Join(dir, "badserver")
	builds := [][]string{{badServer, "./badserver"}}
	if tineBinary = os.Getenv("TINE_BIN"); tineBinary == "" {
		tineBinary = filepath.Join(dir, "tine")
		builds = append(builds, []string{dir, "../cmd/..."})
	}
	for _, b := range builds {
		if err := build(b[0], "dev", b[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// A gateway of the person who runs the tests must not be found by them.
	for _, name := range []string{"TINE_STATE", "TINE_CONFIG", "TINE_TOKEN", "TINE_URL", "MCP_TOKEN", "MCP_REMOTE_SERVERS"} {
		os.Unsetenv(name)
	}
	return m.Run()
}

// build builds a version of programs, without what only debuggers read.
func build(to, version string, sources ...string) error {
	args := []string{"build", "-trimpath", "-ldflags", "-s -w -X main.version=" + version, "-o", to}
	cmd := exec.Command("go", append(args, sources...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w\n%s", sources, err, out)
	}
	return nil
}

// built builds a server of this folder when it is first wanted.
func built(server string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		program := filepath.Join(filepath.Dir(badServer), server)
		return program, build(program, "dev", "./"+server)
	})
}
