package config

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// quiet are keys that are about the other program and lose nothing here: who
// approves a call, what a list looks like.
var quiet = []string{"autoApprove", "alwaysAllow", "trust", "gallery", "version", "description", "name", "icon", "$schema", "dev"}

// foreignKeys are those that translate knows.
var foreignKeys = []string{
	"command", "args", "cwd", "env", "envFile", "url", "serverUrl", "httpUrl", "headers", "type", "transport", "transportType",
	"disabled", "enabled", "timeout", "includeTools", "excludeTools", "disabledTools",
}

// translate turns a foreign entry into one of tine.yaml.
func (d *decoder) translate(e *entry, src *node, f format) {
	if src.kind != kindMap {
		e.broken = "want a map with a command or a url, got " + src.kind.String()
		return
	}
	e.n = mapNode()
	e.n.pos = src.pos
	set := func(key string, v *node, at pos) {
		e.n.pairs = append(e.n.pairs, pair{key: key, keyPos: at, value: v})
	}
	reach := map[string]pair{}
	kindOf := ""
	for _, p := range src.pairs {
		if p.value.kind == kindNull {
			continue
		}
		switch p.key {
		case "command", "args", "cwd":
			set(p.key, p.value, p.keyPos)
		case "env":
			set("env", d.withoutNulls(p.value), p.keyPos)
		case "envFile":
			set("env_file", p.value, p.keyPos)
		case "url", "serverUrl", "httpUrl":
			reach[p.key] = p
		case "headers":
			set("headers", d.allowedHeaders(p.value), p.keyPos)
		case "type", "transport", "transportType":
			kindOf = p.value.text
		case "disabled", "enabled":
			if p.value.kind != kindBool {
				e.broken = fmt.Sprintf("%s: got %s, want true or false", p.key, p.value.shown())
				continue
			}
			set("enabled", &node{kind: kindBool, pos: p.value.pos, text: strconv.FormatBool((p.value.text == "true") == (p.key == "enabled"))}, p.keyPos)
		case "timeout":
			if v := foreignTimeout(p.value); v != nil {
				set("timeout", v, p.keyPos)
			} else {
				d.warn(p.value.pos, "server %q: timeout %s is not a number of seconds or milliseconds; left out", e.id, p.value.shown())
			}
		case "includeTools":
			e.tools("allow", p.value)
		case "excludeTools", "disabledTools":
			e.tools("deny", p.value)
		default:
			if !slices.Contains(quiet, p.key) {
				e.left = append(e.left, p.key)
				d.warn(p.keyPos, "server %q: key %q means nothing to Tine; left out%s", e.id, clip(p.key), foreignHint(p.key, f))
			}
		}
	}
	d.kind(e, reach, kindOf, f)
}

// foreignHint is the key that was perhaps meant.
func foreignHint(key string, f format) string {
	known := foreignKeys
	if f == formatVSCode { // which a JSON file of ours is taken for as long as it has no key of ours
		known = slices.Concat(foreignKeys, serverKeys)
	}
	if g := guess(key, known); g != "" && g != key {
		return fmt.Sprintf("; did you mean %q?", g)
	}
	return ""
}

// kind settles how the server is reached, from the keys it has and the type it
// claims to be.
func (d *decoder) kind(e *entry, reach map[string]pair, kindOf string, f format) {
	transport := ""
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(kindOf)) {
	case "":
	case "stdio", "local":
		if e.n.get("command") == nil {
			e.broken = fmt.Sprintf("type is %s, but there is no command", kindOf)
			return
		}
		if len(reach) > 0 {
			d.warn(e.pos, "server %q has a command and a url; its type is %s, so the command counts", e.id, kindOf)
			reach = nil
		}
	case "http", "streamablehttp", "streamable", "remote":
		transport = "streamable"
		// VS Code falls back to SSE where a server does not know the newer way.
		if f == formatVSCode {
			transport = "auto"
		}
	case "sse":
		transport = "sse"
	default:
		e.broken = fmt.Sprintf("type %q is none that Tine speaks; use stdio, http or sse", clip(kindOf))
		return
	}
	if transport != "" {
		if len(reach) == 0 {
			e.broken = fmt.Sprintf("type is %s, but there is no url", kindOf)
			return
		}
		if e.n.drop("command") {
			d.warn(e.pos, "server %q has a command and a url; its type is %s, so the url counts", e.id, kindOf)
			for _, key := range []string{"args", "env", "env_file", "cwd"} {
				e.n.drop(key)
			}
		}
	}
	for _, key := range []string{"url", "serverUrl", "httpUrl"} {
		p, ok := reach[key]
		if !ok {
			continue
		}
		e.n.pairs = append([]pair{{key: "url", keyPos: p.keyPos, value: p.value}}, e.n.pairs...)
		if transport == "" && key == "httpUrl" {
			transport = "streamable"
		}
		break
	}
	if transport != "" {
		e.n.set("transport", &node{kind: kindString, pos: e.pos, text: transport})
	}
	other := []string{"args", "env", "env_file", "cwd"}
	if e.n.get("command") != nil {
		other = []string{"headers"}
	}
	if (e.n.get("command") != nil) != (e.n.get("url") != nil) {
		for _, key := range other {
			if e.n.drop(key) {
				d.warn(e.pos, "server %q: %s does not go with the way it is reached; left out", e.id, key)
			}
		}
	}
}

// drop takes a key out and reports whether it was there.
func (n *node) drop(key string) bool {
	before := len(n.pairs)
	n.pairs = slices.DeleteFunc(n.pairs, func(p pair) bool { return p.key == key })
	return len(n.pairs) < before
}

func (d *decoder) withoutNulls(n *node) *node {
	if n.kind != kindMap {
		return n
	}
	out := *n
	out.pairs = nil
	for _, p := range n.pairs {
		if p.value.kind == kindNull {
			d.warn(p.keyPos, "variable %q has no value; left out", clip(p.key))
			continue
		}
		out.pairs = append(out.pairs, p)
	}
	return &out
}

func (d *decoder) allowedHeaders(n *node) *node {
	n = d.withoutNulls(n)
	if n.kind != kindMap {
		return n
	}
	out := *n
	out.pairs = nil
	for _, p := range n.pairs {
		if slices.Contains(ownHeaders, http.CanonicalHeaderKey(p.key)) {
			d.warn(p.keyPos, "header %s is set by Tine itself; left out", p.key)
			continue
		}
		out.pairs = append(out.pairs, p)
	}
	return &out
}

// foreignTimeout reads a timeout without a unit. Cline counts seconds, up to
// one hour; others milliseconds, and none of them below some seconds.
func foreignTimeout(n *node) *node {
	v, err := strconv.ParseFloat(n.text, 64)
	if n.kind != kindInt && n.kind != kindFloat || err != nil || v <= 0 || v > 1e9 {
		return nil
	}
	unit := "s"
	if v > 3600 {
		unit = "ms"
	}
	return &node{kind: kindString, pos: n.pos, text: strconv.FormatFloat(v, 'f', -1, 64) + unit}
}

// globSpecial are the characters that mean something in tools.allow and deny.
var globSpecial = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// tools adds a list of plain tool names to allow or deny.
func (e *entry) tools(key string, names *node) {
	if names.kind != kindList || len(names.items) == 0 {
		return
	}
	tools := e.n.get("tools")
	if tools == nil {
		tools = mapNode()
		tools.pos = names.pos
		e.n.set("tools", tools)
	}
	list := tools.get(key)
	if list == nil {
		list = &node{kind: kindList, pos: names.pos}
		tools.set(key, list)
	}
	for _, item := range names.items {
		c := *item
		c.text = globSpecial.Replace(c.text)
		list.items = append(list.items, &c)
	}
}
