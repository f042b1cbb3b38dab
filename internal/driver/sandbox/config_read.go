package sandbox

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/config/domains"

	"github.com/tine-mcp/tine/internal/config"
)

const (
	defaultSlots   = 2
	mostSlots      = 64
	leastOpenFiles = 16
	mostOpenFiles  = 1 << 20
	leastDisk      = 1 << 20
	mostUser       = 1<<32 - 2 // the next one means no user
)

var (
	hostName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	userNumbers = regexp.MustCompile(`^([0-9]{1,10})(?::([0-9]{1,10}))?$`)
)

// readSandbox reads the walls around a program: true, or what they are like. The
// driver of that name alone is as good as true.
func readSandbox(o config.Object, _ *config.Server) *Config {
	n, driver := o.Get("sandbox"), o.Get("driver")
	named := driver != nil && driver.Scalar() && driver.Text == "sandbox"
	to := newSandbox()
	switch {
	case n == nil && named && o.Get("command") != nil:
		return to
	case n == nil:
		return nil
	case n.Missing || n.Shape == config.ShapeNull:
		return to
	case n.Shape == config.ShapeBool || n.From != "" && n.Shape == config.ShapeString:
		on := true
		switch o.Boolean("sandbox", &on); {
		case on:
		case named:
			o.Wrong("sandbox", n, "is false, but driver is sandbox; remove one of them")
		default:
			return nil
		}
		return to
	case n.Shape != config.ShapeMap:
		o.Wrong("sandbox", n, "got %s, want true, false, or a map of %s", n.Shown(), strings.Join(keys.Names(), ", "))
		return to
	}
	c, _ := o.Child("sandbox", keys.Names())
	keys.Read(c, to)
	wallPaths(c, to)
	wallTransport(c, to)
	ownRoot(o, to)
	keys.Tidy(to)
	return to
}

func wallHostname(c config.Object, key string, dst *string) {
	if n := c.Get(key); !hostName.MatchString(*dst) {
		c.Wrong(key, n, "%s can't name a host; use up to 63 letters, digits, dots and dashes, a letter or digit first and last", n.Shown())
	}
}

// wallUser reads the program's user inside, by number: a sandbox has no list of names.
func wallUser(c config.Object, key string, dst *string) bool {
	n, ok := c.Lookup(key)
	if !ok {
		return false
	}
	text, ok := c.Written(key, n, "UID or UID:GID")
	if !ok {
		return false
	}
	m := userNumbers.FindStringSubmatch(text)
	if m == nil {
		c.Wrong(key, n, "%s is not UID or UID:GID, and users have no names inside; write it like 1000:1000", n.Shown())
		return false
	}
	ids := []string{m[1], m[2]}
	if m[2] == "" {
		ids[1] = m[1]
	}
	for i, id := range ids {
		v, err := strconv.ParseUint(id, 10, 64)
		switch {
		case err != nil || v > mostUser:
			c.Wrong(key, n, "%s is out of range; want numbers from 1 to %d", n.Shown(), mostUser)
			return false
		case v == 0:
			c.Wrong(key, n, "%s is root, which nothing in a sandbox is; choose another, like 1000:1000", n.Shown())
			return false
		}
		ids[i] = strconv.FormatUint(v, 10)
	}
	*dst = ids[0] + ":" + ids[1]
	return true
}

// wallNetwork is none, host, or the domains that may be reached.
var wallNetwork = config.Value[Config]{
	About: config.About{
		Type: "`none`, `host`, or a list of domains", Default: "`" + NetworkNone + "`",
		Schema: config.Schema{"anyOf": []config.Schema{{"enum": []string{NetworkNone, NetworkHost}}, {"type": "array", "items": config.Schema{"type": "string"}, "minItems": 1}, config.Placeholder}},
	},
	Read: readNetwork,
	Show: func(b Config, at config.Place) *config.Node {
		if len(b.Domains) > 0 {
			return at.List(b.Domains)
		}
		return config.StringNode(at.Text(b.Network))
	},
	Secrets: func(b Config, at config.Place, l config.SecretList) { config.Texts("").Secrets(b.Domains, at, l) },
}

func readNetwork(c config.Object, key string, to *Config) bool {
	n, ok := c.Lookup(key)
	switch {
	case !ok:
		return false
	case n.Shape == config.ShapeString && (n.Text == NetworkNone || n.Text == NetworkHost):
		to.Network = n.Text
		return true
	case n.Shape != config.ShapeList && n.Shape != config.ShapeNull:
		hint := ""
		if n.Shape == config.ShapeString && n.From == "" {
			if domains.Check(n.Text) == nil && strings.Contains(n.Text, ".") {
				hint = "; write network: [" + n.Text + "]"
			}
		}
		c.Wrong(key, n, "got %s, want none, host, or a list of domains%s", n.Shown(), hint)
		return false
	case c.EmptyList(key, "names nothing; write network: none, or the domains it may reach") || !c.Texts(key, &to.Domains, "[example.org]"):
		return false
	}
	for i, item := range n.Items {
		if item.Missing || len(to.Domains) != len(n.Items) {
			continue // reported already
		}
		domain := strings.ToLower(item.Text)
		err := domains.Check(domain)
		switch at := c.Path + ".network[" + strconv.Itoa(i) + "]"; {
		case err != nil && item.From != "": // what is wrong would repeat the value
			c.Fail(item.Pos, "%s: %s is nothing that can be allowed; have it be like example.org, *.example.org or example.org:8443", at, item.Shown())
		case err != nil:
			c.Fail(item.Pos, "%s: %v", at, err)
		case slices.Contains(to.Domains[:i], domain):
			c.Fail(item.Pos, "%s: %s stands twice; keep one", at, item.Shown())
		}
		to.Domains[i] = domain
	}
	return true
}

// wallTransport checks how a server in a sandbox speaks, as for a container.
func wallTransport(c config.Object, to *Config) {
	transport := to.Transport
	if transport == "" {
		transport = config.ContainerStdio
		if c.Get("port") != nil {
			transport = config.ContainerHTTP
		}
	}
	switch {
	case c.Get("transport") != nil && to.Transport == "": // reported already
	case transport == config.ContainerHTTP && c.Get("port") == nil:
		c.Fail(c.KeyPos("transport"), "%s: port is missing, which transport http needs; say where in the sandbox the server listens", c.Path)
	case transport == config.ContainerStdio:
		for _, key := range []string{"port", "path"} {
			if c.Get(key) != nil {
				c.Fail(c.KeyPos(key), "%s.%s: goes with transport: http, but this is stdio; set a port, or remove it", c.Path, key)
			}
		}
	}
}

// ownRoot checks what is looked for in a root of its own: nothing there is beside
// the config.
func ownRoot(o config.Object, to *Config) {
	if to.Root == "" || to.Root == RootAllow || to.Root == RootHost {
		return
	}
	if n := o.Get("command"); n != nil && n.Shape == config.ShapeString && strings.ContainsAny(n.Text, `/\`) && !path.IsAbs(n.Text) {
		o.Wrong("command", n, "%s is beside the config, and the program is looked for in sandbox.root; write its whole path there, or its name alone", n.Shown())
	}
	if n := o.Get("cwd"); n != nil && n.Shape == config.ShapeString && len(n.Kept) == 0 && !path.IsAbs(n.Text) {
		o.Wrong("cwd", n, "%s is beside the config, and the program runs in sandbox.root; write the whole path there", n.Shown())
	}
}
