package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// probeTime bounds how long one program or engine may take to say its version.
const probeTime = 10 * time.Second

// program is one that MCP servers are commonly run with.
type program struct {
	name    string
	names   []string // of the executable; the first that works counts
	major   int      // the least version
	minor   int
	install string
}

var programs = []program{
	{"node", []string{"node"}, 18, 0, "install Node.js 18 or newer; servers from npm run with it"},
	{"npx", []string{"npx"}, 0, 0, "install Node.js with npm; servers from npm are started with npx"},
	{"python", []string{"python3", "python", "py"}, 3, 10, "install Python 3.10 or newer; servers from PyPI run with it"},
	{"uv", []string{"uv"}, 0, 0, "install uv; it brings uvx, which starts servers from PyPI"},
	{"uvx", []string{"uvx"}, 0, 0, "install uv; it brings uvx, which starts servers from PyPI"},
}

var versionText = regexp.MustCompile(`([0-9]+)\.([0-9]+)(\.[0-9]+)?`)

func (p program) check(ctx context.Context) check {
	ch := check{Name: p.name, Status: checkMissing, Detail: "not found on PATH", Mend: p.install}
	for _, name := range p.names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		text, err := output(ctx, path, "--version")
		if err != nil {
			ch.Status, ch.Detail = checkWarn, fmt.Sprintf("%s does not run: %v", path, err)
			continue // a shim may stand before a program that works
		}
		m := versionText.FindStringSubmatch(text)
		if m == nil {
			ch.Status, ch.Detail = checkWarn, fmt.Sprintf("%s says its version is %q", path, clip(oneLine(text)))
			continue
		}
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if major < p.major || major == p.major && minor < p.minor {
			ch.Status, ch.Detail = checkWarn, fmt.Sprintf("%s is version %s, which is old", path, m[0])
			continue
		}
		return check{Name: p.name, Status: checkOK, Detail: m[0] + " at " + path}
	}
	return ch
}

// output runs a program and returns what it printed.
func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", errors.New("it did not answer in time")
	}
	if err != nil {
		if text := firstLine(string(out)); text != "" {
			return "", fmt.Errorf("%w: %s", err, clip(text))
		}
		return "", err
	}
	return string(out), nil
}

func (c *cli) checkDocker(ctx context.Context) check {
	const name, use = "docker", "servers whose command is docker want it"
	path, lookErr := exec.LookPath("docker")
	engine, where, err := c.dockerEngine(ctx)
	if err != nil && lookErr == nil {
		// The client knows contexts and ways to an engine that we don't.
		var text string
		if text, err = output(ctx, path, "version", "--format", "{{.Server.Version}}"); err == nil {
			engine, where = strings.TrimSpace(text), "the docker client's context"
		}
	}
	switch {
	case lookErr != nil && err != nil:
		return check{name, checkMissing, "not found on PATH, and no engine answers", "install Docker; " + use}
	case lookErr != nil:
		return check{name, checkWarn, fmt.Sprintf("engine %s answers at %s, but docker is not found on PATH", engine, where), "install the docker client; " + use}
	case err != nil:
		return check{name, checkWarn, fmt.Sprintf("%s is there, but its engine does not answer: %s", path, oneLine(err.Error())), "start the engine, or see whether you may use its socket; " + use}
	}
	return check{name, checkOK, fmt.Sprintf("engine %s at %s, client at %s", engine, where, path), ""}
}

// dockerEngine asks the engine for its version on the sockets where one usually
// listens.
func (c *cli) dockerEngine(ctx context.Context) (version, where string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err = errors.New("there is no socket")
	for _, s := range c.dockerSockets() {
		if _, serr := os.Stat(s); serr != nil {
			continue
		}
		if version, err = engineVersion(ctx, s); err == nil {
			return version, s, nil
		}
	}
	return "", "", err
}

func (c *cli) dockerSockets() []string {
	if host := c.getenv("DOCKER_HOST"); host != "" {
		if s, ok := strings.CutPrefix(host, "unix://"); ok {
			return []string{s}
		}
		return nil // the client is asked instead
	}
	if runtime.GOOS == "windows" {
		return nil // a named pipe: likewise
	}
	sockets := []string{"/var/run/docker.sock"}
	if dir := c.getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if home := c.getenv("HOME"); home != "" {
		sockets = append(sockets, filepath.Join(home, ".docker", "run", "docker.sock"))
	}
	return sockets
}

func engineVersion(ctx context.Context, socket string) (string, error) {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/version", nil)
	if err != nil {
		return "", err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("ask the engine at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	raw, err := readAll(resp.Body, "the answer", 1<<20)
	if err != nil {
		return "", fmt.Errorf("ask the engine at %s: %w", socket, err)
	}
	var v struct{ Version string }
	if err := json.Unmarshal(raw, &v); err != nil || v.Version == "" {
		return "", fmt.Errorf("what listens at %s is no Docker engine: it answered %s", socket, resp.Status)
	}
	return v.Version, nil
}
