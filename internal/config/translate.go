package config

import (
	"fmt"
	"net/http"
	"path/filepath"
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
func (d *decoder) translate(e *entry, src *Node, f format) {
	if src.Shape != ShapeMap {
		e.broken = "want a map with a command or a url, got " + src.Shape.String()
		return
	}
	e.n = MapNode()
	e.n.Pos = src.Pos
	set := func(key string, v *Node, at Pos) {
		e.n.Pairs = append(e.n.Pairs, Pair{Key: key, KeyPos: at, Value: v})
	}
	reach := map[string]Pair{}
	kindOf := ""
	for _, p := range src.Pairs {
		if p.Value.Shape == ShapeNull {
			continue
		}
		switch p.Key {
		case "command", "args", "cwd":
			set(p.Key, p.Value, p.KeyPos)
		case "env":
			set("env", d.withoutNulls(p.Value), p.KeyPos)
		case "envFile":
			set("env_file", p.Value, p.KeyPos)
		case "url", "serverUrl", "httpUrl":
			reach[p.Key] = p
		case "headers":
			set("headers", d.allowedHeaders(p.Value), p.KeyPos)
		case "type", "transport", "transportType":
			kindOf = p.Value.Text
		case "disabled", "enabled":
			if p.Value.Shape != ShapeBool {
				e.broken = fmt.Sprintf("%s: got %s, want true or false", p.Key, p.Value.Shown())
				continue
			}
			set("enabled", &Node{Shape: ShapeBool, Pos: p.Value.Pos, Text: strconv.FormatBool((p.Value.Text == "true") == (p.Key == "enabled"))}, p.KeyPos)
		case "timeout":
			if v := foreignTimeout(p.Value); v != nil {
				set("timeout", v, p.KeyPos)
			} else {
				d.warn(p.Value.Pos, "server %q: timeout %s is not a number of seconds or milliseconds; left out", e.id, p.Value.Shown())
			}
		case "includeTools":
			e.tools("allow", p.Value)
		case "excludeTools", "disabledTools":
			e.tools("deny", p.Value)
		default:
			if !slices.Contains(quiet, p.Key) {
				e.left = append(e.left, p.Key)
				if why := d.misspelt(p.Key, f); why != "" {
					d.fail(p.KeyPos, "server %q: unknown key %q%s", e.id, Clip(p.Key), why)
					continue
				}
				d.warn(p.KeyPos, "server %q: key %q means nothing to Tine; left out%s", e.id, Clip(p.Key), foreignHint(p.Key, f))
			}
		}
	}
	d.kind(e, reach, kindOf, f)
}

// editorKeys are keys of VS Code that are none of ours, nor misspelt.
var editorKeys = []string{"oauth", "sandboxEnabled"}

// misspelt says what is wrong with an unknown key of a JSON file that may be ours, or by
// its name is: with "sandbx" left out, a server would run without walls. It is empty for a
// key of an editor.
func (d *decoder) misspelt(key string, f format) string {
	base := filepath.Base(d.file)
	named := strings.TrimSuffix(base, filepath.Ext(base)) == "tine"
	if f != formatVSCode || slices.Contains(serverTable.Names(), key) || slices.Contains(editorKeys, key) || d.editors && !named {
		return ""
	}
	if hint := foreignHint(key, f); hint != "" || !named {
		return hint
	}
	return "; keys of a server are " + strings.Join(serverTable.Names(), ", ")
}

// foreignHint is the key that was perhaps meant.
func foreignHint(key string, f format) string {
	known := foreignKeys
	if f == formatVSCode { // which a JSON file of ours is taken for as long as it has no key of ours
		known = slices.Concat(foreignKeys, serverTable.Names())
	}
	if g := Guess(key, known); g != "" && g != key {
		return fmt.Sprintf("; did you mean %q?", g)
	}
	return ""
}

// kind settles how the server is reached, from the keys it has and the type it
// claims to be.
func (d *decoder) kind(e *entry, reach map[string]Pair, kindOf string, f format) {
	transport := ""
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(kindOf)) {
	case "":
	case "stdio", "local":
		if e.n.Get("command") == nil {
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
		e.broken = fmt.Sprintf("type %q is none that Tine speaks; use stdio, http or sse", Clip(kindOf))
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
		e.n.Pairs = append([]Pair{{Key: "url", KeyPos: p.KeyPos, Value: p.Value}}, e.n.Pairs...)
		if transport == "" && key == "httpUrl" {
			transport = "streamable"
		}
		break
	}
	if transport != "" {
		e.n.Set("transport", &Node{Shape: ShapeString, Pos: e.pos, Text: transport})
	}
	other := []string{"args", "env", "env_file", "cwd"}
	if e.n.Get("command") != nil {
		other = []string{"headers"}
	}
	if (e.n.Get("command") != nil) != (e.n.Get("url") != nil) {
		for _, key := range other {
			if e.n.drop(key) {
				d.warn(e.pos, "server %q: %s does not go with the way it is reached; left out", e.id, key)
			}
		}
	}
}

// drop takes a key out and reports whether it was there.
func (n *Node) drop(key string) bool {
	before := len(n.Pairs)
	n.Pairs = slices.DeleteFunc(n.Pairs, func(p Pair) bool { return p.Key == key })
	return len(n.Pairs) < before
}

func (d *decoder) withoutNulls(n *Node) *Node {
	if n.Shape != ShapeMap {
		return n
	}
	out := *n
	out.Pairs = nil
	for _, p := range n.Pairs {
		if p.Value.Shape == ShapeNull {
			d.warn(p.KeyPos, "variable %q has no value; left out", Clip(p.Key))
			continue
		}
		out.Pairs = append(out.Pairs, p)
	}
	return &out
}

func (d *decoder) allowedHeaders(n *Node) *Node {
	n = d.withoutNulls(n)
	if n.Shape != ShapeMap {
		return n
	}
	out := *n
	out.Pairs = nil
	for _, p := range n.Pairs {
		if slices.Contains(ownHeaders, http.CanonicalHeaderKey(p.Key)) {
			d.warn(p.KeyPos, "header %s is set by Tine itself; left out", p.Key)
			continue
		}
		out.Pairs = append(out.Pairs, p)
	}
	return &out
}

// foreignTimeout reads a timeout without a unit. Cline counts seconds, up to
// one hour; others milliseconds, and none of them below some seconds.
func foreignTimeout(n *Node) *Node {
	v, err := strconv.ParseFloat(n.Text, 64)
	if n.Shape != ShapeInt && n.Shape != ShapeFloat || err != nil || v <= 0 || v > 1e9 {
		return nil
	}
	unit := "s"
	if v > 3600 {
		unit = "ms"
	}
	return &Node{Shape: ShapeString, Pos: n.Pos, Text: strconv.FormatFloat(v, 'f', -1, 64) + unit}
}

// globSpecial are the characters that mean something in tools.allow and deny.
var globSpecial = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// tools adds a list of plain tool names to allow or deny.
func (e *entry) tools(key string, names *Node) {
	if names.Shape != ShapeList || len(names.Items) == 0 {
		return
	}
	tools := e.n.Get("tools")
	if tools == nil {
		tools = MapNode()
		tools.Pos = names.Pos
		e.n.Set("tools", tools)
	}
	list := tools.Get(key)
	if list == nil {
		list = &Node{Shape: ShapeList, Pos: names.Pos}
		tools.Set(key, list)
	}
	for _, item := range names.Items {
		c := *item
		c.Text = globSpecial.Replace(c.Text)
		list.Items = append(list.Items, &c)
	}
}
