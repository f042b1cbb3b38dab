//go:build linux && (amd64 || arm64)

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	moby "github.com/moby/moby/client"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// An rlmWorld is a state folder of tine rlm, and all that runs for it.
type rlmWorld struct {
	way    string   // sandbox or docker
	args   []string // of tine rlm, that choose it
	engine *engine  // of a container
	state  string
	home   string
	env    []string
	bin    string // what PATH has first for Claude Code, if any

	mu    sync.Mutex
	log   testkit.Log     // what was written to standard error
	boxes map[string]bool // the names of sandboxes that were seen
}

// rlmSandbox is a world whose kernels are in sandboxes.
func rlmSandbox(t *testing.T) *rlmWorld {
	t.Helper()
	dir := t.TempDir()
	w := &rlmWorld{way: "sandbox", state: filepath.Join(dir, "state"), home: filepath.Join(dir, "home"), boxes: map[string]bool{}}
	if err := os.Mkdir(w.home, 0o700); err != nil {
		t.Fatal(err)
	}
	// A Docker of this machine is not found, and nothing asks a real language model.
	w.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ANTHROPIC_") || strings.HasPrefix(v, "OPENAI_")
	}), "HOME="+w.home, "TINE_STATE="+w.state, "DOCKER_HOST=unix://"+filepath.Join(dir, "no-docker.sock"))
	t.Cleanup(func() { w.end(t) })
	return w
}

// rlmDocker is one whose kernels are in containers.
func rlmDocker(t *testing.T, e *engine) *rlmWorld {
	t.Helper()
	w := rlmSandbox(t)
	w.way, w.engine = "docker", e
	w.args = []string{"--docker", "--image", imageServers}
	w.env = append(w.env, "DOCKER_HOST="+e.host)
	return w
}

// onRLM runs a test both ways.
func onRLM(t *testing.T, f func(t *testing.T, w *rlmWorld)) {
	t.Run("sandbox", func(t *testing.T) {
		t.Parallel()
		f(t, rlmSandbox(t))
	})
	t.Run("docker", func(t *testing.T) {
		t.Parallel()
		f(t, rlmDocker(t, needEngine(t, "docker")))
	})
}

// project makes a project folder with files.
func (w *rlmWorld) project(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// An rlmClient speaks with one tine rlm.
type rlmClient struct {
	*pipeClient
	w *rlmWorld
}

func (w *rlmWorld) command(project string, args ...string) *exec.Cmd {
	cmd := exec.Command(tineBinary, slices.Concat([]string{"rlm"}, w.args, args)...)
	cmd.Dir, cmd.Env, cmd.Stderr = project, w.env, &w.log
	return cmd
}

// open starts tine rlm in a project folder.
func (w *rlmWorld) open(t *testing.T, project string, args ...string) *rlmClient {
	t.Helper()
	return &rlmClient{pipeTo(t, w.command(project, args...)), w}
}

// use calls a tool and returns the text of its result.
func (c *rlmClient) use(tool string, args object) (string, error) {
	r, err := c.call(tool, args)
	if err != nil || !r.IsError {
		return r.text(), err
	}
	failure := &toolFailure{text: r.text()}
	if e := r.Meta["tine/error"]; e != nil {
		failure.api = new(api.Error)
		if err := json.Unmarshal(e, failure.api); err != nil {
			return "", err
		}
	}
	return "", failure
}

func (c *rlmClient) exec(code string) (string, error) {
	return c.use("rlm_exec", object{"code": code, "timeout": 50})
}

func (c *rlmClient) run(t testing.TB, code string) string {
	t.Helper()
	got, err := c.exec(code)
	if err != nil {
		t.Fatalf("%s: %s: %v", c.w.way, code, err)
	}
	return got
}

// is holds that code gives a result.
func (c *rlmClient) is(t testing.TB, code, want string) {
	t.Helper()
	if got, err := c.exec(code); err != nil || got != want {
		t.Errorf("%s: %s gives %q, want %q: %v", c.w.way, code, got, want, err)
	}
}

// loses holds that a call says that something is lost, and names it. Where the kernel
// has just died that may be the second one: the first was sent to it.
func (c *rlmClient) loses(t testing.TB, names ...string) {
	t.Helper()
	var told []string
	for range 2 {
		got, err := c.exec("1")
		if err == nil {
			break
		}
		if !failsAs(err, api.KindLost) {
			t.Errorf("%s: no loss is told: %q, %v", c.w.way, got, err)
			return
		}
		told = append(told, err.Error())
	}
	testkit.Has(t, "what is told of the loss", strings.Join(told, "\n"), names...)
}

// refuses holds that a call fails as a kind, and says why.
func (c *rlmClient) refuses(t testing.TB, kind api.Kind, tool string, args object, says ...string) {
	t.Helper()
	got, err := c.use(tool, args)
	if !failsAs(err, kind) {
		t.Errorf("%s %v: %q, %v; want an error of the kind %s", tool, args, got, err, kind)
		return
	}
	testkit.Has(t, tool, err.Error(), says...)
}

// leave ends tine rlm as its client does.
func (c *rlmClient) leave(t *testing.T) {
	t.Helper()
	c.w.processes()
	c.pipeClient.leave(t)
}

// kill ends tine rlm without a warning, and what else is named by its role.
func (c *rlmClient) kill(t testing.TB, roles ...string) {
	t.Helper()
	victims := []int{c.cmd.Process.Pid}
	for _, p := range c.w.processes() {
		if slices.Contains(roles, p.role) {
			victims = append(victims, p.pid)
		}
	}
	if len(victims) != 1+len(roles) {
		t.Fatalf("%v are %d processes", roles, len(victims)-1)
	}
	for _, pid := range victims {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	c.drain()
}

// drain waits for the end of a tine rlm that was killed.
func (c *rlmClient) drain() {
	for range c.lines {
	}
	c.cmd.Wait()
}

// The roles of processes.
const (
	roleRLM    = "tine rlm"
	roleHelper = "helper"               // of tine rlm
	roleMaker  = "helper of sandboxes"  // starts them
	roleBox    = "sandbox"              // with the kernel in it, or ready for one
	roleGofer  = "gofer"                // its files
	roleOther  = "process of a sandbox" // and what is started on the way to one
)

type rlmProcess struct {
	pid  int
	role string
	args []string
}

// processes are those that have the state folder in their command line, environment
// or program.
func (w *rlmWorld) processes() (all []rlmProcess) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		if !slices.ContainsFunc([]string{string(line), string(environ), exe}, func(s string) bool { return strings.Contains(s, w.state) }) {
			continue
		}
		p := rlmProcess{pid: pid, role: roleOther, args: strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")}
		for _, arg := range p.args {
			if strings.HasPrefix(arg, "tine-") && arg != "tine-helper" {
				w.boxes[arg] = true
			}
		}
		switch {
		case len(p.args) > 1 && p.args[1] == "rlm":
			p.role = roleRLM
		case len(p.args) > 1 && p.args[1] == "rlm-helper":
			p.role = roleHelper
		case len(p.args) > 1 && p.args[1] == "tine-helper":
			p.role = roleMaker
		case p.args[0] == "runsc-sandbox":
			p.role = roleBox
		case p.args[0] == "runsc-gofer":
			p.role = roleGofer
		}
		all = append(all, p)
	}
	return all
}

// count says how many processes of each role there are.
func (w *rlmWorld) count() map[string]int {
	n := map[string]int{}
	for _, p := range w.processes() {
		n[p.role]++
	}
	return n
}

// kernels are the processes of this machine that kernels run in.
func (w *rlmWorld) kernels(t testing.TB) (pids []int) {
	t.Helper()
	if w.engine != nil {
		for _, id := range w.gateways() {
			containers, err := w.engine.cli.ContainerList(t.Context(), moby.ContainerListOptions{Filters: make(moby.Filters).Add("label", "tine.gateway="+id)})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range containers.Items {
				about, err := w.engine.cli.ContainerInspect(t.Context(), c.ID, moby.ContainerInspectOptions{})
				switch {
				case errdefs.IsNotFound(err):
				case err != nil:
					t.Fatal(err)
				case about.Container.State.Pid > 1: // one that has just ended has none
					pids = append(pids, about.Container.State.Pid)
				}
			}
		}
		return pids
	}
	for _, p := range w.processes() {
		if p.role == roleBox && strings.Contains(strings.Join(p.args, " "), "/instances/") {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// killKernel kills the one kernel that there is, from outside.
func (w *rlmWorld) killKernel(t testing.TB) {
	t.Helper()
	pids := w.kernels(t)
	if len(pids) != 1 {
		t.Fatalf("%s: %d kernels run, not one", w.way, len(pids))
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of the kernel", func() bool { return !slices.Contains(w.kernels(t), pids[0]) })
}

// gateways are the names under which an engine knows what is ours.
func (w *rlmWorld) gateways() (ids []string) {
	paths, _ := filepath.Glob(filepath.Join(w.state, "rlm", "*", "id"))
	for _, path := range paths {
		if id, err := os.ReadFile(path); err == nil {
			ids = append(ids, strings.TrimSpace(string(id)))
		}
	}
	return ids
}

// left lists what there is of kernels: processes, mounts, cgroups, folders, containers.
func (w *rlmWorld) left(ctx context.Context) error {
	var errs []error
	for _, p := range w.processes() {
		errs = append(errs, fmt.Errorf("%s is left: %d %.200q", p.role, p.pid, p.args))
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), w.state) {
		errs = append(errs, fmt.Errorf("a mount below the state folder is left, %v", err))
	}
	for _, below := range []string{"instances", "sandbox/run", "sandbox/mounts", "sandbox/slots"} {
		found, _ := filepath.Glob(filepath.Join(w.state, "rlm", "*", below, "*"))
		for _, path := range found {
			errs = append(errs, fmt.Errorf("%s is left", path))
		}
	}
	for _, group := range cgroups(w.boxes) {
		errs = append(errs, fmt.Errorf("cgroup %s is left", group))
	}
	if w.engine != nil {
		for _, id := range w.gateways() {
			all, err := w.engine.owned(ctx, "tine.gateway="+id)
			errs = append(errs, err)
			if n := all.count("container"); n > 0 {
				errs = append(errs, fmt.Errorf("%d containers are left", n))
			}
		}
	}
	return errors.Join(errs...)
}

// nothing holds that nothing of a kernel is left, now or soon.
func (w *rlmWorld) nothing(t testing.TB) {
	t.Helper()
	if err := eventually(func() error { return w.left(t.Context()) }); err != nil {
		t.Errorf("%s: %v", w.way, err)
	}
}

// rooms are the folders of kernels that are kept.
func (w *rlmWorld) rooms(t testing.TB) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.state, "rlm"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "programs" {
			names = append(names, e.Name())
		}
	}
	return names
}

// end kills what a test that failed has left, and removes what an engine keeps.
func (w *rlmWorld) end(t testing.TB) {
	for _, p := range w.processes() {
		syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if t.Failed() {
		t.Logf("standard error of tine rlm:\n%s", tail(w.log.String(), 8<<10))
	}
	if w.engine == nil {
		return
	}
	ctx := context.WithoutCancel(t.Context())
	for _, id := range w.gateways() {
		all, _ := w.engine.owned(ctx, "tine.gateway="+id)
		for thing := range all {
			switch kind, name, _ := strings.Cut(thing, " "); kind {
			case "container":
				w.engine.cli.ContainerRemove(ctx, name, moby.ContainerRemoveOptions{Force: true})
			case "volume":
				defer w.engine.cli.VolumeRemove(ctx, name, moby.VolumeRemoveOptions{Force: true})
			}
		}
	}
}
