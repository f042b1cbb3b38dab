package config

import (
	"fmt"
	"slices"
	"strings"
)

// A RewardKit config is read as the tine.yaml that means the same: each backend
// becomes an entry, in a container or run by an orchestrator, and the server
// rollout has the tools that its clients call. Import writes that tine.yaml.

var (
	rewardKitKeys = []string{"log_level", "global_docker_options", "global_remote_api_defaults", "global_remote_apis", "backends"}
	backendKeys   = []string{
		"backend_name_ref", "backend_type", "orchestration_mode", "instance_scoping", "mcp_transport",
		"docker_image", "container_port", "container_command", "container_volumes",
		"template_data_path_host", "container_template_data_path", "docker_run_args", "startup_check_mcp_tool",
		"remote_api_config_ref", "remote_api_config_inline", "remote_resource_type_identifier",
	}
	localKeys     = backendKeys[5:12]
	remoteOnly    = backendKeys[13:]
	volumeKeys    = []string{"bind", "mode"}
	backendTypes  = []string{"filesystem", "duckdb", "memory", "everything", "fetch", "time"}
	orchestration = []string{"local_docker", "remote_http_api"}
	scopings      = []string{"session", "shared_global"}
	// stateless are the types that remember nothing.
	stateless = []string{"fetch", "time"}
)

// rewardKitFile is what a RewardKit config comes to.
type rewardKitFile struct {
	top     *Node // keys above servers
	entries []entry
	control string // id of the server with the tools
}

// rewardKit reads such a file as it is.
func (d *decoder) rewardKit(root *Node, c *Config) {
	f := d.rewardKitFile(root)
	top, ok := d.object(f.top, "", c.hidden, topTable.Names())
	if !ok {
		return
	}
	topTable.Read(top, c, "log", "workspace", "template_roots")
	c.DefaultView = f.control
	for _, e := range f.entries {
		before := len(d.problems)
		c.Servers = append(c.Servers, d.server(e.id, e.n, e.pos, e.at))
		for i := range d.problems[before:] {
			d.problems[before+i].Message = rewardKitWords(d.problems[before+i].Message)
		}
	}
}

// rewardKitWords has a message speak of the keys that are in the file.
func rewardKitWords(msg string) string {
	at, rest, ok := strings.Cut(msg, ": ")
	if !ok {
		return msg
	}
	for _, w := range []struct{ ours, theirs string }{
		{".docker.run_args", ".docker_run_args"}, {".docker.binds", ".container_volumes"}, {".docker.command", ".container_command"},
		{".docker.image", ".docker_image"}, {".docker.port", ".container_port"}, {".docker.template_path", ".container_template_data_path"},
		{".docker", ""}, {".template", ".template_data_path_host"}, {".startup.tool", ".startup_check_mcp_tool.tool_name"},
		{".startup", ".startup_check_mcp_tool"}, {".remote.url", ": base_url of the remote API"}, {".remote.resource", ".remote_resource_type_identifier"},
		{".remote.create", ": create_instance_endpoint"}, {".remote.delete", ": delete_instance_endpoint_template"},
		{".remote.call", ": call_tool_endpoint_template"}, {".remote", ""},
	} {
		if strings.Contains(at, w.ours) {
			at = strings.Replace(at, w.ours, w.theirs, 1)
			break
		}
	}
	for ours, theirs := range map[string]string{
		"port is missing, which transport http needs":                                 "container_port is missing, which mcp_transport http needs",
		"image is missing; name the image of the server, as in docker: {image: NAME}": "docker_image is missing; name the image of the server",
		"the image goes to docker.image and its command to docker.command":            "the image goes to docker_image and its command to container_command",
	} {
		rest = strings.Replace(rest, ours, theirs, 1)
	}
	return at + ": " + rest
}

// rewardKitFile translates the file, and says what is wrong with it.
func (d *decoder) rewardKitFile(root *Node) rewardKitFile {
	f := rewardKitFile{top: MapNode(), control: builtinRollout}
	o, ok := d.object(root, "", nil, rewardKitKeys)
	if !ok {
		return f
	}
	if n := o.given("log_level"); n != nil {
		if level := rewardKitLevel(n.Text); level != "" && n.Shape == ShapeString {
			f.top.Set("log", MapNode(Pair{Key: "level", KeyPos: n.Pos, Value: &Node{Shape: ShapeString, Pos: n.Pos, Text: level}}))
		} else {
			o.Wrong("log_level", n, "got %s, want DEBUG, INFO, WARNING, ERROR or CRITICAL", n.Shown())
		}
	}
	g := rewardKitGlobals{options: d.globalOptions(o), apis: o.given("global_remote_apis"), defaults: o.given("global_remote_api_defaults")}
	d.checkAPIs(o, &g)
	seen := map[string]bool{}
	for i, b := range root.Get("backends").Items {
		if e, ok := d.backend(b, fmt.Sprintf("backends[%d]", i), g, f.top); ok {
			if seen[e.id] {
				d.fail(e.pos, "%s.backend_name_ref: %q stands twice; give each backend its own", e.at, Clip(e.id))
				continue
			}
			seen[e.id] = true
			f.entries = append(f.entries, e)
		}
	}
	// Its tools are unprefixed, so its id is free to choose.
	for seen[f.control] {
		f.control += "-tools"
	}
	control := MapNode(Pair{Key: "builtin", Value: StringNode(builtinRollout)}, Pair{Key: "merged", Value: BoolNode(true)})
	control.stand(root.Get("backends").Pos)
	f.entries = append(f.entries, entry{name: f.control, id: f.control, at: "rollout", pos: control.Pos, n: control})
	f.top.Set("default_view", StringNode(f.control))
	// Where the backends of RewardKit have their files.
	space := MapNode(Pair{Key: "path", Value: StringNode("/data")})
	space.inline = true
	f.top.Set("workspace", space)
	return f
}

// given is a key's value; nil where it is null, which is how others write that
// there is none.
func (o Object) given(key string) *Node {
	n := o.n.Get(key)
	if n == nil || n.Shape == ShapeNull {
		return nil
	}
	return n
}

func rewardKitLevel(s string) string {
	switch strings.ToLower(s) {
	case "debug", "trace":
		return "debug"
	case "info":
		return "info"
	case "warn", "warning":
		return "warn"
	case "error", "critical", "fatal":
		return "error"
	}
	return ""
}

// backend translates one backend.
func (d *decoder) backend(b *Node, at string, g rewardKitGlobals, top *Node) (entry, bool) {
	e := entry{at: at, pos: b.Pos, n: MapNode()}
	e.n.Pos = b.Pos
	if b.Shape != ShapeMap {
		d.fail(b.Pos, "%s: want a map of a backend, got %s", at, b.Shape)
		return e, false
	}
	o, _ := d.object(b, at, nil, backendKeys)
	before := len(d.problems)
	kind, mode, scoping := "", "", "session"
	for _, w := range []struct {
		key  string
		dst  *string
		want []string
	}{{"backend_type", &kind, backendTypes}, {"orchestration_mode", &mode, orchestration}, {"instance_scoping", &scoping, scopings}} {
		if o.given(w.key) != nil {
			o.OneOf(w.key, w.dst, w.want...)
		} else if w.key != "instance_scoping" {
			d.fail(b.Pos, "%s: %s is missing; it is %s", at, w.key, OrList(w.want))
		}
	}
	switch n := o.given("backend_name_ref"); {
	case n == nil:
		d.fail(b.Pos, "%s: backend_name_ref is missing", at)
	case o.Text("backend_name_ref", &e.id, "fs"):
		if err := checkID(e.id, d.separator); err != nil {
			d.fail(n.Pos, "%s.backend_name_ref: %v; clients call it by this name, so change it there as well", at, err)
		}
		e.name = e.id
	}
	if len(d.problems) > before {
		return e, false
	}
	if mode == orchestration[0] {
		d.localBackend(o, &e, g, top, scoping, kind)
	} else {
		d.remoteBackend(o, &e, g)
	}
	scope := ScopeSession
	if scoping == "shared_global" {
		scope = ScopeShared
	}
	e.n.Set("scope", &Node{Shape: ShapeString, Pos: b.Pos, Text: scope})
	// What remembers nothing must not stand in the way of a fork.
	if scope == ScopeSession && slices.Contains(stateless, kind) && e.n.stateOf() == nil {
		e.n.Set("fork", &Node{Shape: ShapeString, Pos: b.Pos, Text: ForkFresh})
	}
	if slices.Contains(stateless, kind) && e.n.stateOf() == nil {
		e.n.Set("state", &Node{Shape: ShapeString, Pos: b.Pos, Text: noState})
	}
	d.startupCheck(o, &e)
	return e, len(d.problems) == before
}

func (n *Node) stateOf() *Node {
	if c := n.Get("docker"); c != nil {
		return c.Get("state")
	}
	return nil
}

func (d *decoder) startupCheck(o Object, e *entry) {
	n := o.given("startup_check_mcp_tool")
	if n == nil {
		return
	}
	c, ok := d.object(n, o.Path+".startup_check_mcp_tool", nil, []string{"tool_name", "arguments"})
	if !ok {
		return
	}
	s := MapNode()
	s.Pos = n.Pos
	for from, to := range map[string]string{"tool_name": "tool", "arguments": "arguments"} {
		if v := c.given(from); v != nil {
			s.Set(to, v)
		}
	}
	slices.SortFunc(s.Pairs, func(a, b Pair) int { return -strings.Compare(a.Key, b.Key) })
	e.n.Set("startup", s)
}

// useless warns about keys that mean nothing in this mode, which RewardKit ignores there.
func (d *decoder) useless(o Object, keys []string, why string) {
	for _, key := range keys {
		if o.given(key) != nil {
			d.warn(o.KeyPos(key), "%s.%s: %s; left out", o.Path, key, why)
		}
	}
}
