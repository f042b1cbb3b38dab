package config

import (
	"fmt"
	"slices"
	"strings"
)

// rewardKit takes over a RewardKit config. A container that speaks stdio is a
// command like any other; what needs a container's port or an orchestrator is
// written down as a comment.
func (w *importer) rewardKit(t *tree) {
	for _, dup := range t.dups {
		w.warn(dup.pos, "key %q stands twice, first on line %d; the last one counts", clip(dup.key), dup.firstLine)
	}
	var apis *node
	for _, p := range t.root.pairs {
		switch p.key {
		case "backends":
		case "log_level":
			if level := rewardKitLevel(p.value.text); level != "" {
				w.root.set("log", mapNode(pair{key: "level", value: stringNode(level)}))
			} else {
				w.warn(p.value.pos, "log_level %s is not known; left out", p.value.shown())
			}
		case "global_remote_apis":
			apis = p.value
		default:
			if p.value.kind != kindNull && (p.value.scalar() || len(p.value.pairs)+len(p.value.items) > 0) {
				w.after = append(w.after, "not imported, as Tine has no key for it: "+safeValue(p.key, p.value))
				w.warn(p.keyPos, "%s is not imported: Tine has no key for it", clip(p.key))
			}
		}
	}
	var names []string
	backends := t.root.get("backends").items
	for _, b := range backends {
		names = append(names, textOf(b, "backend_name_ref"))
	}
	ids := newIDBook(names, w.separator)
	seen := map[string]bool{}
	for i, b := range backends {
		name := names[i]
		if name == "" || seen[name] {
			w.warn(b.pos, "backends[%d] is not imported: its backend_name_ref is missing or stands twice", i)
			continue
		}
		seen[name] = true
		e := entry{name: name, id: ids.id(name), pos: b.pos}
		if e.id != name {
			w.warn(b.pos, "backend %q is called %s here, because %q can't be an id", clip(name), e.id, clip(name))
		}
		w.backend(e, b, apis)
	}
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

// textOf is a scalar of a map as written, or nothing.
func textOf(n *node, key string) string {
	if v := n.get(key); v != nil && v.scalar() && v.kind != kindNull {
		return v.text
	}
	return ""
}

// backendKeys are the keys of a backend that an entry expresses.
var backendKeys = []string{
	"backend_name_ref", "backend_type", "orchestration_mode", "instance_scoping", "mcp_transport",
	"docker_image", "container_port", "container_command", "container_volumes", "docker_run_args",
	"remote_api_config_ref", "remote_api_config_inline", "remote_resource_type_identifier",
}

func (w *importer) backend(e entry, b, apis *node) {
	e.n = mapNode()
	e.n.pos = b.pos
	mode, transport := textOf(b, "orchestration_mode"), textOf(b, "mcp_transport")
	if transport == "" {
		transport = "http"
	}
	kind := textOf(b, "backend_type")
	var notes []string
	switch {
	case mode == "remote_http_api":
		notes = w.remoteAPI(b, apis)
		e.broken = "Tine has no driver for servers that an orchestrator's HTTP API starts"
	case mode != "local_docker":
		e.broken = fmt.Sprintf("orchestration_mode %q is not known", clip(mode))
	case transport == "stdio":
		notes = w.docker(&e, b)
	case transport == "http" && slices.Contains(unasked, kind):
		e.n.set("builtin", stringNode(kind))
		notes = append(notes, fmt.Sprintf("was the image %s; the built-in %s server has the same tools and needs no container", textOf(b, "docker_image"), kind))
		w.warn(b.pos, "server %q: the built-in %s server takes the place of image %s", e.id, kind, clip(textOf(b, "docker_image")))
	case transport == "http":
		e.broken = fmt.Sprintf("Tine has no driver for containers that serve HTTP; start image %s yourself and give the server a url: http://127.0.0.1:PORT/mcp (port %s inside)", textOf(b, "docker_image"), textOf(b, "container_port"))
	default:
		e.broken = fmt.Sprintf("mcp_transport %q is not known", clip(transport))
	}
	switch scope := textOf(b, "instance_scoping"); scope {
	case "shared_global":
		e.n.set("scope", stringNode(ScopeShared))
	case "session", "":
		e.n.set("scope", stringNode(ScopeSession))
	default:
		e.broken = fmt.Sprintf("instance_scoping %q is not known", clip(scope))
	}
	for _, p := range b.pairs {
		if slices.Contains(backendKeys, p.key) || p.value.kind == kindNull {
			continue
		}
		notes = append(notes, "no key for it: "+safeValue(p.key, p.value))
		w.warn(p.keyPos, "server %q: %s is not imported: Tine has no key for it", e.id, clip(p.key))
	}
	w.add(e, notes)
}

// docker turns a container that speaks stdio into the command that runs it.
func (w *importer) docker(e *entry, b *node) (notes []string) {
	image := textOf(b, "docker_image")
	if image == "" {
		e.broken = "docker_image is missing"
		return nil
	}
	args := []string{"run", "-i", "--rm"}
	if v := b.get("container_volumes"); v != nil {
		for _, p := range v.pairs {
			bind, mode := textOf(p.value, "bind"), textOf(p.value, "mode")
			if bind == "" {
				notes = append(notes, "volume without bind left out: "+p.key)
				w.warn(p.keyPos, "server %q: volume %q has no bind; left out", e.id, clip(p.key))
				continue
			}
			if strings.HasPrefix(p.key, ".") {
				w.warn(p.keyPos, "server %q: volume %q is relative to where docker is started; make it absolute", e.id, clip(p.key))
			}
			volume := p.key + ":" + bind
			if mode != "" {
				volume += ":" + mode
			}
			args = append(args, "-v", volume)
		}
	}
	for _, a := range words(b.get("docker_run_args")) {
		if a == "-d" || a == "--detach" {
			w.warn(b.pos, "server %q: docker_run_args has %s, which would cut it off from its stdio; left out", e.id, a)
			continue
		}
		if (a == "--name" || strings.HasPrefix(a, "--name=")) && textOf(b, "instance_scoping") != "shared_global" {
			w.warn(b.pos, "server %q: docker_run_args has --name, so only one session at a time can have it; remove it", e.id)
		}
		args = append(args, a)
	}
	args = append(args, image)
	args = append(args, words(b.get("container_command"))...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "${", "$${")
	}
	e.n.set("command", stringNode("docker"))
	e.n.set("args", listNode(args...))
	return notes
}

// words reads a list of scalars, or a string of words.
func words(n *node) []string {
	if n == nil {
		return nil
	}
	if n.kind == kindString {
		return strings.Fields(n.text)
	}
	var list []string
	for _, item := range n.items {
		if item.scalar() && item.kind != kindNull {
			list = append(list, item.text)
		}
	}
	return list
}

func (w *importer) remoteAPI(b, apis *node) []string {
	api := b.get("remote_api_config_inline")
	if ref := textOf(b, "remote_api_config_ref"); api == nil && apis != nil {
		api = apis.get(ref)
	}
	notes := []string{"no key for it: remote_resource_type_identifier: " + textOf(b, "remote_resource_type_identifier")}
	if api != nil && api.kind == kindMap {
		notes = append(notes, "no key for it: "+safeValue("remote_api", api))
	}
	return notes
}

// safeValue writes a key and its value on one line, secrets masked.
func safeValue(key string, n *node) string {
	return clipLine(key + ": " + flow(masked(key, n)))
}

func clipLine(s string) string {
	if r := []rune(s); len(r) > 500 {
		return string(r[:500]) + "..."
	}
	return s
}

func masked(key string, n *node) *node {
	c := *n
	if c.scalar() {
		if c.kind == kindString && c.text != "" && (secretName(key) || key == "header_value" || secretText.MatchString(c.text)) {
			return stringNode(mask)
		}
		c.text = RedactURL(c.text)
		return &c
	}
	c.items, c.pairs = nil, nil
	for _, item := range n.items {
		c.items = append(c.items, masked(key, item))
	}
	for _, p := range n.pairs {
		p.value = masked(p.key, p.value)
		c.pairs = append(c.pairs, p)
	}
	return &c
}
