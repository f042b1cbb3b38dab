package config

import (
	"fmt"
	"strconv"
)

var (
	apiKeys = []string{
		"base_url", "create_instance_endpoint", "delete_instance_endpoint_template", "call_tool_endpoint_template", "auth_type", "auth_details",
	}
	apiDefaultKeys = []string{"timeout", "connect_timeout"}
	apiAuthTypes   = []string{"none", "bearer_token", "custom_header"}
)

// rewardKitGlobals is what holds for all backends.
type rewardKitGlobals struct {
	options  []*Node // flags of docker run
	apis     *Node
	defaults *Node
}

// checkAPIs looks at what all backends share, used or not.
func (d *decoder) checkAPIs(o Object, g *rewardKitGlobals) {
	if g.defaults != nil {
		if _, ok := d.object(g.defaults, "global_remote_api_defaults", nil, apiDefaultKeys); !ok {
			g.defaults = nil
		}
	}
	if g.apis == nil {
		return
	}
	if g.apis.Shape != ShapeMap {
		o.Wrong("global_remote_apis", g.apis, "want a map of a name to an API, got %s", g.apis.Shape)
		g.apis = nil
		return
	}
	for _, p := range g.apis.Pairs {
		d.object(p.Value, join("global_remote_apis", Clip(p.Key)), nil, apiKeys)
	}
}

// remoteBackend translates a backend that an orchestrator runs.
func (d *decoder) remoteBackend(o Object, e *entry, g rewardKitGlobals) {
	d.useless(o, localKeys, "goes with orchestration_mode: local_docker")
	transport := ContainerHTTP
	if n := o.given("mcp_transport"); n != nil && o.OneOf("mcp_transport", &transport, ContainerTransports...) && transport == ContainerStdio {
		o.Wrong("mcp_transport", n, "an orchestrator's instances are reached over http; write http, or remove it")
	}
	api, at := d.apiOf(o, g)
	if api == nil {
		return
	}
	a := Object{d: d, n: api, Path: at}
	r := MapNode()
	r.Pos = o.n.Pos
	move := func(from Object, key, to string) {
		if n := from.given(key); n != nil {
			// Several backends may have the API in common.
			r.Pairs = append(r.Pairs, Pair{Key: to, KeyPos: from.KeyPos(key), Value: n.clone()})
		}
	}
	if a.given("base_url") == nil {
		d.fail(api.Pos, "%s: base_url is missing; it is where the orchestrator is", at)
		return
	}
	move(a, "base_url", "url")
	if o.given("remote_resource_type_identifier") == nil {
		d.fail(o.n.Pos, "%s: remote_resource_type_identifier is missing; it says what kind of instance to make", o.Path)
		return
	}
	move(o, "remote_resource_type_identifier", "resource")
	move(a, "create_instance_endpoint", "create")
	move(a, "delete_instance_endpoint_template", "delete")
	move(a, "call_tool_endpoint_template", "call")
	if g.defaults != nil {
		for _, key := range apiDefaultKeys {
			d.seconds(g.defaults.Get(key), "global_remote_api_defaults."+key, key, r)
		}
	}
	e.n.Pairs = append([]Pair{{Key: "remote", KeyPos: o.n.Pos, Value: r}}, e.n.Pairs...)
	d.apiAuth(a, e)
}

// apiOf finds the API of a backend, and where it stands.
func (d *decoder) apiOf(o Object, g rewardKitGlobals) (*Node, string) {
	ref, inline := o.given("remote_api_config_ref"), o.given("remote_api_config_inline")
	switch {
	case ref != nil && inline != nil:
		d.fail(o.KeyPos("remote_api_config_inline"), "%s: remote_api_config_ref and remote_api_config_inline exclude each other; keep one", o.Path)
	case inline != nil:
		at := o.Path + ".remote_api_config_inline"
		if _, ok := d.object(inline, at, nil, apiKeys); ok {
			return inline, at
		}
	case ref == nil:
		d.fail(o.n.Pos, "%s: nothing says which orchestrator; add remote_api_config_ref or remote_api_config_inline", o.Path)
	default:
		var names []string
		if g.apis != nil {
			for _, p := range g.apis.Pairs {
				names = append(names, p.Key)
			}
			if n := g.apis.Get(ref.Text); n != nil && ref.Scalar() {
				if n.Shape != ShapeMap {
					return nil, "" // reported already
				}
				return n, join("global_remote_apis", Clip(ref.Text))
			}
		}
		hint := "; add it to global_remote_apis"
		if near := Nearest(ref.Text, names); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		o.Wrong("remote_api_config_ref", ref, "there is no API %s%s", ref.Shown(), hint)
	}
	return nil, ""
}

// seconds sets a duration that the file has as a number.
func (d *decoder) seconds(n *Node, path, key string, to *Node) {
	if n == nil || n.Shape == ShapeNull {
		return
	}
	v, ok := n.float()
	if !ok || n.Shape != ShapeInt && n.Shape != ShapeFloat || v <= 0 || v > 3600 {
		d.fail(n.Pos, "%s: got %s, want a number of seconds up to 3600", path, n.Shown())
		return
	}
	to.Set(key, &Node{Shape: ShapeString, Pos: n.Pos, Text: strconv.FormatFloat(v, 'f', -1, 64) + "s"})
}

// apiAuth turns how an API wants to be asked into a header.
func (d *decoder) apiAuth(a Object, e *entry) {
	kind := "none"
	if n := a.given("auth_type"); n != nil && !a.OneOf("auth_type", &kind, apiAuthTypes...) {
		return
	}
	n := a.given("auth_details")
	if kind == "none" {
		if n != nil && len(n.Pairs) > 0 {
			d.warn(a.KeyPos("auth_details"), "%s.auth_details: auth_type is none, so nothing is sent; left out", a.Path)
		}
		return
	}
	keys := []string{"token"}
	if kind == "custom_header" {
		keys = []string{"header_name", "header_value"}
	}
	if n == nil {
		d.fail(a.KeyPos("auth_type"), "%s: auth_details is missing, which auth_type %s needs; give it %s", a.Path, kind, OrList(keys))
		return
	}
	in, ok := d.object(n, a.Path+".auth_details", nil, keys)
	if !ok {
		return
	}
	values := make([]string, len(keys))
	for i, key := range keys {
		v := in.given(key)
		if v == nil || !v.Scalar() || v.Text == "" {
			d.fail(n.Pos, "%s.%s is missing, which auth_type %s needs", in.Path, key, kind)
			return
		}
		values[i] = v.Text
	}
	name, value := "Authorization", "Bearer "+values[0]
	if kind == "custom_header" {
		name, value = values[0], values[1]
	}
	header := &Node{Shape: ShapeString, Pos: n.Pos, Text: value}
	headers := MapNode(Pair{Key: name, KeyPos: n.Pos, Value: header})
	headers.Pos = n.Pos
	e.n.Pairs = append(e.n.Pairs, Pair{Key: "headers", KeyPos: n.Pos, Value: headers})
}
