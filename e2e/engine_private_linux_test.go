package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	moby "github.com/moby/moby/client"
)

// A privateEngine is a Docker Engine that a test may kill: it shares neither its
// folders nor its network with any other. Containers reach nothing and are
// reached over stdio alone.
type privateEngine struct {
	*engine
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when dockerd has ended
}

// startPrivateEngine runs one, with the static image, until the test ends.
func startPrivateEngine(t *testing.T) *privateEngine {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil || os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("a Docker Engine to kill needs root and dockerd: %v", err)
		}
		t.Skipf("a Docker Engine to kill needs root and dockerd: %v", err)
	}
	archive := need(t, "images/static.tar")[0]
	// The engine's sockets lie in it, and their paths must be short.
	dir, err := os.MkdirTemp("/tmp", "tine-engine-")
	if err != nil {
		t.Fatal(err)
	}
	p := &privateEngine{dir: dir}
	t.Cleanup(func() { p.end(t) })
	if p.engine, err = dialEngine("docker", filepath.Join(dir, "docker.sock")); err != nil {
		t.Fatal(err)
	}
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	loaded, err := p.cli.ImageLoad(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if _, err := io.Copy(io.Discard, loaded); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *privateEngine) logPath() string { return filepath.Join(p.dir, "log") }

// start runs dockerd and returns when it answers.
func (p *privateEngine) start(ctx context.Context) error {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--host", p.host, "--bridge", "none", "--iptables=false",
		"--data-root", filepath.Join(p.dir, "data"), "--exec-root", filepath.Join(p.dir, "run"),
		"--pidfile", filepath.Join(p.dir, "pid"), "--cgroup-parent", "/"+filepath.Base(p.dir))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		defer close(done)
		cmd.Wait()
	}()
	return eventually(func() error {
		select {
		case <-done:
			out, _ := os.ReadFile(p.logPath())
			return final{fmt.Errorf("dockerd ended: %s\n%s", cmd.ProcessState, tail(string(out), 4<<10))}
		default:
		}
		_, err := p.cli.Ping(ctx, moby.PingOptions{})
		return err
	})
}

// kill ends dockerd without a warning, and with it its containerd. Containers go
// on until the next one starts, which ends them.
func (p *privateEngine) kill() {
	p.cmd.Process.Kill()
	<-p.done
	// If no process waits for orphans, a dead containerd keeps its number, and the
	// next dockerd would take it for one that runs.
	os.Remove(filepath.Join(p.dir, "run", "containerd", "containerd.pid"))
}

// end leaves nothing of the engine.
func (p *privateEngine) end(t *testing.T) {
	if p.cmd != nil {
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience):
			p.kill()
		}
	}
	if p.engine != nil {
		p.cli.Close()
	}
	if t.Failed() {
		if log, err := os.ReadFile(p.logPath()); err == nil {
			t.Logf("dockerd's log:\n%s", tail(string(log), 8<<10))
		}
	}
	// What a dockerd that was killed left to nobody: containers and their shims.
	if err := eventually(func() error {
		for _, pid := range p.processes() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, m := range p.mounts() {
			syscall.Unmount(m, syscall.MNT_DETACH)
		}
		for _, group := range p.groups() {
			if err := os.Remove(group); err != nil {
				return err
			}
		}
		return os.RemoveAll(p.dir)
	}); err != nil {
		t.Errorf("the engine's own: %v", err)
	}
}

// groups are the control groups of its containers, the innermost first.
func (p *privateEngine) groups() (all []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		roots, _ := filepath.Glob(pattern + filepath.Base(p.dir))
		for _, root := range roots {
			filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil
			})
		}
	}
	slices.Reverse(all)
	return all
}

// processes are those in its control groups, and those that were started with a
// path in its folder.
func (p *privateEngine) processes() (pids []int) {
	for _, group := range p.groups() {
		data, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), p.dir+"/") {
			continue
		}
		var pid int
		if fmt.Sscanf(path, "/proc/%d/", &pid); pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mounts are those below the engine's folder, the innermost first.
func (p *privateEngine) mounts() (all []string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], p.dir+"/") {
			all = append(all, fields[4])
		}
	}
	slices.Reverse(all)
	return all
}
