package docker

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// What a container gets where its config does not say, unless it is plain.
const (
	defaultMemory = 2 << 30
	defaultPids   = 512
)

// recipe is a container that is to be made.
type recipe struct {
	spec    driver.Spec
	docker  *Config
	config  container.Config
	host    container.HostConfig
	http    bool
	path    string
	reach   string // of http
	network string // that it is reached by
	ours    bool
	podman  bool
}

// plan works out what a container is like.
func (e *engine) plan(spec driver.Spec, f facts) (*recipe, error) {
	c := options(spec)
	r := &recipe{spec: spec, docker: c, podman: f.podman}
	r.http = transport(spec) == config.ContainerHTTP
	r.config = container.Config{
		Hostname: c.Hostname, User: c.User, WorkingDir: c.Workdir,
		Entrypoint: c.Entrypoint, Cmd: c.Command, Env: environment(spec.Env),
		OpenStdin: !r.http, AttachStdin: !r.http, AttachStdout: true, AttachStderr: true,
	}
	r.host = container.HostConfig{
		LogConfig:  container.LogConfig{Type: "none"},
		Privileged: c.Privileged, CapAdd: c.CapAdd, CapDrop: c.CapDrop,
		SecurityOpt: slices.Clone(c.SecurityOpt), ExtraHosts: c.ExtraHosts,
		ShmSize: c.ShmSize, Runtime: c.Runtime,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources:     container.Resources{Memory: c.Memory, NanoCPUs: int64(c.CPUs * 1e9)},
		Tmpfs:         make(map[string]string),
	}
	if c.Init {
		yes := true
		r.host.Init = &yes
	}
	if c.Pids != 0 {
		r.host.PidsLimit = &c.Pids
	}
	for _, p := range c.Tmpfs {
		at, options, _ := strings.Cut(p, ":")
		r.host.Tmpfs[at] = options
	}
	r.host.ReadonlyRootfs = c.ReadOnly
	if !c.Plain {
		r.confine()
	}
	for _, step := range []func() error{func() error { return r.extras(f) }, r.mounts, func() error { return r.networks(e, f) }} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func environment(env map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// confine takes away what a server does not need.
func (r *recipe) confine() {
	c, h := r.docker, &r.host
	if h.Memory == 0 {
		h.Memory = defaultMemory
	}
	h.MemorySwap = h.Memory
	if h.PidsLimit == nil {
		pids := int64(defaultPids)
		h.PidsLimit = &pids
	}
	if !c.Privileged {
		h.CapDrop = []string{"ALL"}
		if !slices.ContainsFunc(h.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "no-new-privileges") }) {
			h.SecurityOpt = append(h.SecurityOpt, "no-new-privileges")
		}
	}
	if !c.Root() && !c.Writable {
		h.ReadonlyRootfs = true
		if _, given := h.Tmpfs["/tmp"]; !given && !r.taken("/tmp") {
			h.Tmpfs["/tmp"] = "rw,nosuid,nodev,mode=1777"
		}
	}
}

// taken reports whether something of the config is at a path already.
func (r *recipe) taken(at string) bool {
	return slices.ContainsFunc(r.docker.State, func(p string) bool { return path.Clean(p) == at }) ||
		slices.ContainsFunc(r.docker.Binds, func(b Bind) bool { return path.Clean(b.Target) == at })
}

// extras are the things that only flags of docker run give.
func (r *recipe) extras(f facts) error {
	for _, text := range r.docker.Ulimits {
		u, err := units.ParseUlimit(text)
		if err != nil {
			return fmt.Errorf("the limit %q: %w", text, err)
		}
		r.host.Ulimits = append(r.host.Ulimits, u)
	}
	for _, u := range f.ceilings {
		if !slices.ContainsFunc(r.host.Ulimits, func(o *container.Ulimit) bool { return o.Name == u.Name }) {
			r.host.Ulimits = append(r.host.Ulimits, u)
		}
	}
	for _, text := range r.docker.DNS {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("the name server %q: %w", text, err)
		}
		r.host.DNS = append(r.host.DNS, a)
	}
	for _, text := range r.docker.Devices {
		parts := strings.Split(text, ":")
		m := container.DeviceMapping{PathOnHost: parts[0], PathInContainer: parts[0], CgroupPermissions: "rwm"}
		if len(parts) > 1 && parts[1] != "" {
			m.PathInContainer = parts[1]
		}
		if len(parts) > 2 {
			m.CgroupPermissions = parts[2]
		}
		r.host.Devices = append(r.host.Devices, m)
	}
	return nil
}

// mounts are the paths of the host. A source that begins with a slash, or a drive,
// is one; else it is a volume of the engine.
func (r *recipe) mounts() error {
	for _, b := range r.docker.Binds {
		m := mount.Mount{Type: mount.TypeVolume, Source: b.Source, Target: b.Target, ReadOnly: b.ReadOnly}
		if strings.Contains(b.Source, "${workspace}") {
			if r.spec.Workspace == nil {
				return errors.New("it sees no workspace; set workspace: true")
			}
			m.Source = strings.ReplaceAll(b.Source, "${workspace}", r.spec.Workspace.Dir())
		}
		if strings.HasPrefix(m.Source, "/") || strings.Contains(m.Source, `:\`) || strings.Contains(m.Source, ":/") {
			m.Type = mount.TypeBind
		}
		r.host.Mounts = append(r.host.Mounts, m)
	}
	return nil
}

// networks says how the container is reached, and what it reaches.
func (r *recipe) networks(e *engine, f facts) error {
	c := r.docker
	if !r.http {
		switch {
		case c.Network != "":
			r.host.NetworkMode = container.NetworkMode(c.Network)
		case !c.Plain:
			r.host.NetworkMode = "none"
		}
		return nil
	}
	if c.Port <= 0 || c.Port > 65535 {
		return errors.New("it speaks HTTP and no port is given; set docker.port")
	}
	if c.Network == "none" {
		return errors.New("it speaks HTTP and has no network; remove docker.network, or set docker.transport to stdio")
	}
	if !strings.HasPrefix(e.host, "unix://") && !strings.HasPrefix(e.host, "npipe://") {
		return fmt.Errorf("it speaks HTTP, and the engine %s is on another machine, whose containers can't be reached from here; set docker.transport to stdio", e.host)
	}
	r.path = c.Path
	if r.path == "" {
		r.path = "/mcp"
	}
	if !strings.HasPrefix(r.path, "/") {
		r.path = "/" + r.path
	}
	if r.reach = c.Reach; r.reach == "" {
		r.reach = ReachAddress
		if !e.local() || f.rootless || f.desktop {
			r.reach = ReachPort
		}
	}
	switch {
	case c.Network != "":
		r.network = c.Network
	case c.Plain && f.podman:
		r.network = "podman"
	case c.Plain:
		r.network = "bridge"
	default:
		r.network, r.ours = e.d.networkName(r.reach), true
	}
	r.host.NetworkMode = container.NetworkMode(r.network)
	if r.reach == ReachPort && r.network != "host" {
		port, _ := network.PortFrom(uint16(c.Port), network.TCP)
		r.config.ExposedPorts = network.PortSet{port: {}}
		r.host.PortBindings = network.PortMap{port: {{HostIP: netip.MustParseAddr("127.0.0.1")}}}
	}
	return nil
}

// options are what the engine gets, with the volumes of the state.
func (r *recipe) options(image string, state *holding) client.ContainerCreateOptions {
	c, h := r.config, r.host
	c.Image = image
	if state != nil && r.podman {
		h.Binds = state.binds()
	} else if state != nil {
		h.Mounts = append(slices.Clone(h.Mounts), state.mounts()...)
	}
	return client.ContainerCreateOptions{Config: &c, HostConfig: &h}
}

// binds are mounts in the older way, the only one with which Podman can leave an empty
// volume alone.
func (s *holding) binds() []string {
	var all []string
	for _, p := range s.Volumes {
		bind := p.Volume + ":" + p.Path
		if !p.Fresh {
			bind += ":nocopy"
		}
		all = append(all, bind)
	}
	return all
}

// mounts are the volumes of a state. What is not fresh stays as it is, also when
// it is empty: the engine would fill it from the image.
func (s *holding) mounts() []mount.Mount {
	var all []mount.Mount
	for _, p := range s.Volumes {
		m := mount.Mount{Type: mount.TypeVolume, Source: p.Volume, Target: p.Path}
		if !p.Fresh {
			m.VolumeOptions = &mount.VolumeOptions{NoCopy: true}
		}
		all = append(all, m)
	}
	return all
}

// options are those of a spec; nil where it is of another driver.
func options(spec driver.Spec) *Config { return driver.Options[Config](spec) }

// optionsOf are those of an entry of the config.
func optionsOf(s config.Server) *Config {
	c, _ := s.Options.(*Config)
	return c
}
