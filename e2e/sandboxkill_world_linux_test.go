package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// yamlBox renders the state server in a sandbox. It declares no state: what it
// knows is in its memory, and in a file of a root that is in memory too.
func yamlBox(t testing.TB, id string, more ...string) string {
	t.Helper()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	if len(more) == 0 {
		more = []string{"timeout: 30s"}
	}
	return yamlServer(id, program, []string{"-dir", "/tmp"}, append([]string{"sandbox: {slots: 2}"}, more...)...)
}

// boxes watches the sandboxes that a gateway makes, so that a test can tell in
// the end whether something of any of them is left.
type boxes struct {
	g     *gateway
	stop  chan struct{}
	ended sync.WaitGroup

	mu   sync.Mutex
	seen map[string]bool // what gVisor calls them
}

func watchBoxes(t testing.TB, g *gateway) *boxes {
	b := &boxes{g: g, stop: make(chan struct{}), seen: map[string]bool{}}
	b.ended.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			b.look()
			select {
			case <-b.stop:
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(b.end)
	return b
}

func (b *boxes) end() {
	select {
	case <-b.stop:
	default:
		close(b.stop)
		b.ended.Wait()
	}
}

// look notes what gVisor has written down.
func (b *boxes) look() {
	entries, _ := os.ReadDir(filepath.Join(b.g.state(), "sandbox", "run"))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), "_")
		b.seen[name] = true
	}
}

// boxProcess is a process of the driver.
type boxProcess struct {
	pid  int
	role string // boot, gofer, helper, or what else it is
	name string // of the sandbox; empty for a helper
	args []string
}

// boxProcesses finds the processes that run gVisor for a state folder.
func boxProcesses(state string) []boxProcess {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var all []boxProcess
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			continue // it is over, or a thread of the kernel
		}
		p := boxProcess{args: strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")}
		fmt.Sscanf(path, "/proc/%d/", &p.pid)
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		if !strings.HasPrefix(exe, state+"/sandbox/") && !strings.Contains(string(data), state+"/sandbox/") {
			continue
		}
		for _, arg := range p.args[1:] {
			switch {
			case p.role == "" && (arg == "boot" || arg == "gofer" || arg == "create"):
				p.role = arg
			case arg == "tine-helper":
				p.role = "helper"
			case strings.HasPrefix(arg, "tine-"):
				p.name = arg
			}
		}
		all = append(all, p)
	}
	return all
}

// boxRecord is what the driver knows of an instance.
type boxRecord struct {
	Dir     string
	Sandbox string `json:"sandbox"`
	Runsc   string `json:"runsc"`
	State   string `json:"state"`
	PID     int    `json:"pid"`
	Gofer   struct {
		PID int `json:"pid"`
	} `json:"gofer"`
}

// boxesOf are the sandboxes of a session that run.
func (g *gateway) boxesOf(session string) (all []boxRecord) {
	paths, _ := filepath.Glob(filepath.Join(g.state(), "instances", "*", "sandbox.json"))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		var r boxRecord
		if err != nil || json.Unmarshal(data, &r) != nil {
			continue
		}
		if r.Dir = filepath.Dir(path); strings.Contains(r.State, "/"+session+"/") {
			all = append(all, r)
		}
	}
	return all
}

// boxOf is the one sandbox of a session.
func (g *gateway) boxOf(t testing.TB, session string) boxRecord {
	t.Helper()
	all := g.boxesOf(session)
	if len(all) != 1 || all[0].PID == 0 {
		t.Fatalf("session %s has the sandboxes %+v, want one", session, all)
	}
	return all[0]
}

// nothing holds that of all sandboxes nothing is left, of a gateway that was
// stopped: no process, folder, mount or cgroup.
func (b *boxes) nothing(t testing.TB) {
	t.Helper()
	b.end()
	b.look()
	if err := eventually(b.leftovers); err != nil {
		t.Errorf("after the gateway was stopped:\n%v", err)
	}
}

func (b *boxes) leftovers() error {
	var errs []error
	state := b.g.state()
	for _, p := range boxProcesses(state) {
		errs = append(errs, fmt.Errorf("process %d (%s) of %s is left", p.pid, p.role, p.name))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return final{err}
	}
	if strings.Contains(string(mounts), " "+state+"/") {
		errs = append(errs, errors.New("a mount below the state folder is left"))
	}
	for _, dir := range []string{"instances", "sandbox/run", "sandbox/slots", "sandbox/mounts", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(state, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return final{err}
		}
		for _, e := range entries {
			errs = append(errs, fmt.Errorf("%s/%s is left", dir, e.Name()))
		}
	}
	for _, dir := range boxCgroups(b.seen) {
		errs = append(errs, fmt.Errorf("cgroup %s is left", dir))
	}
	return errors.Join(errs...)
}

// boxCgroups are those of sandboxes with these names.
func boxCgroups(names map[string]bool) (found []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/tine-*", "/sys/fs/cgroup/*/tine-*", "/sys/fs/cgroup/*/*/tine-*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if names[filepath.Base(dir)] {
				found = append(found, dir)
			}
		}
	}
	return found
}

// closeBoxes closes everything, stops the gateway and holds that nothing is left.
func (b *boxes) closeBoxes(t testing.TB) {
	t.Helper()
	c := b.g.client(t)
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	// A gateway without sessions has only the slots.
	if err := eventually(func() error {
		entries, err := os.ReadDir(filepath.Join(b.g.state(), "instances"))
		if err != nil || len(entries) > 0 {
			return fmt.Errorf("%d instances, %v", len(entries), err)
		}
		return nil
	}); err != nil {
		t.Errorf("after all was closed: %v", err)
	}
	if _, err := b.g.stop(); err != nil {
		t.Fatal(err)
	}
	b.nothing(t)
}
