//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/packages/registrytest"
	"github.com/tine-mcp/tine/internal/torture"
)

// fetched is a gateway with one server whose package comes from a slow registry.
type fetched struct {
	*gateway
	r     *registrytest.Registry
	loads int // of the package in one fetch
}

// fetchWays are the ways to start a server from a package.
var fetchWays = []struct{ name, command, needs, more string }{
	{"npx", "npx", "npx", ""},
	{"npx in a sandbox", "npx", "npx", "sandbox: true"},
	{"uvx", "uvx", pyUvx, ""},
	{"uvx with pip in a sandbox", "uvx", "python3", "sandbox: true"},
}

// pyUvx is relative to toolsDir.
const pyUvx = "venv/bin/uvx"

func needsProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// forEachFetch fetches in all ways, or without torture in one of each program.
func forEachFetch(t *testing.T, do func(t *testing.T, g fetched)) {
	for i, way := range fetchWays {
		if (i == 1 || i == 2) && torture.Or(true, false) {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			if way.more != "" && runtime.GOOS != "linux" {
				t.Skip("there are no sandboxes here")
			}
			command, loads := way.command, 1
			if way.needs == pyUvx {
				command, loads = need(t, pyUvx)[0], 2 // uv reads what is in a wheel, and then the wheel
			} else {
				needsProgram(t, way.needs)
			}
			r := registrytest.New(t)
			home := t.TempDir()
			env := []string{"HOME: " + home}
			for name, value := range r.Env() {
				env = append(env, fmt.Sprintf("%s: %q", name, value))
			}
			args := []string{"-y", registrytest.Name}
			if way.command == "uvx" {
				args = args[1:]
			}
			more := []string{"connect_timeout: 10s", "env: {" + strings.Join(env, ", ") + "}"}
			if way.more != "" {
				more = append(more, way.more)
			}
			do(t, fetched{startGateway(t, "limits: {list_wait: 50ms}\nservers:\n"+yamlServer("slow", command, args, more...)), r, loads})
		})
	}
}

// call calls the tool by the command line.
func (g fetched) call(t *testing.T, flags ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tineBinary, append([]string{"call", "slow__" + registrytest.Name, "--state", g.state()}, flags...)...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}

// fetches waits until the server has been fetching for so long.
func (g fetched) fetches(t *testing.T, long time.Duration) {
	t.Helper()
	c := g.client(t)
	if err := eventually(func() error {
		list, err := c.Servers(t.Context())
		if err != nil {
			return err
		}
		s := list.Servers[0]
		if s.State == api.StateFailed {
			return final{errors.New(s.Reason)}
		}
		if s.State != api.StateFetching || s.Fetch == nil || s.Fetch.Package != registrytest.Name || time.Since(s.Since) < long {
			return fmt.Errorf("the server is %s since %s, %+v", s.State, s.Since, s.Fetch)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestFetchingIsNotStarting fetches for longer than a start may take, while callers
// come and go: the fetch goes on, is one, and is named.
func TestFetchingIsNotStarting(t *testing.T) {
	t.Parallel()
	forEachFetch(t, func(t *testing.T, g fetched) {
		<-g.r.Began() // for its lists, in the background
		g.fetches(t, 0)
		result := g.modernList(t)
		var list struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		said := "is fetching package"
		if err := json.Unmarshal(result, &list); err != nil || !strings.Contains(fmt.Sprintf("%s", list.Meta), said) {
			t.Errorf("a list without the server: %v, %s", err, result)
		}
		if log, err := os.ReadFile(g.logPath()); err != nil || !strings.Contains(string(log), said) {
			t.Errorf("%v, and the log is %s", err, log)
		}
		if out, said, err := g.call(t, "--timeout", "2s"); err == nil || !strings.Contains(said, "calling slow__"+registrytest.Name+": fetching") {
			t.Errorf("a call that left: %v, %q, and said %q", err, out, said)
		}
		g.fetches(t, 11*time.Second)
		g.r.Release()
		if out, said, err := g.call(t); err != nil || !strings.Contains(out, "at your service") {
			t.Errorf("a call that waited: %v, %q, and said %q", err, out, said)
		}
		if n := g.r.Loads(); n != g.loads {
			t.Errorf("the package was loaded %d times", n)
		}
	})
}

// TestKilledWhileFetching kills the gateway in the middle of a fetch: the next one finds
// nothing half made, and fetches.
func TestKilledWhileFetching(t *testing.T) {
	t.Parallel()
	forEachFetch(t, func(t *testing.T, g fetched) {
		<-g.r.Began()
		g.fetches(t, 0)
		g.kill()
		g.r.Release()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		if out, said, err := g.call(t); err != nil || !strings.Contains(out, "at your service") {
			t.Errorf("a call after it: %v, %q, and said %q", err, out, said)
		}
		for _, left := range []string{"fetched/*.going", "sandbox/packages/*.part"} {
			if names, _ := filepath.Glob(filepath.Join(g.state(), left)); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
		}
	})
}

// TestFetchFails names a package that is not there.
func TestFetchFails(t *testing.T) {
	t.Parallel()
	needsProgram(t, "npx")
	r := registrytest.New(t)
	g := startGateway(t, "servers:\n"+yamlServer("gone", "npx", []string{"-y", "no-such-package"}, fmt.Sprintf("env: {HOME: %s, npm_config_registry: %q}", t.TempDir(), r.URL)))
	_, err := g.client(t).Call(t.Context(), "gone__x", nil)
	var ours *api.Error
	if !errors.As(err, &ours) || ours.Kind != api.KindInfrastructure || ours.Retryable || !strings.Contains(ours.Message, `server "gone": fetch package "no-such-package": npx failed`) {
		t.Errorf("got %+v", err)
	}
}
