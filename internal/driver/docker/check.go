package docker

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// Hosts are the engines that servers name, and the usual one, which is empty.
func Hosts(servers []config.Server) []string {
	hosts := map[string]bool{}
	for _, s := range servers {
		if optionsOf(s) != nil && optionsOf(s).Host != "" {
			hosts[optionsOf(s).Host] = true
		}
	}
	return append([]string{""}, slices.Sorted(maps.Keys(hosts))...)
}

// Check looks for the engine of a host, and checks it for what the servers on it need.
// answers is whether there is one that the driver can use.
func Check(ctx context.Context, host string, servers []config.Server) (f driver.Finding, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, driver.CheckTime)
	defer cancel()
	f = driver.Finding{Name: "docker", Status: driver.FoundOK}
	if host != "" {
		f.Name += " " + config.RedactURL(host)
	}
	clientNeeded := host == "" && slices.ContainsFunc(servers, func(s config.Server) bool { return filepath.Base(s.Command) == "docker" })
	servers = slices.DeleteFunc(slices.Clone(servers), func(s config.Server) bool { return optionsOf(s) == nil || optionsOf(s).Host != host })
	d := New(Options{})
	defer d.Close()
	e, version, err := d.checked(ctx, host)
	if err != nil {
		noEngine(ctx, &f, host, servers, err)
		return f, false
	}
	f.Detail = fmt.Sprintf("engine %s at %s", version, strings.TrimPrefix(config.RedactURL(e.host), "unix://"))
	lacks, mend := e.wanting(ctx, servers)
	if path, err := exec.LookPath("docker"); err == nil && host == "" {
		f.Detail += ", client at " + path
	} else if clientNeeded {
		lacks = append(lacks, "docker is not found on PATH, and servers whose command is docker want it")
		mend = append(mend, "install the docker client")
	}
	if len(lacks) > 0 {
		f.Status = driver.FoundWarn
		f.Detail += "\n" + strings.Join(lacks, "\n")
		f.Mend = strings.Join(slices.Compact(mend), "; ")
	}
	return f, true
}

// checked returns the engine of a host, and which one it says that it is.
func (d *Driver) checked(ctx context.Context, host string) (e *engine, version string, err error) {
	if e, err = d.engine(host); err != nil {
		return nil, "", err
	}
	v, err := e.cli.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, "", err
	}
	if v.Version == "" {
		return nil, "", fmt.Errorf("what listens at %s is no Docker engine: it names no version", config.RedactURL(e.host))
	}
	version = v.Version
	if slices.ContainsFunc(v.Components, func(part system.ComponentVersion) bool { return strings.Contains(part.Name, "Podman") }) {
		version = "Podman " + version
	}
	if v.APIVersion != "" {
		version += ", API " + v.APIVersion + ","
	}
	return e, version, nil
}

// noEngine says what is there where no engine answers.
func noEngine(ctx context.Context, f *driver.Finding, host string, servers []config.Server, err error) {
	use := "; servers with docker want it"
	if len(servers) > 0 {
		var ids []string
		for _, s := range servers {
			ids = append(ids, s.ID)
		}
		use = "; these servers want it: " + strings.Join(ids, ", ")
	}
	if host != "" {
		text := strings.ReplaceAll(err.Error(), host, config.RedactURL(host))
		f.Status, f.Detail, f.Mend = driver.FoundMissing, "no engine answers: "+strings.Join(strings.Fields(text), " "), "start it, or mend docker.host"+use
		return
	}
	path, lookErr := exec.LookPath("docker")
	if lookErr != nil {
		f.Status, f.Detail, f.Mend = driver.FoundMissing, "not found on PATH, and no engine answers", "install Docker or Podman and start it"+use
		return
	}
	// The docker client knows contexts and ways to an engine that the driver does not.
	text, err := driver.Output(ctx, path, "version", "--format", "{{.Server.Version}}")
	text = strings.TrimSpace(text)
	switch {
	case err != nil:
		f.Status, f.Mend = driver.FoundWarn, "start the engine, or see whether you may use its socket"+use
		f.Detail = fmt.Sprintf("%s is there, but its engine does not answer: %s", path, strings.Join(strings.Fields(err.Error()), " "))
	case len(servers) > 0:
		f.Status, f.Mend = driver.FoundWarn, "set DOCKER_HOST, or docker.host of the servers, to the engine's address"+use
		f.Detail = fmt.Sprintf("engine %s answers in the docker client's context, where Tine does not look", text)
	default:
		f.Detail = fmt.Sprintf("engine %s in the docker client's context, client at %s; servers with docker need DOCKER_HOST set to its address", text, path)
	}
}

// wanting says what servers need of the engine that it does not have, and what to do
// about it.
func (e *engine) wanting(ctx context.Context, servers []config.Server) (lacks, mend []string) {
	if len(servers) == 0 {
		return nil, nil
	}
	answer, err := e.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return []string{"it does not say what it can do"}, []string{"see whether you may use it"}
	}
	info := answer.Info
	for _, bound := range []struct {
		what string
		has  bool
	}{{"CPU", info.CPUCfsQuota}, {"memory", info.MemoryLimit}, {"processes", info.PidsLimit}} {
		if !bound.has {
			lacks = append(lacks, "it can't bound "+bound.what+" of containers")
			mend = append(mend, "give the engine cgroups with all controllers")
		}
	}
	for _, s := range servers {
		if r := optionsOf(s).Runtime; r != "" && info.Runtimes != nil {
			if _, ok := info.Runtimes[r]; !ok {
				lacks = append(lacks, fmt.Sprintf("server %q: runtime %q is not among the engine's: %s", s.ID, r, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", ")))
				mend = append(mend, fmt.Sprintf("register runtime %s with the engine", r))
			}
		}
		if optionsOf(s).Pull != PullNever {
			continue
		}
		if _, err := e.cli.ImageInspect(ctx, optionsOf(s).Image); err != nil && gone(err) {
			lacks = append(lacks, fmt.Sprintf("server %q: image %q is not there, and docker.pull is never", s.ID, optionsOf(s).Image))
			mend = append(mend, "load or build the images that are not there")
		}
	}
	return lacks, mend
}
