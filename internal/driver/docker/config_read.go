package docker

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

var (
	reaches = []string{ReachAddress, ReachPort}
	pulls   = []string{PullMissing, PullNever, PullAlways}
)

// ownPrefix begins the labels and volumes that Tine makes and removes.
const ownPrefix = "tine"

var (
	capName     = regexp.MustCompile(`^(?i:[a-z]+(_[a-z]+)*)$`)
	engineHost  = regexp.MustCompile(`^(unix:///|npipe:////|(tcp|https?)://[^/\s]+:[0-9]+(/|$))`)
	volumeName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	ownedByTine = regexp.MustCompile(`(?i)^` + ownPrefix + `([._-]|$)`)
)

// readDocker reads a server in a container.
func readDocker(o config.Object, s *config.Server) *Config {
	n := o.Get("docker")
	if n == nil {
		return nil
	}
	to := &Config{}
	if n.Missing {
		return to
	}
	if n.Shape == config.ShapeString { // the image alone
		m := config.MapNode(config.Pair{Key: "image", KeyPos: n.Pos, Value: n})
		m.Pos = n.Pos
		o.Set("docker", m)
	}
	c, ok := o.Child("docker", keys.Names())
	if !ok {
		return to
	}
	image(o, c, s)
	keys.Read(c, to)
	takeRunArgs(c, s, to)
	if to.Plain && c.Get("writable") == nil && !to.ReadOnly {
		to.Writable = true
	}
	checkContainer(c, to)
	keys.Tidy(to)
	return to
}

// image complains about a container without one.
func image(o, c config.Object, s *config.Server) {
	switch {
	case c.Get("image") != nil:
	case s.Preset != "":
		c.Fail(c.Pos(), "%s: image is missing, and preset %s brings none; name the image of the server, as in docker: {image: NAME}", c.Path, s.Preset)
	default:
		c.Fail(o.KeyPos("docker"), "%s: image is missing; name the image of the server, as in docker: {image: NAME}", c.Path)
	}
}

// checkContainer checks that the settings of a container go together.
func checkContainer(c config.Object, to *Config) {
	containerTransport(c, to)
	containerState(c, to)
	containerPaths(c, to)
	opensBinds(c, to)
	for _, it := range c.Items("cap_add", false) {
		if !capName.MatchString(it.Text) {
			c.Fail(it.Pos, "%s: %s is not a capability; write it like NET_BIND_SERVICE", it.Path, it.Shown)
		} else if it.Index < len(to.CapAdd) {
			to.CapAdd[it.Index] = strings.ToUpper(it.Text)
		}
	}
	if n := c.Get("labels"); n != nil {
		for _, p := range n.Pairs {
			if p.Key == "" || ownedByTine.MatchString(p.Key) {
				c.Fail(p.KeyPos, "%s.labels: %q is none to choose, as those of Tine's own begin with %s; call it otherwise", c.Path, config.Clip(p.Key), ownPrefix)
			}
		}
	}
	switch at := c.KeyPos("writable"); {
	case to.Root() && c.Get("writable") != nil && !to.Writable:
		c.Fail(at, "%s.writable: is false, but the root is the state; remove one of them", c.Path)
	case to.Root() && to.ReadOnly:
		c.Fail(c.KeyPos("run_args"), "%s.run_args: --read-only, but the root is the state; remove one of them", c.Path)
	case to.ReadOnly && to.Writable:
		c.Fail(at, "%s.writable: is true, but run_args has --read-only; remove one of them", c.Path)
	}
}

func containerTransport(c config.Object, to *Config) {
	transport := to.Transport
	if transport == "" {
		transport = config.ContainerStdio
		if to.Port > 0 {
			transport = config.ContainerHTTP
		}
	}
	unread := c.Lacks("transport") || c.Get("transport") != nil && to.Transport == ""
	portGiven := c.Get("port") != nil
	switch {
	case unread, portGiven && to.Port == 0: // reported already
	case transport == config.ContainerHTTP && to.Port == 0 && !portGiven:
		c.Fail(c.KeyPos("transport"), "%s: port is missing, which transport http needs; say where in the container the server listens", c.Path)
	case transport == config.ContainerStdio:
		for _, key := range []string{"port", "path", "reach"} {
			if c.Get(key) != nil {
				c.Fail(c.KeyPos(key), "%s.%s: goes with transport: http, but this is stdio; set a port, or remove it", c.Path, key)
			}
		}
		if to.Port > 0 && !portGiven {
			c.Fail(c.SayPos("port"), "%s.run_args: --publish goes with transport: http, but this is stdio; remove it", c.Path)
		}
	case to.Network == "none" || strings.HasPrefix(to.Network, "container:"):
		name, _, _ := strings.Cut(to.Network, ":")
		c.Fail(c.SayPos("network"), "%s.network: with %s a server that speaks http can't be reached; name a network of the engine such as bridge, or leave it out", c.Path, name)
	}
}

func containerState(c config.Object, to *Config) {
	if n := c.Get("state"); n != nil && c.EmptyList("state", "names nothing; write state: [/data], or state: [%s] for the container itself", RootState) {
		return
	}
	list := c.Items("state", false)
	var before []string
	for _, it := range list {
		switch i := it.Index; {
		case it.Text == RootState && len(list) > 1:
			c.Fail(it.Pos, "%s: %s is the container as a whole, and nothing stands beside it; keep it alone, or remove it", it.Path, RootState)
		case it.Text == RootState:
		case !path.IsAbs(it.Text):
			c.Fail(it.Pos, "%s: %s is not a whole path in the container; write it like /data, or %s for the container itself", it.Path, it.Shown, RootState)
		case path.Clean(it.Text) == "/":
			c.Fail(it.Pos, "%s: %s is the container itself; write state: [%s]", it.Path, it.Shown, RootState)
		case i < len(to.State):
			to.State[i] = path.Clean(it.Text)
			if slices.ContainsFunc(before, func(o string) bool { return config.Within(to.State[i], o) || config.Within(o, to.State[i]) }) {
				c.Fail(it.Pos, "%s: %s and another lie in each other; keep the one above", it.Path, it.Shown)
			}
			before = append(before, to.State[i])
		}
	}
}

// containerPaths checks that nothing lies over something else.
func containerPaths(c config.Object, to *Config) {
	var tmpfs []string
	for i, t := range to.Tmpfs {
		dir, _, _ := strings.Cut(t, ":")
		at, where := c.Spot("tmpfs", i)
		switch {
		case !path.IsAbs(dir) || path.Clean(dir) == "/":
			c.Fail(at, "%s: want a whole path in the container below its root, like /tmp", where)
			continue
		case slices.ContainsFunc(to.State, func(s string) bool { return config.Within(path.Clean(dir), s) || config.Within(s, path.Clean(dir)) }):
			c.Fail(at, "%s: lies over what is state, and memory is forgotten; choose another path", where)
		}
		tmpfs = append(tmpfs, path.Clean(dir))
	}
	var targets []string
	for i, b := range to.Binds {
		at, where := c.Spot("binds", i)
		if !path.IsAbs(b.Target) {
			continue // reported already
		}
		target := path.Clean(b.Target)
		switch {
		case target == "/":
			c.Fail(at, "%s: target can't be the root of the container; choose a path below it", where)
		case slices.Contains(targets, target) || slices.Contains(tmpfs, target):
			c.Fail(at, "%s: something else has the same target already; keep one", where)
		case slices.ContainsFunc(to.State, func(s string) bool { return s != RootState && (config.Within(target, s) || config.Within(s, target)) }):
			c.Fail(at, "%s: lies over what is state, and what is bound there would be shared by every fork; remove one of them", where)
		}
		targets = append(targets, target)
	}
}
