package config

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/config/domains"
)

var sandboxKeys = []string{
	"root", "allow_read", "allow_write", "deny_read", "user", "hostname", "network",
	"transport", "port", "path", "memory", "cpus", "pids", "files", "disk", "slots",
}

const (
	defaultSlots   = 2
	mostSlots      = 64
	leastOpenFiles = 16
	mostOpenFiles  = 1 << 20
	leastDisk      = 1 << 20
	mostUser       = 1<<32 - 2 // the next one means nobody at all
)

var (
	hostName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	userNumbers = regexp.MustCompile(`^([0-9]{1,10})(?::([0-9]{1,10}))?$`)
)

// sandbox reads the walls around a program: true, or what they are like. The
// driver of that name alone is as good as true.
func (d *decoder) sandbox(o object, s *Server) {
	n, driver := o.n.get("sandbox"), o.n.get("driver")
	told := driver != nil && driver.scalar() && driver.text == "sandbox"
	if n == nil {
		if told && o.n.get("command") != nil {
			s.Sandbox = newSandbox()
		}
		return
	}
	s.Sandbox = newSandbox()
	switch {
	case n.missing || n.kind == kindNull:
		return
	case n.kind == kindBool || n.from != "" && n.kind == kindString:
		on := true
		switch o.boolean("sandbox", &on); {
		case on:
		case told:
			o.wrong("sandbox", n, "is false, but driver is sandbox; remove one of them")
		default:
			s.Sandbox = nil
		}
		return
	case n.kind != kindMap:
		o.wrong("sandbox", n, "got %s, want true, false, or a map of %s", n.shown(), strings.Join(sandboxKeys, ", "))
		return
	}
	c, _ := o.child("sandbox", sandboxKeys)
	to := s.Sandbox
	d.wallPaths(c, to)
	d.wallUser(c, to)
	d.wallNetwork(c, to)
	if c.text("hostname", &to.Hostname, "sandbox") && !hostName.MatchString(to.Hostname) {
		c.wrong("hostname", c.n.get("hostname"), "%s can't name a host; use up to 63 letters, digits, dots and dashes, a letter or digit first and last", c.n.get("hostname").shown())
	}
	c.oneOf("transport", &to.Transport, containerTransports...)
	c.integer("port", &to.Port, 1, 65535)
	c.urlPath("path", &to.Path)
	d.wallTransport(c, to)
	c.size("memory", &to.Memory, minContainer, mostBytes)
	c.number("cpus", &to.CPUs, 0.01, 1024)
	c.count("pids", &to.Pids, 1, mostPids)
	c.count("files", &to.Files, leastOpenFiles, mostOpenFiles)
	c.size("disk", &to.Disk, leastDisk, mostBytes)
	c.integer("slots", &to.Slots, 0, mostSlots)
	d.ownRoot(o, to)
	to.tidy()
}

// count is integer for what is kept in 64 bits.
func (o object) count(key string, dst *int64, least, most int) {
	n := 0
	if o.integer(key, &n, least, most) {
		*dst = int64(n)
	}
}

// wallUser reads who the program is inside, by number: a sandbox has no list of
// names.
func (d *decoder) wallUser(c object, to *Sandbox) {
	n, ok := c.lookup("user")
	if !ok {
		return
	}
	text, ok := c.written("user", n, "UID or UID:GID")
	if !ok {
		return
	}
	m := userNumbers.FindStringSubmatch(text)
	if m == nil {
		c.wrong("user", n, "%s is not UID or UID:GID, and inside nobody has a name; write it like 1000:1000", n.shown())
		return
	}
	ids := []string{m[1], m[2]}
	if m[2] == "" {
		ids[1] = m[1]
	}
	for i, id := range ids {
		v, err := strconv.ParseUint(id, 10, 64)
		switch {
		case err != nil || v > mostUser:
			c.wrong("user", n, "%s is out of range; want numbers from 1 to %d", n.shown(), mostUser)
			return
		case v == 0:
			c.wrong("user", n, "%s is root, which nothing in a sandbox is; choose another, like 1000:1000", n.shown())
			return
		}
		ids[i] = strconv.FormatUint(v, 10)
	}
	to.User = ids[0] + ":" + ids[1]
}

// wallNetwork reads none, host, or the domains that may be reached.
func (d *decoder) wallNetwork(c object, to *Sandbox) {
	n, ok := c.lookup("network")
	switch {
	case !ok:
		return
	case n.kind == kindString && (n.text == NetworkNone || n.text == NetworkHost):
		to.Network = n.text
		return
	case n.kind != kindList && n.kind != kindNull:
		hint := ""
		if n.kind == kindString && n.from == "" {
			if domains.Check(n.text) == nil && strings.Contains(n.text, ".") {
				hint = "; write network: [" + n.text + "]"
			}
		}
		c.wrong("network", n, "got %s, want none, host, or a list of domains%s", n.shown(), hint)
		return
	case c.emptyList("network", "names nothing; write network: none, or the domains it may reach") || !c.texts("network", &to.Domains, "[example.org]"):
		return
	}
	for i, item := range n.items {
		if item.missing || len(to.Domains) != len(n.items) {
			continue // said already
		}
		domain := strings.ToLower(item.text)
		err := domains.Check(domain)
		switch at := c.path + ".network[" + itoa(i) + "]"; {
		case err != nil && item.from != "": // what is wrong would repeat the value
			d.fail(item.pos, "%s: %s is nothing that can be allowed; have it be like example.org, *.example.org or example.org:8443", at, item.shown())
		case err != nil:
			d.fail(item.pos, "%s: %v", at, err)
		case slices.Contains(to.Domains[:i], domain):
			d.fail(item.pos, "%s: %s stands twice; keep one", at, item.shown())
		}
		to.Domains[i] = domain
	}
}

// wallTransport checks how a server in a sandbox speaks, as for a container.
func (d *decoder) wallTransport(c object, to *Sandbox) {
	transport := to.Transport
	if transport == "" {
		transport = ContainerStdio
		if c.n.get("port") != nil {
			transport = ContainerHTTP
		}
	}
	switch {
	case c.n.get("transport") != nil && to.Transport == "": // said already
	case transport == ContainerHTTP && c.n.get("port") == nil:
		d.fail(c.keyPos("transport"), "%s: port is missing, which transport http needs; say where in the sandbox the server listens", c.path)
	case transport == ContainerStdio:
		for _, key := range []string{"port", "path"} {
			if c.n.get(key) != nil {
				d.fail(c.keyPos(key), "%s.%s: goes with transport: http, but this is stdio; set a port, or remove it", c.path, key)
			}
		}
	}
}

// ownRoot checks what is looked for in a root of its own: nothing there is beside
// the config.
func (d *decoder) ownRoot(o object, to *Sandbox) {
	if to.Root == "" || to.Root == RootAllow || to.Root == RootHost {
		return
	}
	if n := o.n.get("command"); n != nil && n.kind == kindString && strings.ContainsAny(n.text, `/\`) && !path.IsAbs(n.text) {
		o.wrong("command", n, "%s is beside the config, and the program is looked for in sandbox.root; write its whole path there, or its name alone", n.shown())
	}
	if n := o.n.get("cwd"); n != nil && n.kind == kindString && len(n.kept) == 0 && !path.IsAbs(n.text) {
		o.wrong("cwd", n, "%s is beside the config, and the program runs in sandbox.root; write the whole path there", n.shown())
	}
}
