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
func (d *decoder) preset(o object, s *Server) object {
	if o.n.get("preset") == nil || !o.oneOf("preset", &s.Preset, presetNames()...) {
		return o
	}
	at := o.n.get("preset").pos
	p := &presets[slices.Index(presetNames(), s.Preset)]
	driver, ok := d.presetDriver(o, p)
	if !ok {
		s.Preset = ""
		return o
	}
	below := mapNode()
	switch driver {
	case "builtin":
		below.set("builtin", stringNode(p.builtin))
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
		if n := o.n.get("scope"); n != nil {
			scope = n.text
		} else {
			below.set("scope", stringNode(scope))
		}
		// Behind walls its memory is carried, unless it is on the network of the host.
		if scope == ScopeSession && (driver != "sandbox" || p.network != "") {
			below.set("fork", stringNode(ForkFresh))
		}
		if p.shared && o.n.get("state") == nil {
			below.set("state", stringNode(noState))
		}
	}
	below.stand(at)
	d.resolve(below, o.path)
	o.n = o.n.over(below)
	// Who says everything that needs it himself needs no directory for it.
	if (driver == "process" || driver == "sandbox") && o.n.get("state") == nil && usesState(o.n) {
		state := listNode(presetState)
		state.stand(at)
		o.n.set("state", state)
	}
	return o
}

// presetDriver chooses how a preset is run: as told, or by what else is said.
func (d *decoder) presetDriver(o object, p *preset) (string, bool) {
	if other := o.has("url", "builtin", "remote"); other != "" {
		d.fail(o.keyPos(other), "%s: preset and %s exclude each other; keep one", o.path, other)
		return "", false
	}
	if o.n.get("command") != nil && o.n.get("docker") != nil {
		d.fail(o.keyPos("docker"), "%s: command and docker exclude each other; keep one", o.path)
		return "", false
	}
	driver := p.drivers()[0]
	way := o.has("docker", "command")
	if way != "" {
		driver = driverOf(way)
	}
	if way != "docker" && o.walled() {
		way, driver = "sandbox", "sandbox"
	}
	if n := o.n.get("driver"); n != nil {
		if n.missing {
			return "", false
		}
		if !n.scalar() || !slices.Contains(p.drivers(), n.text) {
			o.wrong("driver", n, "got %s, but preset %s can be had with %s", n.shown(), p.name, orList(p.drivers()))
			return "", false
		}
		if way != "" && n.text != driver && !(way == "command" && n.text == "sandbox") {
			o.wrong("driver", n, "%s does not go with %s; write driver: %s, or leave it out", n.shown(), way, driver)
			return "", false
		}
		driver = n.text
	}
	return driver, true
}

// program is the original as a program. The args of an entry are the server's
// own; with a command of the entry's there is nothing before them.
func (p *preset) program(entry, below *node) {
	args := &node{kind: kindList}
	if entry.get("command") == nil {
		below.set("command", stringNode(p.command))
		args.items = listNode(p.launch...).items
	}
	switch own := entry.get("args"); {
	case own == nil:
		args.items = append(args.items, listNode(p.args...).items...)
	case own.kind == kindList:
		// They are resolved already, and what is resolved twice is wrong.
		for _, item := range args.items {
			item.pos = own.pos
		}
		own.items = append(args.items, own.items...)
	}
	below.set("args", args)
	below.setTexts("env", p.env)
}

// walled reports whether an entry asks for a sandbox by its key.
func (o object) walled() bool {
	n := o.n.get("sandbox")
	return n != nil && !n.missing && !(n.scalar() && strings.EqualFold(n.text, "false"))
}

// walls are what a program of the preset needs that a sandbox keeps from it.
func (p *preset) walls(below *node) {
	c := mapNode()
	if p.network != "" {
		// Which domains it will be asked for nobody knows.
		c.set("network", stringNode(NetworkHost))
	}
	below.set("sandbox", c)
}

func (p *preset) container(below *node) {
	c := mapNode()
	if len(p.inside) > 0 {
		c.set("command", listNode(p.inside...))
	}
	if len(p.state) > 0 {
		c.set("state", listNode(p.state...))
	}
	if p.network != "" {
		c.set("network", stringNode(p.network))
	}
	below.set("docker", c)
	below.setTexts("env", p.insideE)
}

// setTexts sets a map of texts; an empty one is left out.
func (n *node) setTexts(key string, m map[string]string) {
	n.setMap(key, m, func(_, v string) string { return v })
}

// stand gives everything below n a place.
func (n *node) stand(at pos) {
	n.pos = at
	for _, item := range n.items {
		item.stand(at)
	}
	for i := range n.pairs {
		n.pairs[i].keyPos = at
		n.pairs[i].value.stand(at)
	}
}

// over is a map with the keys of another below its own. Maps of both are laid
// over each other; an image alone stands for docker's map, and true for what
// there is below of a sandbox.
func (n *node) over(below *node) *node {
	out := *n
	out.pairs = slices.Clone(n.pairs)
	for _, p := range below.pairs {
		own := out.get(p.key)
		switch {
		case own == nil:
			out.pairs = append(out.pairs, p)
		case own.kind == kindMap && p.value.kind == kindMap:
			out.set(p.key, own.over(p.value))
		case p.key == "docker" && own.kind == kindString && !own.missing:
			image := mapNode(pair{key: "image", keyPos: own.pos, value: own})
			image.pos = own.pos
			out.set(p.key, image.over(p.value))
		case p.key == "sandbox" && (own.kind == kindNull || own.scalar() && strings.EqualFold(own.text, "true")):
			out.set(p.key, p.value)
		}
	}
	return &out
}

func usesState(entry *node) bool {
	found := false
	for _, key := range []string{"args", "env", "cwd"} {
		if n := entry.get(key); n != nil {
			n.eachText("", func(n *node, _ string) {
				found = found || slices.Contains(n.kept, keptState+presetState) && strings.Contains(n.text, "${")
			})
		}
	}
	return found
}
