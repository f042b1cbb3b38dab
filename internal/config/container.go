package config

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	dockerKeys = []string{
		"host", "image", "pull", "entrypoint", "command", "workdir", "user", "hostname",
		"transport", "port", "path", "reach", "state", "template_path", "binds", "tmpfs", "network", "runtime",
		"memory", "cpus", "pids", "shm_size", "cap_add", "labels", "plain", "writable", "init", "run_args",
	}
	bindKeys            = []string{"source", "target", "read_only"}
	containerTransports = []string{ContainerStdio, ContainerHTTP}
	reaches             = []string{ReachAddress, ReachPort}
	pulls               = []string{PullMissing, PullNever, PullAlways}
)

const (
	// minContainer is the least memory that an engine gives a container.
	minContainer     = 6 << 20
	defaultContainer = 2 << 30
	defaultPids      = 512
	mostPids         = 1 << 22
	// ownPrefix begins the labels and volumes that Tine makes and removes.
	ownPrefix = "tine"
)

var (
	oneWord     = regexp.MustCompile(`^[^\s\x00-\x1f-][^\s\x00-\x1f]*$`)
	capName     = regexp.MustCompile(`^(?i:[a-z]+(_[a-z]+)*)$`)
	engineHost  = regexp.MustCompile(`^(unix:///|npipe:////|tcp://[^/\s]|http://[^/\s]|https://[^/\s])`)
	volumeName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	ownedByTine = regexp.MustCompile(`(?i)^` + ownPrefix + `([._-]|$)`)
)

// docker reads a server in a container.
func (d *decoder) docker(o object, s *Server) {
	n := o.n.get("docker")
	if n == nil {
		return
	}
	s.Docker = &Docker{}
	if n.missing {
		return
	}
	if n.kind == kindString { // the image alone
		m := mapNode(pair{key: "image", keyPos: n.pos, value: n})
		m.pos = n.pos
		o.n.set("docker", m)
	}
	c, ok := o.child("docker", dockerKeys)
	if !ok {
		return
	}
	to := s.Docker
	d.image(o, c, s)
	for _, key := range []string{"entrypoint", "command", "run_args"} {
		c.split(key)
	}
	c.texts("entrypoint", &to.Entrypoint, "[/bin/server]")
	c.texts("command", &to.Command, "[--data, /data]")
	c.word("user", &to.User, "1000:1000")
	c.word("hostname", &to.Hostname, "server")
	c.word("runtime", &to.Runtime, "runsc")
	c.word("network", &to.Network, "bridge")
	c.inside("workdir", &to.Workdir, "/srv")
	switch given := c.text("host", &to.Host, "unix:///var/run/docker.sock"); {
	case given && strings.HasPrefix(to.Host, "ssh://"):
		c.wrong("host", c.n.get("host"), "an engine can't be reached over ssh; forward its socket (ssh -L) and write unix:///that/socket")
	case given && !engineHost.MatchString(to.Host):
		c.wrong("host", c.n.get("host"), "%s is not an engine's address; write it like unix:///var/run/docker.sock or tcp://engine.example.org:2376", c.n.get("host").quoted())
	}
	c.oneOf("transport", &to.Transport, containerTransports...)
	c.integer("port", &to.Port, 1, 65535)
	c.urlPath("path", &to.Path)
	c.oneOf("reach", &to.Reach, reaches...)
	c.oneOf("pull", &to.Pull, pulls...)
	c.texts("state", &to.State, "[/data]")
	c.inside("template_path", &to.TemplatePath, "/data")
	c.texts("tmpfs", &to.Tmpfs, "[/tmp]")
	c.texts("cap_add", &to.CapAdd, "[NET_BIND_SERVICE]")
	c.textMap("labels", &to.Labels, "{team: a}")
	d.binds(c, to)
	c.size("memory", &to.Memory, minContainer, mostBytes)
	c.number("cpus", &to.CPUs, 0.01, 1024)
	pids := 0
	c.integer("pids", &pids, 1, mostPids)
	to.Pids = int64(pids)
	c.size("shm_size", &to.ShmSize, 4<<10, mostBytes)
	c.boolean("plain", &to.Plain)
	writable := c.boolean("writable", &to.Writable)
	c.boolean("init", &to.Init)
	d.runArgs(c, s)
	if to.Plain && !writable && !to.ReadOnly {
		to.Writable = true
	}
	d.container(c, to)
	to.tidy()
}

func (d *decoder) image(o, c object, s *Server) {
	n := c.n.get("image")
	switch {
	case n == nil && s.Preset != "":
		d.fail(c.n.pos, "%s: image is missing, and preset %s brings none; name the image of the server, as in docker: {image: NAME}", c.path, s.Preset)
	case n == nil:
		d.fail(o.keyPos("docker"), "%s: image is missing; name the image of the server, as in docker: {image: NAME}", c.path)
	case c.text("image", &s.Docker.Image, "NAME") && !oneWord.MatchString(s.Docker.Image):
		c.wrong("image", n, "%s can't name an image; write NAME, NAME:TAG or NAME@DIGEST", n.shown())
	}
}

// word reads a text without spaces that is no flag.
func (o object) word(key string, dst *string, example string) {
	if o.text(key, dst, example) && !oneWord.MatchString(*dst) {
		o.wrong(key, o.n.get(key), "%s is not one word; write it like %s", o.n.get(key).shown(), example)
	}
}

// inside reads a path in a container.
func (o object) inside(key string, dst *string, example string) {
	if !o.text(key, dst, example) {
		return
	}
	if !path.IsAbs(*dst) {
		o.wrong(key, o.n.get(key), "%s is not a whole path in the container; write it like %s", o.n.get(key).shown(), example)
		return
	}
	*dst = path.Clean(*dst)
}

// container checks that what is said of a container goes together.
func (d *decoder) container(c object, to *Docker) {
	d.containerTransport(c, to)
	d.containerState(c, to)
	d.containerPaths(c, to)
	d.opensBinds(c, to)
	for _, it := range c.items("cap_add", false) {
		if !capName.MatchString(it.text) {
			d.fail(it.pos, "%s: %s is not a capability; write it like NET_BIND_SERVICE", it.path, it.shown)
		} else if it.index < len(to.CapAdd) {
			to.CapAdd[it.index] = strings.ToUpper(it.text)
		}
	}
	if n := c.n.get("labels"); n != nil {
		for _, p := range n.pairs {
			if p.key == "" || ownedByTine.MatchString(p.key) {
				d.fail(p.keyPos, "%s.labels: %q is none to choose, as those of Tine's own begin with %s; call it otherwise", c.path, clip(p.key), ownPrefix)
			}
		}
	}
	switch at := c.keyPos("writable"); {
	case to.Root() && c.n.get("writable") != nil && !to.Writable:
		d.fail(at, "%s.writable: is false, but the root is the state; remove one of them", c.path)
	case to.Root() && to.ReadOnly:
		d.fail(c.keyPos("run_args"), "%s.run_args: --read-only, but the root is the state; remove one of them", c.path)
	case to.ReadOnly && to.Writable:
		d.fail(at, "%s.writable: is true, but run_args has --read-only; remove one of them", c.path)
	}
}

func (d *decoder) containerTransport(c object, to *Docker) {
	transport := to.Transport
	if transport == "" {
		transport = ContainerStdio
		if to.Port > 0 {
			transport = ContainerHTTP
		}
	}
	unread := c.lacks("transport") || c.n.get("transport") != nil && to.Transport == ""
	portGiven := c.n.get("port") != nil
	switch {
	case unread:
	case transport == ContainerHTTP && to.Port == 0 && !portGiven:
		d.fail(c.keyPos("transport"), "%s: port is missing, which transport http needs; say where in the container the server listens", c.path)
	case transport == ContainerStdio:
		for _, key := range []string{"port", "path", "reach"} {
			if c.n.get(key) != nil {
				d.fail(c.keyPos(key), "%s.%s: goes with transport: http, but this is stdio; set a port, or remove it", c.path, key)
			}
		}
		if to.Port > 0 && !portGiven {
			d.fail(c.sayPos("port"), "%s.run_args: --publish goes with transport: http, but this is stdio; remove it", c.path)
		}
	case to.Network == "none" || strings.HasPrefix(to.Network, "container:"):
		name, _, _ := strings.Cut(to.Network, ":")
		d.fail(c.sayPos("network"), "%s.network: with %s nobody reaches a server that speaks http; name a network of the engine such as bridge, or leave it out", c.path, name)
	}
}

// urlPath reads where below its address a server speaks MCP.
func (o object) urlPath(key string, dst *string) {
	if o.text(key, dst, "/mcp") && *dst != "" && (!strings.HasPrefix(*dst, "/") || strings.ContainsAny(*dst, " \t?#")) {
		o.wrong(key, o.n.get(key), "%s is not the path of a URL; write it like /mcp", o.n.get(key).shown())
	}
}

// sayPos is where a key stands, or the flags that say the same.
func (o object) sayPos(key string) pos {
	if o.n.get(key) == nil && o.n.get("run_args") != nil {
		return o.n.get("run_args").pos
	}
	return o.keyPos(key)
}

func (d *decoder) containerState(c object, to *Docker) {
	if n := c.n.get("state"); n != nil && c.emptyList("state", "names nothing; write state: [/data], or state: [%s] for the container itself", RootState) {
		return
	}
	list := c.items("state", false)
	var before []string
	for _, it := range list {
		switch i := it.index; {
		case it.text == RootState && len(list) > 1:
			d.fail(it.pos, "%s: %s is the container as a whole, and nothing stands beside it; keep it alone, or remove it", it.path, RootState)
		case it.text == RootState:
		case !path.IsAbs(it.text):
			d.fail(it.pos, "%s: %s is not a whole path in the container; write it like /data, or %s for the container itself", it.path, it.shown, RootState)
		case path.Clean(it.text) == "/":
			d.fail(it.pos, "%s: %s is the container itself; write state: [%s]", it.path, it.shown, RootState)
		case i < len(to.State):
			to.State[i] = path.Clean(it.text)
			if slices.ContainsFunc(before, func(o string) bool { return within(to.State[i], o) || within(o, to.State[i]) }) {
				d.fail(it.pos, "%s: %s and another lie in each other; keep the one above", it.path, it.shown)
			}
			before = append(before, to.State[i])
		}
	}
}

// within reports whether a path in a container is another or lies below it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// containerPaths checks that nothing lies over something else.
func (d *decoder) containerPaths(c object, to *Docker) {
	var tmpfs []string
	for i, t := range to.Tmpfs {
		dir, _, _ := strings.Cut(t, ":")
		at, where := c.spot("tmpfs", i)
		switch {
		case !path.IsAbs(dir) || path.Clean(dir) == "/":
			d.fail(at, "%s: want a whole path in the container below its root, like /tmp", where)
			continue
		case slices.ContainsFunc(to.State, func(s string) bool { return within(path.Clean(dir), s) || within(s, path.Clean(dir)) }):
			d.fail(at, "%s: lies over what is state, and memory is forgotten; choose another path", where)
		}
		tmpfs = append(tmpfs, path.Clean(dir))
	}
	var targets []string
	for i, b := range to.Binds {
		at, where := c.spot("binds", i)
		if !path.IsAbs(b.Target) {
			continue // said already
		}
		target := path.Clean(b.Target)
		switch {
		case target == "/":
			d.fail(at, "%s: target can't be the root of the container; choose a path below it", where)
		case slices.Contains(targets, target) || slices.Contains(tmpfs, target):
			d.fail(at, "%s: something else has the same target already; keep one", where)
		case slices.ContainsFunc(to.State, func(s string) bool { return s != RootState && (within(target, s) || within(s, target)) }):
			d.fail(at, "%s: lies over what is state, and what is bound there would be shared by every fork; remove one of them", where)
		}
		targets = append(targets, target)
	}
}

// spot is where an entry of a list stands, which may be among the flags.
func (o object) spot(key string, i int) (pos, string) {
	if n := o.n.get(key); n != nil && i < len(n.items) {
		return n.items[i].pos, join(o.path, key) + "[" + itoa(i) + "]"
	}
	if n := o.n.get("run_args"); n != nil {
		return n.pos, join(o.path, "run_args")
	}
	return o.keyPos(key), join(o.path, key)
}
