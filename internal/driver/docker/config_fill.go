package docker

import (
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// fillDocker sets what is open.
func fillDocker(s *config.Server, d *Config) {
	config.FillTransport(&d.Transport, d.Port, &d.Path)
	if !d.Plain && d.Memory == 0 {
		d.Memory = config.DefaultMemory
	}
	if !d.Plain && d.Pids == 0 {
		d.Pids = config.DefaultPids
	}
	if d.Root() {
		d.Writable = true
	}
	if len(d.State) > 0 && !d.Root() {
		config.SetDefault(&d.TemplatePath, d.State[0])
	}
	if len(d.State) > 0 && s.Hidden("docker.state.0") && d.TemplatePath == d.State[0] {
		s.Hide("docker.template_path")
	}
}

// templatePath checks that a template finds its place in the container.
func templatePath(o config.Object, s *config.Server, c *Config) {
	if scope := o.Get("scope"); c.Network == "host" && c.Port > 0 && (scope == nil || scope.Text != config.ScopeShared) {
		o.Fail(o.KeyPos("docker"), "%s.docker.network: on the network of the host the first session would take the port; name another network, or write scope: shared", o.Path)
	}
	given := o.Get("docker").Get("template_path")
	at := o.Path + ".docker"
	switch {
	case s.Template == "" && o.Get("template") != nil:
		return // reported already
	case s.Template == "" && given != nil && !o.TemplateRoots():
		o.Fail(given.Pos, "%s.template_path: says where a template goes, and there is none; add template, or template_roots at the top for those of sessions", at)
		return
	case s.Template == "" && given == nil:
		return
	case len(c.State) == 0 && o.Get("docker").Get("state") == nil:
		o.Fail(o.KeyPos("template"), "%s.template: is what the state begins with, and there is none; add docker.state: [PATH], or [%s] for the container itself", o.Path, RootState)
		return
	case given == nil && c.Root():
		o.Fail(o.KeyPos("template"), "%s.template: nothing says where it goes in the container; add docker.template_path", o.Path)
		return
	case given == nil || c.TemplatePath == "" || !path.IsAbs(c.TemplatePath):
		return
	}
	inState := c.Root()
	for _, dir := range c.State {
		inState = inState || config.Within(c.TemplatePath, dir)
	}
	if !inState {
		o.Fail(given.Pos, "%s.template_path: %s lies outside of what is state, so no fork would have it; add it to docker.state, or choose a path below one of it", at, given.Shown())
		return
	}
	for _, b := range c.Binds {
		if config.Within(c.TemplatePath, b.Target) {
			o.Fail(given.Pos, "%s.template_path: %s lies in what is bound, which belongs to the host; choose another, or remove the bind", at, given.Shown())
		}
	}
	for _, t := range c.Tmpfs {
		if dir, _, _ := strings.Cut(t, ":"); config.Within(c.TemplatePath, dir) {
			o.Fail(given.Pos, "%s.template_path: %s lies in a tmpfs, which begins empty; choose another, or remove that", at, given.Shown())
		}
	}
}

// dockerFork complains about a fork that carries more than a container has.
func dockerFork(o config.Object, s *config.Server, c *Config) bool {
	n := o.Get("fork")
	switch {
	case s.Fork == config.ForkMemory:
		o.Wrong("fork", n, "%s copies a running server, which driver docker can't; %s can; use files with docker.state, fresh, share or refuse", n.Shown(), config.OrList(config.Copiers()))
	case s.Fork == config.ForkFiles && len(c.State) == 0 && (o.Get("state") == nil || s.Stateless):
		o.Wrong("fork", n, "%s carries the files of a server, and this one has none that Tine knows of; name them with docker.state: [PATH], or [root] for the container itself", n.Shown())
	}
	return true
}

// opensBinds remembers what of this machine a container sees. The engine of another
// machine has paths of its own.
func opensBinds(c config.Object, to *Config) {
	if engineElsewhere(c, to.Host) {
		return
	}
	for i, b := range to.Binds {
		if filepath.IsAbs(b.Source) {
			at, where := c.Spot("binds", i)
			c.Opens(config.Visible{At: at, Where: where, Path: b.Source, Write: !b.ReadOnly})
		}
	}
}

// engineElsewhere reports whether an engine is on another machine.
func engineElsewhere(c config.Object, host string) bool {
	if host == "" {
		host, _ = c.Getenv("DOCKER_HOST")
	}
	u, err := url.Parse(host)
	return err == nil && !slices.Contains([]string{"", "unix", "npipe"}, u.Scheme) && !config.LoopbackHost(u.Hostname())
}
