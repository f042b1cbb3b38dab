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
	options  []*node // flags of docker run
	apis     *node
	defaults *node
}

// checkAPIs looks at what all backends share, used or not.
func (d *decoder) checkAPIs(o object, g *rewardKitGlobals) {
	if g.defaults != nil {
		if _, ok := d.object(g.defaults, "global_remote_api_defaults", nil, apiDefaultKeys); !ok {
			g.defaults = nil
		}
	}
	if g.apis == nil {
		return
	}
	if g.apis.kind != kindMap {
		o.wrong("global_remote_apis", g.apis, "want a map of a name to an API, got %s", g.apis.kind)
		g.apis = nil
		return
	}
	for _, p := range g.apis.pairs {
		d.object(p.value, join("global_remote_apis", clip(p.key)), nil, apiKeys)
	}
}

// remoteBackend translates a backend that an orchestrator runs.
func (d *decoder) remoteBackend(o object, e *entry, g rewardKitGlobals) {
	d.useless(o, localKeys, "goes with orchestration_mode: local_docker")
	transport := ContainerHTTP
	if n := o.given("mcp_transport"); n != nil && o.oneOf("mcp_transport", &transport, containerTransports...) && transport == ContainerStdio {
		o.wrong("mcp_transport", n, "an orchestrator's instances are reached over http; write http, or remove it")
	}
	api, at := d.apiOf(o, g)
	if api == nil {
		return
	}
	a := object{d: d, n: api, path: at}
	r := mapNode()
	r.pos = o.n.pos
	move := func(from object, key, to string) {
		if n := from.given(key); n != nil {
			// Several backends may have the API in common.
			r.pairs = append(r.pairs, pair{key: to, keyPos: from.keyPos(key), value: n.clone()})
		}
	}
	if a.given("base_url") == nil {
		d.fail(api.pos, "%s: base_url is missing; it is where the orchestrator is", at)
		return
	}
	move(a, "base_url", "url")
	if o.given("remote_resource_type_identifier") == nil {
		d.fail(o.n.pos, "%s: remote_resource_type_identifier is missing; it says what kind of instance to make", o.path)
		return
	}
	move(o, "remote_resource_type_identifier", "resource")
	move(a, "create_instance_endpoint", "create")
	move(a, "delete_instance_endpoint_template", "delete")
	move(a, "call_tool_endpoint_template", "call")
	if g.defaults != nil {
		for _, key := range apiDefaultKeys {
			d.seconds(g.defaults.get(key), "global_remote_api_defaults."+key, key, r)
		}
	}
	e.n.pairs = append([]pair{{key: "remote", keyPos: o.n.pos, value: r}}, e.n.pairs...)
	d.apiAuth(a, e)
}

// apiOf finds the API of a backend, and where it stands.
func (d *decoder) apiOf(o object, g rewardKitGlobals) (*node, string) {
	ref, inline := o.given("remote_api_config_ref"), o.given("remote_api_config_inline")
	switch {
	case ref != nil && inline != nil:
		d.fail(o.keyPos("remote_api_config_inline"), "%s: remote_api_config_ref and remote_api_config_inline exclude each other; keep one", o.path)
	case inline != nil:
		at := o.path + ".remote_api_config_inline"
		if _, ok := d.object(inline, at, nil, apiKeys); ok {
			return inline, at
		}
	case ref == nil:
		d.fail(o.n.pos, "%s: nothing says which orchestrator; add remote_api_config_ref or remote_api_config_inline", o.path)
	default:
		var names []string
		if g.apis != nil {
			for _, p := range g.apis.pairs {
				names = append(names, p.key)
			}
			if n := g.apis.get(ref.text); n != nil && ref.scalar() {
				if n.kind != kindMap {
					return nil, "" // said already
				}
				return n, join("global_remote_apis", clip(ref.text))
			}
		}
		hint := "; add it to global_remote_apis"
		if near := Nearest(ref.text, names); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		o.wrong("remote_api_config_ref", ref, "there is no API %s%s", ref.shown(), hint)
	}
	return nil, ""
}

// seconds sets a duration that the file has as a number.
func (d *decoder) seconds(n *node, path, key string, to *node) {
	if n == nil || n.kind == kindNull {
		return
	}
	v, ok := n.float()
	if !ok || n.kind != kindInt && n.kind != kindFloat || v <= 0 || v > 3600 {
		d.fail(n.pos, "%s: got %s, want a number of seconds up to 3600", path, n.shown())
		return
	}
	to.set(key, &node{kind: kindString, pos: n.pos, text: strconv.FormatFloat(v, 'f', -1, 64) + "s"})
}

// apiAuth turns how an API wants to be asked into a header.
func (d *decoder) apiAuth(a object, e *entry) {
	kind := "none"
	if n := a.given("auth_type"); n != nil && !a.oneOf("auth_type", &kind, apiAuthTypes...) {
		return
	}
	n := a.given("auth_details")
	if kind == "none" {
		if n != nil && len(n.pairs) > 0 {
			d.warn(a.keyPos("auth_details"), "%s.auth_details: auth_type is none, so nothing is sent; left out", a.path)
		}
		return
	}
	keys := []string{"token"}
	if kind == "custom_header" {
		keys = []string{"header_name", "header_value"}
	}
	if n == nil {
		d.fail(a.keyPos("auth_type"), "%s: auth_details is missing, which auth_type %s needs; give it %s", a.path, kind, orList(keys))
		return
	}
	in, ok := d.object(n, a.path+".auth_details", nil, keys)
	if !ok {
		return
	}
	values := make([]string, len(keys))
	for i, key := range keys {
		v := in.given(key)
		if v == nil || !v.scalar() || v.text == "" {
			d.fail(n.pos, "%s.%s is missing, which auth_type %s needs", in.path, key, kind)
			return
		}
		values[i] = v.text
	}
	name, value := "Authorization", "Bearer "+values[0]
	if kind == "custom_header" {
		name, value = values[0], values[1]
	}
	header := &node{kind: kindString, pos: n.pos, text: value}
	headers := mapNode(pair{key: name, keyPos: n.pos, value: header})
	headers.pos = n.pos
	e.n.pairs = append(e.n.pairs, pair{key: "headers", keyPos: n.pos, value: headers})
}
