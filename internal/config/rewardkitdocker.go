package config

import (
	"fmt"
	"slices"
	"strings"
)

// localBackend translates a backend that runs in a container of this machine's
// engine. Docker's own defaults are kept, as whoever wrote the file knows them.
func (d *decoder) localBackend(o object, e *entry, g rewardKitGlobals, top *node, scoping, kind string) {
	d.useless(o, remoteOnly, "goes with orchestration_mode: remote_http_api")
	c := mapNode()
	c.pos = o.n.pos
	move := func(from, to string) {
		if n := o.given(from); n != nil {
			c.pairs = append(c.pairs, pair{key: to, keyPos: o.keyPos(from), value: n})
		}
	}
	move("docker_image", "image")
	c.set("plain", &node{kind: kindBool, pos: o.n.pos, text: "true"})
	transport := ContainerHTTP
	if n := o.given("mcp_transport"); n != nil {
		o.oneOf("mcp_transport", &transport, containerTransports...)
	}
	c.set("transport", &node{kind: kindString, pos: o.n.pos, text: transport})
	if transport == ContainerHTTP {
		move("container_port", "port")
	} else {
		d.useless(o, []string{"container_port"}, "goes with mcp_transport: http")
	}
	move("container_command", "command")
	d.volumes(o, c)
	args := d.runFlagsOf(o, g)
	if len(args.items) > 0 {
		c.set("run_args", args)
	}
	host, inside := o.given("template_data_path_host"), o.given("container_template_data_path")
	switch {
	case host != nil && inside == nil:
		d.fail(o.keyPos("template_data_path_host"), "%s: container_template_data_path is missing; it says where in the container the template goes", o.path)
	case host == nil && inside != nil:
		d.fail(o.keyPos("container_template_data_path"), "%s: template_data_path_host is missing; it is the template that goes there", o.path)
	case host != nil:
		c.pairs = append(c.pairs, pair{key: "template_path", keyPos: o.keyPos("container_template_data_path"), value: inside})
		e.n.pairs = append(e.n.pairs, pair{key: "template", keyPos: o.keyPos("template_data_path_host"), value: host})
		top.addRoot(host)
	}
	// A template is what the state begins with, and there the state is the
	// container: its template was committed into an image. Of a session's backend
	// without one the container is the state too, or no fork would have what it
	// wrote. What is shared is never forked, and what remembers nothing has none.
	readOnly := slices.ContainsFunc(args.items, func(n *node) bool { return n.text == "--read-only" || n.text == "--read-only=true" })
	if host != nil || scoping == "session" && !slices.Contains(stateless, kind) && !readOnly {
		state := listNode(RootState)
		state.stand(o.n.pos)
		c.set("state", state)
	}
	e.n.pairs = append([]pair{{key: "docker", keyPos: o.n.pos, value: c}}, e.n.pairs...)
}

// addRoot lets sessions name a template of the config by its path.
func (n *node) addRoot(path *node) {
	roots := n.get("template_roots")
	if roots == nil {
		roots = &node{kind: kindList, pos: path.pos}
		n.set("template_roots", roots)
	}
	if path.kind == kindString && !slices.ContainsFunc(roots.items, func(r *node) bool { return r.text == path.text }) {
		roots.items = append(roots.items, path.clone())
	}
}

// volumes translates {host: {bind, mode}}, or host: path.
func (d *decoder) volumes(o object, c *node) {
	n := o.given("container_volumes")
	if n == nil {
		return
	}
	if n.kind != kindMap {
		o.wrong("container_volumes", n, "want a map of a path of the host to {bind, mode}, got %s", n.kind)
		return
	}
	list := &node{kind: kindList, pos: n.pos}
	for _, p := range n.pairs {
		at := join(o.path, "container_volumes."+clip(p.key))
		v, ok := d.object(p.value, at, nil, volumeKeys)
		if !ok {
			continue
		}
		bind := v.given("bind")
		if bind == nil {
			d.fail(p.keyPos, "%s: bind is missing; it is the path in the container", at)
			continue
		}
		mode := "rw"
		if v.given("mode") != nil {
			v.oneOf("mode", &mode, "rw", "ro")
		}
		m := mapNode(pair{key: "source", keyPos: p.keyPos, value: &node{kind: kindString, pos: p.keyPos, text: p.key}},
			pair{key: "target", keyPos: bind.pos, value: bind})
		if mode == "ro" {
			m.pairs = append(m.pairs, pair{key: "read_only", keyPos: bind.pos, value: &node{kind: kindBool, pos: bind.pos, text: "true"}})
		}
		m.pos = p.keyPos
		list.items = append(list.items, m)
	}
	if len(list.items) > 0 {
		c.pairs = append(c.pairs, pair{key: "binds", keyPos: o.keyPos("container_volumes"), value: list})
	}
}

// runFlagsOf are the flags of all backends and after them those of this one, so
// that the latter win.
func (d *decoder) runFlagsOf(o object, g rewardKitGlobals) *node {
	args := &node{kind: kindList, pos: o.n.pos}
	for _, item := range g.options {
		args.items = append(args.items, item.clone())
	}
	n := o.given("docker_run_args")
	if n == nil {
		return args
	}
	args.pos = n.pos
	in := object{d: d, n: mapNode(pair{key: "docker_run_args", value: n}), path: o.path}
	in.split("docker_run_args")
	if n = in.n.get("docker_run_args"); n.kind != kindList {
		o.wrong("docker_run_args", n, "want a list of flags of docker run, got %s", n.kind)
		return args
	}
	args.items = append(args.items, n.items...)
	return args
}

// optionNames are the names that Docker's Python library has for flags.
var optionNames = map[string]string{
	"environment": "env", "mem-limit": "memory", "network-mode": "network", "working-dir": "workdir", "extra-hosts": "add-host",
	"volumes": "volume", "labels": "label", "devices": "device", "ulimits": "ulimit", "ports": "publish", "remove": "rm",
	"stdin-open": "interactive", "auto-remove": "rm",
}

// globalOptions turns the options of all backends into flags: a map of names to
// values, or flags as they are.
func (d *decoder) globalOptions(o object) []*node {
	n := o.given("global_docker_options")
	if n == nil {
		return nil
	}
	if n.kind != kindMap {
		in := object{d: d, n: mapNode(pair{key: "global_docker_options", value: n})}
		in.split("global_docker_options")
		if n = in.n.get("global_docker_options"); n.kind != kindList {
			o.wrong("global_docker_options", n, "want a map of flags of docker run to their values, got %s", n.kind)
		}
		return n.items
	}
	var flags []*node
	for _, p := range n.pairs {
		name := strings.ReplaceAll(p.key, "_", "-")
		if to := optionNames[name]; to != "" {
			name = to
		}
		add := func(at pos, value string) {
			flags = append(flags, &node{kind: kindString, pos: at, text: "--" + name + "=" + value})
		}
		switch v := p.value; {
		case v.kind == kindNull:
		case v.scalar():
			add(v.pos, v.text)
		case v.kind == kindList:
			for _, item := range v.items {
				if !item.scalar() || item.kind == kindNull {
					d.fail(item.pos, "global_docker_options.%s: want a list of strings, got %s in it", clip(p.key), item.kind)
					continue
				}
				add(item.pos, item.text)
			}
		default:
			for _, q := range v.pairs {
				switch {
				case name == "volume" && textOf(q.value, "bind") != "":
					add(q.keyPos, strings.TrimRight(q.key+":"+textOf(q.value, "bind")+":"+textOf(q.value, "mode"), ":"))
				case name == "add-host" && q.value.scalar():
					add(q.keyPos, q.key+":"+q.value.text)
				case q.value.scalar() && q.value.kind != kindNull:
					add(q.keyPos, q.key+"="+q.value.text)
				default:
					d.fail(q.keyPos, "%s: want a string, got %s", fmt.Sprintf("global_docker_options.%s.%s", clip(p.key), clip(q.key)), q.value.kind)
				}
			}
		}
	}
	return flags
}

// textOf is a scalar of a map as written, or nothing.
func textOf(n *node, key string) string {
	if v := n.get(key); v != nil && v.scalar() && v.kind != kindNull {
		return v.text
	}
	return ""
}
