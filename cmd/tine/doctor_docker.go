package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// An engine runs containers, and is asked for a few things over its API.
type engine struct {
	where string // the address, for people
	http  *http.Client
	base  string

	version string
	api     string
}

// dockerHosts are the engines that the servers of a config name, and the usual
// one, which is empty.
func dockerHosts(conf *config.Config) []string {
	hosts := map[string]bool{}
	for _, s := range dockerServers(conf) {
		hosts[s.Docker.Host] = true
	}
	delete(hosts, "")
	return append([]string{""}, slices.Sorted(maps.Keys(hosts))...)
}

// dockerServers are the servers in containers.
func dockerServers(conf *config.Config) []config.Server {
	if conf == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(conf.Servers), func(s config.Server) bool {
		return !s.Enabled || s.Disabled != "" || s.Docker == nil
	})
}

// checkDocker looks for an engine, and at it for what the servers of the config
// want of it. answers is whether there is one that Tine can use.
func (c *cli) checkDocker(ctx context.Context, host string, conf *config.Config) (ch check, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	name := "docker"
	if host != "" {
		name += " " + config.RedactURL(host)
	}
	servers := slices.DeleteFunc(dockerServers(conf), func(s config.Server) bool { return s.Docker.Host != host })
	e, err := c.findEngine(ctx, host)
	if errors.Is(err, errUnasked) {
		return check{name, checkWarn, err.Error(), "see whether the client can use it: docker info"}, true
	}
	if err != nil {
		return c.noEngine(ctx, name, host, servers, err), false
	}
	defer e.http.CloseIdleConnections()
	ch = check{name, checkOK, fmt.Sprintf("engine %s at %s", e.version, e.where), ""}
	if e.api != "" {
		ch.Detail = fmt.Sprintf("engine %s, API %s, at %s", e.version, e.api, e.where)
	}
	lacks, mend := e.lacks(ctx, servers)
	if path, err := exec.LookPath("docker"); err == nil && host == "" {
		ch.Detail += ", client at " + path
	} else if host == "" && clientWanted(conf) {
		lacks = append(lacks, "docker is not found on PATH, and servers whose command is docker want it")
		mend = append(mend, "install the docker client")
	}
	if len(lacks) > 0 {
		ch.Status = checkWarn
		ch.Detail += "\n" + strings.Join(lacks, "\n")
		ch.Mend = strings.Join(slices.Compact(mend), "; ")
	}
	return ch, true
}

// noEngine says what stands where an engine should answer.
func (c *cli) noEngine(ctx context.Context, name, host string, servers []config.Server, err error) check {
	use := "servers with docker want it"
	if len(servers) > 0 {
		var ids []string
		for _, s := range servers {
			ids = append(ids, s.ID)
		}
		use = "these servers want it: " + strings.Join(ids, ", ")
	}
	if host != "" {
		return check{name, checkMissing, "no engine answers: " + oneLine(err.Error()), "start it, or mend docker.host; " + use}
	}
	path, lookErr := exec.LookPath("docker")
	if lookErr != nil {
		return check{name, checkMissing, "not found on PATH, and no engine answers", "install Docker or Podman and start it; " + use}
	}
	// The client knows contexts and ways to an engine that we don't.
	text, cerr := output(ctx, path, "version", "--format", "{{.Server.Version}}")
	switch {
	case cerr != nil:
		return check{name, checkWarn, fmt.Sprintf("%s is there, but its engine does not answer: %s", path, oneLine(cerr.Error())), "start the engine, or see whether you may use its socket; " + use}
	case len(servers) > 0:
		return check{name, checkWarn, fmt.Sprintf("engine %s answers in the docker client's context, where Tine does not look", strings.TrimSpace(text)), "set DOCKER_HOST, or docker.host of the servers, to the engine's address; " + use}
	}
	return check{name, checkOK, fmt.Sprintf("engine %s in the docker client's context, client at %s; servers with docker need DOCKER_HOST set to its address", strings.TrimSpace(text), path), ""}
}

// clientWanted reports whether a server is run by the docker client.
func clientWanted(conf *config.Config) bool {
	return conf != nil && slices.ContainsFunc(conf.Servers, func(s config.Server) bool {
		return s.Enabled && s.Disabled == "" && filepath.Base(s.Command) == "docker"
	})
}

// findEngine returns the engine of a host, or that of the first usual place
// where one answers.
func (c *cli) findEngine(ctx context.Context, host string) (*engine, error) {
	hosts := []string{host}
	if host == "" {
		hosts = c.usualEngines()
	}
	err := errors.New("there is no socket")
	for _, h := range hosts {
		e, eerr := engineAt(h, c.getenv("DOCKER_TLS_VERIFY") != "")
		if eerr == nil {
			eerr = e.ask(ctx)
		}
		if eerr == nil {
			return e, nil
		}
		err = eerr
	}
	return nil, err
}

// usualEngines are the places where the driver looks for an engine when it is told
// none: it takes the first socket that is there.
func (c *cli) usualEngines() []string {
	if host := c.getenv("DOCKER_HOST"); host != "" {
		return []string{host}
	}
	if runtime.GOOS == "windows" {
		return nil // a named pipe: the client is asked instead
	}
	for _, path := range engineSockets(c.getenv("XDG_RUNTIME_DIR")) {
		if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
			return []string{"unix://" + path}
		}
	}
	return nil
}

// engineSockets are those that the driver knows.
func engineSockets(runtimeDir string) []string {
	sockets := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if runtimeDir != "" {
		sockets = append(sockets, filepath.Join(runtimeDir, "docker.sock"), filepath.Join(runtimeDir, "podman", "podman.sock"))
	}
	return sockets
}

// errUnasked is an engine that is reached in a way that only the driver knows.
var errUnasked = errors.New("it can't be asked from here")

// engineAt is the engine at an address, which was not asked anything yet.
func engineAt(host string, secure bool) (*engine, error) {
	if path, ok := strings.CutPrefix(host, "unix://"); ok {
		return &engine{where: path, base: "http://docker", http: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", path)
			},
		}}}, nil
	}
	where := config.RedactURL(host)
	address, ok := strings.CutPrefix(host, "tcp://")
	switch {
	case strings.HasPrefix(host, "ssh://"):
		return nil, fmt.Errorf("the engine at %s can't be reached over ssh: forward its socket (ssh -L)", where)
	case !ok || secure:
		return nil, fmt.Errorf("the engine at %s: %w", where, errUnasked)
	}
	return &engine{where: where, base: "http://" + address, http: &http.Client{Transport: &http.Transport{}}}, nil
}

// get asks the engine for something.
func (e *engine) get(ctx context.Context, path string, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the engine at %s: %w", e.where, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	raw, err := readAll(resp.Body, "the answer", 8<<20)
	if err != nil {
		return 0, fmt.Errorf("ask the engine at %s: %w", e.where, err)
	}
	if resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(raw, into)
	}
	return resp.StatusCode, err
}

// ask asks for the version.
func (e *engine) ask(ctx context.Context) error {
	var v struct {
		Version    string
		APIVersion string `json:"ApiVersion"`
		Components []struct{ Name string }
	}
	status, err := e.get(ctx, "/version", &v)
	if status != 0 && (err != nil || v.Version == "") {
		return fmt.Errorf("what listens at %s is no Docker engine: it answered %d %s", e.where, status, http.StatusText(status))
	}
	if err != nil {
		return err
	}
	e.version, e.api = v.Version, v.APIVersion
	for _, part := range v.Components {
		if strings.Contains(part.Name, "Podman") {
			e.version = "Podman " + v.Version
		}
	}
	return nil
}

// lacks says what servers want of the engine that it does not have, and what to
// do about it.
func (e *engine) lacks(ctx context.Context, servers []config.Server) (lacks, mend []string) {
	if len(servers) == 0 {
		return nil, nil
	}
	var info struct {
		Runtimes                            map[string]json.RawMessage
		MemoryLimit, CpuCfsQuota, PidsLimit *bool
	}
	if status, err := e.get(ctx, "/info", &info); err != nil || status != http.StatusOK {
		return []string{"it does not say what it can do"}, []string{"see whether you may use it"}
	}
	for what, has := range map[string]*bool{"memory": info.MemoryLimit, "processes": info.PidsLimit, "CPU": info.CpuCfsQuota} {
		if has != nil && !*has {
			lacks = append(lacks, "it can't bound "+what+" of containers")
			mend = append(mend, "give the engine cgroups with all controllers")
		}
	}
	slices.Sort(lacks)
	for _, s := range servers {
		if r := s.Docker.Runtime; r != "" && info.Runtimes != nil && info.Runtimes[r] == nil {
			lacks = append(lacks, fmt.Sprintf("server %q: runtime %q is not among the engine's: %s", s.ID, r, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", ")))
			mend = append(mend, fmt.Sprintf("register runtime %s with the engine", r))
		}
		var image struct{}
		status, err := e.get(ctx, "/images/"+strings.ReplaceAll(url.PathEscape(s.Docker.Image), "%2F", "/")+"/json", &image)
		if err == nil && status == http.StatusNotFound && s.Docker.Pull == config.PullNever {
			lacks = append(lacks, fmt.Sprintf("server %q: image %q is not there, and docker.pull is never", s.ID, s.Docker.Image))
			mend = append(mend, "load or build the images that are not there")
		}
	}
	return lacks, mend
}
