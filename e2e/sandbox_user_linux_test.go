//go:build amd64 || arm64

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/torture"
)

// ordinaryID is that of a user who need not have a name.
const ordinaryID = 54321

// ordinary is a user who is not root, and has a home and programs that it may run.
type ordinary struct {
	dir  string
	home string
	tine string
	as   *syscall.Credential // nil where such a user runs the tests
}

func newOrdinary(t testing.TB) *ordinary { return newOrdinaryAs(t, ordinaryID) }

func newOrdinaryAs(t testing.TB, id uint32) *ordinary {
	t.Helper()
	// Not t.TempDir, which only root may enter.
	dir, err := os.MkdirTemp("", "tine-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	u := &ordinary{dir: dir, home: filepath.Join(dir, "home")}
	if os.Geteuid() == 0 {
		u.as = &syscall.Credential{Uid: id, Gid: id}
	}
	if err := os.Mkdir(u.home, 0o700); err != nil {
		t.Fatal(err)
	}
	u.own(t, dir, u.home)
	u.tine = u.program(t, tineBinary)
	u.program(t, filepath.Join(filepath.Dir(tineBinary), "tine-sandbox"))
	return u
}

func (u *ordinary) own(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if u.as == nil {
			return
		}
		if err := os.Chown(path, int(u.as.Uid), int(u.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// program copies one to where the user finds it.
func (u *ordinary) program(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(u.dir, filepath.Base(from))
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy a program: %v: %s", err, out)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// env is the user's own in the place of the one who runs the tests.
func (u *ordinary) env() []string {
	env := []string{"HOME=" + u.home, "USER=", "LOGNAME="}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "XDG_") {
			env = append(env, name+"=")
		}
	}
	return env
}

// can reports whether the user can run this.
func (u *ordinary) can(env []string, name string, args ...string) bool {
	cmd := exec.Command(name, args...)
	cmd.Dir = u.home
	cmd.Env = append(append(os.Environ(), u.env()...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.as}
	return cmd.Run() == nil
}

// tools is the folder of the programs of others as the user sees it. One that lies
// where it may not look is shown to it elsewhere.
func (u *ordinary) tools(t testing.TB) string {
	t.Helper()
	at := toolsDir()
	if u.can(nil, "test", "-r", at) {
		return at
	}
	shown := filepath.Join(u.dir, "tools")
	if err := os.Mkdir(shown, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(at, shown, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(shown, 0); err != nil {
			t.Error(err)
		}
	})
	return shown
}

// python is an interpreter for what is installed in the folder of tools, and the
// variable that tells it so: the one that installed it may be in root's home.
func (u *ordinary) python(t testing.TB, tools string) (program, path string) {
	t.Helper()
	sites, _ := filepath.Glob(filepath.Join(tools, "venv/lib/python3*/site-packages"))
	if len(sites) != 1 {
		t.Fatalf("the packages of Python are in %v, want one place", sites)
	}
	version := filepath.Base(filepath.Dir(sites[0]))
	tried := []string{filepath.Join(tools, python), "/usr/bin/" + version, "/usr/local/bin/" + version}
	for _, program := range tried {
		if u.can([]string{"PYTHONPATH=" + sites[0], "PYTHONDONTWRITEBYTECODE=1"}, program, "-c", "import duckdb, fastmcp") {
			return program, sites[0]
		}
	}
	const why = "user %d can run none of %v with what is in %s; install %s for all users"
	if os.Getenv("CI") != "" {
		t.Fatalf(why, ordinaryID, tried, sites[0], version)
	}
	t.Skipf(why, ordinaryID, tried, sites[0], version)
	return "", ""
}

// cell is a gateway that the user runs.
func (u *ordinary) cell(t testing.TB, config string) *cell {
	t.Helper()
	w := newCell(t, config, u.env()...)
	u.own(t, filepath.Dir(w.dir), w.dir, w.configPath())
	w.as, w.program = u.as, u.tine
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", w.cmd.Process.Pid), &st); err != nil || st.Uid == 0 {
		t.Fatalf("the gateway is run by user %d, %v", st.Uid, err)
	}
	return w
}

// TestSandboxUserServers is TestSandboxServers with a gateway that is run by an
// ordinary user.
func TestSandboxUserServers(t *testing.T) {
	t.Parallel()
	need(t, node, npmMemory, npmFilesystem, pyDuckDB)
	u := newOrdinary(t)
	tools := u.tools(t)
	interpreter, packages := u.python(t, tools)
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	npm := func(script string, more ...string) []string {
		return append([]string{filepath.Join(tools, script)}, more...)
	}
	t.Run("of", func(t *testing.T) {
		for _, tt := range []struct {
			name, yaml string
			shelf      *shelf
			begins     string
		}{
			{"memory", yamlServer("it", filepath.Join(tools, node), npm(npmMemory), sandboxed, "env: {MEMORY_FILE_PATH: /tmp/graph.jsonl}"),
				memoryShelf("it"), "Knowledge Graph MCP Server running"},
			{"filesystem", yamlServer("it", filepath.Join(tools, node), npm(npmFilesystem, "${workspace}"), sandboxed, "workspace: true"),
				filesShelf("it"), "Secure MCP Filesystem Server running"},
			{"python", yamlServer("it", interpreter, []string{filepath.Join(tools, pyDuckDB), "--db-path", ":memory:", "--read-write"},
				fmt.Sprintf("sandbox: {allow_read: [%q]}", packages), "connect_timeout: 5m", strings.Replace(quietPython, "{", fmt.Sprintf("{PYTHONPATH: %q, ", packages), 1)),
				duckShelf("it"), "Waiting for client connection"},
			{"go", yamlServer("it", u.program(t, program), nil, sandboxed), programShelf("it"), "sandserver: begins"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				w := u.cell(t, "servers:\n"+tt.yaml)
				forkCrowd(t, w, tt.shelf, tt.begins, torture.Or(4, 20))
				w.over(t)
				u.left(t, w.gateway)
			})
		}
	})
}

// left holds that nothing of a gateway that ended is mounted anywhere: an ordinary
// user's mounts are in namespaces that this test is not in.
func (u *ordinary) left(t testing.TB, g *gateway) {
	t.Helper()
	if err := eventually(func() error {
		tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
		for _, path := range tables {
			if mounts, err := os.ReadFile(path); err == nil && strings.Contains(string(mounts), g.state()+"/") {
				return fmt.Errorf("%s has a mount of the state folder", path)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(u.home); err != nil || len(entries) > 0 {
		t.Errorf("in the user's home there is %v, %v", entries, err)
	}
}

// TestSandboxUserKill is TestSandboxKillGateway with a gateway that is run by an
// ordinary user, and fewer sessions and rounds.
func TestSandboxUserKill(t *testing.T) {
	t.Parallel()
	u := newOrdinary(t)
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	w := u.cell(t, "sessions: {memory: off}\nservers:\n"+yamlServer("box", u.program(t, program), []string{"-dir", "/tmp"}, "sandbox: {slots: 2}", "timeout: 30s"))
	killGateway(t, w.gateway, torture.Or(4, 12), torture.Or(4, 5), 4)
	w.gone(t)
	u.left(t, w.gateway)
}

// TestSandboxUserDoctor asks what works as an ordinary user.
func TestSandboxUserDoctor(t *testing.T) {
	t.Parallel()
	u := newOrdinary(t)
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	w := u.cell(t, "servers:\n"+yamlServer(sand, u.program(t, program), nil, sandboxed))
	out, err := w.tine(t.Context(), "doctor", "--json", "--config", w.configPath())
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Drivers []string
		Checks  []struct{ Name, Status, Detail, Mend string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(report.Drivers, " "), "sandbox") {
		t.Errorf("the drivers that work are %v, want sandbox among them", report.Drivers)
	}
	said := ""
	for _, c := range report.Checks {
		if c.Name == "sandbox" {
			said = c.Detail
			t.Logf("%s: %s\n%s", c.Status, c.Detail, c.Mend)
		}
	}
	for _, want := range []string{"namespaces: as an ordinary user", "limits: ", "start: a program ran in a sandbox", "live forks: frozen and restored", "servers in sandboxes: " + sand} {
		if !strings.Contains(said, want) {
			t.Errorf("of sandboxes it says nothing of %q:\n%s", want, said)
		}
	}
	w.over(t)
	u.left(t, w.gateway)
}
