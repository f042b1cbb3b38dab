package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"
	"github.com/moby/moby/client"
)

// engine is one engine that containers run in.
type engine struct {
	d    *Driver
	host string
	cli  *client.Client

	mu     sync.Mutex
	known  *facts
	nets   map[string]int // networks of ours, and how many instances use each
	netsMu sync.Mutex     // held while one is made or removed
}

// facts are what an engine says of itself.
type facts struct {
	podman   bool
	rootless bool
	desktop  bool // it runs in a machine of its own
	ceilings []*units.Ulimit
}

// apiWait bounds a request to the engine that no caller waits for.
const apiWait = 2 * time.Minute

// usualSockets are where engines are found.
func usualSockets() []string {
	s := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		s = append(s, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman", "podman.sock"))
	}
	return s
}

// resolveHost is where an engine is, as the config has it.
func resolveHost(host string) string {
	if host == "" {
		host = os.Getenv(client.EnvOverrideHost)
	}
	if host != "" {
		return host
	}
	if runtime.GOOS != "windows" {
		for _, path := range usualSockets() {
			if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
				return "unix://" + path
			}
		}
	}
	return client.DefaultDockerHost
}

// engine returns that of a host. It may not answer.
func (d *Driver) engine(host string) (*engine, error) {
	host = resolveHost(host)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.New("the driver is closed")
	}
	if e := d.engines[host]; e != nil {
		return e, nil
	}
	if strings.HasPrefix(host, "ssh://") {
		return nil, fmt.Errorf("the engine %q can't be reached over ssh; forward its socket (ssh -L) and set docker.host to unix:///that/socket", host)
	}
	cli, err := client.New(client.WithHost(host), client.WithTLSClientConfigFromEnv(), client.WithAPIVersionFromEnv())
	if err != nil {
		return nil, fmt.Errorf("the engine %q: %w; docker.host is unix:///path, tcp://host:port or npipe://", host, err)
	}
	e := &engine{d: d, host: host, cli: cli, nets: make(map[string]int)}
	d.engines[host] = e
	return e, nil
}

// ready asks the engine what it is, once, and notes that it is used, so that a
// later gateway looks there for what is left.
func (e *engine) ready(ctx context.Context) (facts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known != nil {
		return *e.known, nil
	}
	info, err := e.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return facts{}, e.explain("ask the engine", err)
	}
	version, err := e.cli.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return facts{}, e.explain("ask the engine", err)
	}
	f := facts{desktop: strings.Contains(info.Info.OperatingSystem, "Docker Desktop")}
	for _, c := range version.Components {
		f.podman = f.podman || strings.Contains(c.Name, "Podman")
	}
	for _, o := range info.Info.SecurityOptions {
		f.rootless = f.rootless || strings.Contains(o, "rootless")
	}
	if f.podman {
		f.ceilings = e.ceilings()
	}
	if err := e.d.noteHost(e.host); err != nil {
		return facts{}, err
	}
	e.known = &f
	return f, nil
}

// local reports whether the engine's processes and files are those of this
// machine.
func (e *engine) local() bool {
	return runtime.GOOS == "linux" && strings.HasPrefix(e.host, "unix://")
}

// afterwards is a context for what must be done though the caller's has ended.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), apiWait)
}
