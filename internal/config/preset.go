package config

import (
	"slices"
	"strings"
)

// preset is a well-known server and the ways to run it.
type preset struct {
	name    string
	builtin string // the one inside Tine; empty where there is none

	command string   // the original as a program
	launch  []string // what comes before the arguments of the server itself
	args    []string
	env     map[string]string

	// The original in a container.
	inside  []string // its command
	insideE map[string]string
	state   []string // of the container
	network string

	// forgets is whether the original remembers nothing that a fork could carry,
	// and shared whether all sessions may use one for that reason.
	forgets, shared bool
}

// presetState is the directory of state that a preset's program works on.
const presetState = "data"

// quietPython keeps FastMCP from looking for a newer version of itself at every
// start, and from printing a banner.
var quietPython = map[string]string{"FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_SHOW_SERVER_BANNER": "false"}

var presets = []preset{
	{
		name: "filesystem", builtin: builtinFiles,
		command: "npx", launch: []string{"-y", "@modelcontextprotocol/server-filesystem"}, args: []string{"${workspace}"},
		inside: []string{"/data"}, state: []string{"/data"},
	},
	{
		name:    "duckdb",
		command: "uvx", launch: []string{"mcp-server-motherduck@1.1.0"},
		args:   []string{"--db-path", "${state.data}/data.duckdb", "--read-write"},
		inside: []string{"--db-path", "/data/data.duckdb", "--read-write"}, state: []string{"/data"},
		env: quietPython, insideE: quietPython,
	},
	{
		name: "memory", builtin: builtinMemory,
		command: "npx", launch: []string{"-y", "@modelcontextprotocol/server-memory"},
		env:     map[string]string{"MEMORY_FILE_PATH": "${state.data}/memory.jsonl"},
		insideE: map[string]string{"MEMORY_FILE_PATH": "/data/memory.jsonl"}, state: []string{"/data"},
	},
	{
		name: "everything", builtin: "everything",
		command: "npx", launch: []string{"-y", "@modelcontextprotocol/server-everything"},
		forgets: true,
	},
	{
		name: "fetch", builtin: "fetch",
		command: "uvx", launch: []string{"mcp-server-fetch"},
		network: "bridge", forgets: true, shared: true,
	},
	{
		name: "time", builtin: "time",
		command: "uvx", launch: []string{"mcp-server-time"},
		forgets: true, shared: true,
	},
}

func presetNames() []string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].name
	}
	return names
}

// drivers are those that can run it, the default first.
func (p *preset) drivers() []string {
	if p.builtin != "" {
		return []string{"builtin", "process", "sandbox", "docker"}
	}
	return []string{"process", "sandbox", "docker"}
}

// preset lays an entry over what its preset says.
func (d *decoder) preset(o Object, s *Server) Object {
	if o.n.Get("preset") == nil || !o.OneOf("preset", &s.Preset, presetNames()...) {
		return o
	}
	at := o.n.Get("preset").Pos
	p := &presets[slices.Index(presetNames(), s.Preset)]
	driver, ok := d.presetDriver(o, p)
	if !ok {
		s.Preset = ""
		return o
	}
	below := MapNode()
	switch driver {
	case "builtin":
		below.Set("builtin", StringNode(p.builtin))
	case "process":
		p.program(o.n, below)
	case "sandbox":
		p.program(o.n, below)
		p.walls(below)
	case "docker":
		p.container(below)
	}
	if p.forgets && driver != "builtin" {
		scope := ScopeSession
		if p.shared {
			scope = ScopeShared
		}
		if n := o.n.Get("scope"); n != nil {
			scope = n.Text
		} else {
			below.Set("scope", StringNode(scope))
		}
		// Behind walls its memory is carried, unless it is on the network of the host.
		if scope == ScopeSession && (driver != "sandbox" || p.network != "") {
			below.Set("fork", StringNode(ForkFresh))
		}
		if p.shared && o.n.Get("state") == nil {
			below.Set("state", StringNode(noState))
		}
	}
	below.stand(at)
	d.resolve(below, o.Path)
	o.n = o.n.over(below)
	// Who says everything that needs it himself needs no directory for it.
	if (driver == "process" || driver == "sandbox") && o.n.Get("state") == nil && usesState(o.n) {
		state := ListNode(presetState)
		state.stand(at)
		o.n.Set("state", state)
	}
	return o
}

// presetDriver chooses how a preset is run: by driver, or by the other keys.
func (d *decoder) presetDriver(o Object, p *preset) (string, bool) {
	if other := o.Has("url", "builtin", "remote"); other != "" {
		d.fail(o.KeyPos(other), "%s: preset and %s exclude each other; keep one", o.Path, other)
		return "", false
	}
	if o.n.Get("command") != nil && o.n.Get("docker") != nil {
		d.fail(o.KeyPos("docker"), "%s: command and docker exclude each other; keep one", o.Path)
		return "", false
	}
	driver := p.drivers()[0]
	way := o.Has("docker", "command")
	if way != "" {
		driver = driverOf(way)
	}
	if way != "docker" && o.walled() {
		way, driver = "sandbox", "sandbox"
	}
	if n := o.n.Get("driver"); n != nil {
		if n.Missing {
			return "", false
		}
		if !n.Scalar() || !slices.Contains(p.drivers(), n.Text) {
			o.Wrong("driver", n, "got %s, but preset %s can be had with %s", n.Shown(), p.name, OrList(p.drivers()))
			return "", false
		}
		if way != "" && n.Text != driver && !(way == "command" && n.Text == "sandbox") {
			o.Wrong("driver", n, "%s does not go with %s; write driver: %s, or leave it out", n.Shown(), way, driver)
			return "", false
		}
		driver = n.Text
	}
	return driver, true
}

// program is the original as a program. The args of an entry are the server's
// own; with a command of the entry's there is nothing before them.
func (p *preset) program(entry, below *Node) {
	args := &Node{Shape: ShapeList}
	if entry.Get("command") == nil {
		below.Set("command", StringNode(p.command))
		args.Items = ListNode(p.launch...).Items
	}
	switch own := entry.Get("args"); {
	case own == nil:
		args.Items = append(args.Items, ListNode(p.args...).Items...)
	case own.Shape == ShapeList:
		// They are resolved already, and what is resolved twice is wrong.
		for _, item := range args.Items {
			item.Pos = own.Pos
		}
		own.Items = append(args.Items, own.Items...)
	}
	below.Set("args", args)
	below.setTexts("env", p.env)
}

// walled reports whether an entry asks for a sandbox by its key.
func (o Object) walled() bool {
	n := o.n.Get("sandbox")
	return n != nil && !n.Missing && !(n.Scalar() && strings.EqualFold(n.Text, "false"))
}

// walls are what a program of the preset needs that a sandbox keeps from it.
func (p *preset) walls(below *Node) {
	c := MapNode()
	if p.network != "" {
		// The domains that it will be asked for are not known.
		c.Set("network", StringNode("host"))
	}
	below.Set("sandbox", c)
}

func (p *preset) container(below *Node) {
	c := MapNode()
	if len(p.inside) > 0 {
		c.Set("command", ListNode(p.inside...))
	}
	if len(p.state) > 0 {
		c.Set("state", ListNode(p.state...))
	}
	if p.network != "" {
		c.Set("network", StringNode(p.network))
	}
	below.Set("docker", c)
	below.setTexts("env", p.insideE)
}

// setTexts sets a map of texts; an empty one is left out.
func (n *Node) setTexts(key string, m map[string]string) {
	n.setMap(key, m, func(_, v string) string { return v })
}

// stand gives everything below n a place.
func (n *Node) stand(at Pos) {
	n.Pos = at
	for _, item := range n.Items {
		item.stand(at)
	}
	for i := range n.Pairs {
		n.Pairs[i].KeyPos = at
		n.Pairs[i].Value.stand(at)
	}
}

// over is a map with the keys of another below its own. Maps of both are laid
// over each other; an image alone stands for docker's map, and true for what
// there is below of a sandbox.
func (n *Node) over(below *Node) *Node {
	out := *n
	out.Pairs = slices.Clone(n.Pairs)
	for _, p := range below.Pairs {
		own := out.Get(p.Key)
		switch {
		case own == nil:
			out.Pairs = append(out.Pairs, p)
		case own.Shape == ShapeMap && p.Value.Shape == ShapeMap:
			out.Set(p.Key, own.over(p.Value))
		default:
			if k := kindOf(p.Key); k != nil && k.Short != nil && k.Short(own) != nil {
				out.Set(p.Key, k.Short(own).over(p.Value))
			}
		}
	}
	return &out
}

func usesState(entry *Node) bool {
	found := false
	for _, key := range []string{"args", "env", "cwd"} {
		if n := entry.Get(key); n != nil {
			n.eachText("", func(n *Node, _ string) {
				found = found || slices.Contains(n.Kept, keptState+presetState) && strings.Contains(n.Text, "${")
			})
		}
	}
	return found
}
