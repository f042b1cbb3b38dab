package config

import (
	"fmt"
	"slices"
	"strings"
)

// localBackend translates a backend that runs in a container of this machine's
// engine. Docker's own defaults are kept, as the author of the file knows them.
func (d *decoder) localBackend(o Object, e *entry, g rewardKitGlobals, top *Node, scoping, kind string) {
	d.useless(o, remoteOnly, "goes with orchestration_mode: remote_http_api")
	c := MapNode()
	c.Pos = o.n.Pos
	move := func(from, to string) {
		if n := o.given(from); n != nil {
			c.Pairs = append(c.Pairs, Pair{Key: to, KeyPos: o.KeyPos(from), Value: n})
		}
	}
	move("docker_image", "image")
	c.Set("plain", &Node{Shape: ShapeBool, Pos: o.n.Pos, Text: "true"})
	transport := ContainerHTTP
	if n := o.given("mcp_transport"); n != nil {
		o.OneOf("mcp_transport", &transport, ContainerTransports...)
	}
	c.Set("transport", &Node{Shape: ShapeString, Pos: o.n.Pos, Text: transport})
	if transport == ContainerHTTP {
		move("container_port", "port")
	} else {
		d.useless(o, []string{"container_port"}, "goes with mcp_transport: http")
	}
	move("container_command", "command")
	d.volumes(o, c)
	args := d.runFlagsOf(o, g)
	if len(args.Items) > 0 {
		c.Set("run_args", args)
	}
	host, inside := o.given("template_data_path_host"), o.given("container_template_data_path")
	switch {
	case host != nil && inside == nil:
		d.fail(o.KeyPos("template_data_path_host"), "%s: container_template_data_path is missing; it says where in the container the template goes", o.Path)
	case host == nil && inside != nil:
		d.fail(o.KeyPos("container_template_data_path"), "%s: template_data_path_host is missing; it is the template that goes there", o.Path)
	case host != nil:
		c.Pairs = append(c.Pairs, Pair{Key: "template_path", KeyPos: o.KeyPos("container_template_data_path"), Value: inside})
		e.n.Pairs = append(e.n.Pairs, Pair{Key: "template", KeyPos: o.KeyPos("template_data_path_host"), Value: host})
		top.addRoot(host)
	}
	// A template is what the state begins with, and there the state is the
	// container: its template was committed into an image. Of a session's backend
	// without one the container is the state too, or no fork would have what it
	// wrote. What is shared is never forked, and what remembers nothing has none.
	readOnly := slices.ContainsFunc(args.Items, func(n *Node) bool { return n.Text == "--read-only" || n.Text == "--read-only=true" })
	if host != nil || scoping == "session" && !slices.Contains(stateless, kind) && !readOnly {
		state := ListNode("root")
		state.stand(o.n.Pos)
		c.Set("state", state)
	}
	e.n.Pairs = append([]Pair{{Key: "docker", KeyPos: o.n.Pos, Value: c}}, e.n.Pairs...)
}

// addRoot lets sessions name a template of the config by its path.
func (n *Node) addRoot(path *Node) {
	roots := n.Get("template_roots")
	if roots == nil {
		roots = &Node{Shape: ShapeList, Pos: path.Pos}
		n.Set("template_roots", roots)
	}
	if path.Shape == ShapeString && !slices.ContainsFunc(roots.Items, func(r *Node) bool { return r.Text == path.Text }) {
		roots.Items = append(roots.Items, path.clone())
	}
}

// volumes translates {host: {bind, mode}}, or host: path.
func (d *decoder) volumes(o Object, c *Node) {
	n := o.given("container_volumes")
	if n == nil {
		return
	}
	if n.Shape != ShapeMap {
		o.Wrong("container_volumes", n, "want a map of a path of the host to {bind, mode}, got %s", n.Shape)
		return
	}
	list := &Node{Shape: ShapeList, Pos: n.Pos}
	for _, p := range n.Pairs {
		at := join(o.Path, "container_volumes."+Clip(p.Key))
		v, ok := d.object(p.Value, at, nil, volumeKeys)
		if !ok {
			continue
		}
		bind := v.given("bind")
		if bind == nil {
			d.fail(p.KeyPos, "%s: bind is missing; it is the path in the container", at)
			continue
		}
		mode := "rw"
		if v.given("mode") != nil {
			v.OneOf("mode", &mode, "rw", "ro")
		}
		m := MapNode(Pair{Key: "source", KeyPos: p.KeyPos, Value: &Node{Shape: ShapeString, Pos: p.KeyPos, Text: p.Key}},
			Pair{Key: "target", KeyPos: bind.Pos, Value: bind})
		if mode == "ro" {
			m.Pairs = append(m.Pairs, Pair{Key: "read_only", KeyPos: bind.Pos, Value: &Node{Shape: ShapeBool, Pos: bind.Pos, Text: "true"}})
		}
		m.Pos = p.KeyPos
		list.Items = append(list.Items, m)
	}
	if len(list.Items) > 0 {
		c.Pairs = append(c.Pairs, Pair{Key: "binds", KeyPos: o.KeyPos("container_volumes"), Value: list})
	}
}

// runFlagsOf are the flags of all backends and after them those of this one, so
// that the latter win.
func (d *decoder) runFlagsOf(o Object, g rewardKitGlobals) *Node {
	args := &Node{Shape: ShapeList, Pos: o.n.Pos}
	for _, item := range g.options {
		args.Items = append(args.Items, item.clone())
	}
	n := o.given("docker_run_args")
	if n == nil {
		return args
	}
	args.Pos = n.Pos
	in := Object{d: d, n: MapNode(Pair{Key: "docker_run_args", Value: n}), Path: o.Path}
	in.split("docker_run_args")
	if n = in.n.Get("docker_run_args"); n.Shape != ShapeList {
		o.Wrong("docker_run_args", n, "want a list of flags of docker run, got %s", n.Shape)
		return args
	}
	args.Items = append(args.Items, n.Items...)
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
func (d *decoder) globalOptions(o Object) []*Node {
	n := o.given("global_docker_options")
	if n == nil {
		return nil
	}
	if n.Shape != ShapeMap {
		in := Object{d: d, n: MapNode(Pair{Key: "global_docker_options", Value: n})}
		in.split("global_docker_options")
		if n = in.n.Get("global_docker_options"); n.Shape != ShapeList {
			o.Wrong("global_docker_options", n, "want a map of flags of docker run to their values, got %s", n.Shape)
		}
		return n.Items
	}
	var flags []*Node
	for _, p := range n.Pairs {
		name := strings.ReplaceAll(p.Key, "_", "-")
		if to := optionNames[name]; to != "" {
			name = to
		}
		add := func(at Pos, value string) {
			flags = append(flags, &Node{Shape: ShapeString, Pos: at, Text: "--" + name + "=" + value})
		}
		switch v := p.Value; {
		case v.Shape == ShapeNull:
		case v.Scalar():
			add(v.Pos, v.Text)
		case v.Shape == ShapeList:
			for _, item := range v.Items {
				if !item.Scalar() || item.Shape == ShapeNull {
					d.fail(item.Pos, "global_docker_options.%s: want a list of strings, got %s in it", Clip(p.Key), item.Shape)
					continue
				}
				add(item.Pos, item.Text)
			}
		default:
			for _, q := range v.Pairs {
				switch {
				case name == "volume" && textOf(q.Value, "bind") != "":
					add(q.KeyPos, strings.TrimRight(q.Key+":"+textOf(q.Value, "bind")+":"+textOf(q.Value, "mode"), ":"))
				case name == "add-host" && q.Value.Scalar():
					add(q.KeyPos, q.Key+":"+q.Value.Text)
				case q.Value.Scalar() && q.Value.Shape != ShapeNull:
					add(q.KeyPos, q.Key+"="+q.Value.Text)
				default:
					d.fail(q.KeyPos, "%s: want a string, got %s", fmt.Sprintf("global_docker_options.%s.%s", Clip(p.Key), Clip(q.Key)), q.Value.Shape)
				}
			}
		}
	}
	return flags
}

// textOf is a scalar of a map as written, or nothing.
func textOf(n *Node, key string) string {
	if v := n.Get(key); v != nil && v.Scalar() && v.Shape != ShapeNull {
		return v.Text
	}
	return ""
}
