package blueprint

import (
	"maps"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// hintHeaders are the headers of a reference: what an executor may tell the orchestrator.
// Credentials of a server belong to its entry in the config.
var hintHeaders = []string{"X-Agent-Session-Id", "X-Agent-Tags", "X-Additional-Demands"}

// referenceKeys are those of a reference.
var referenceKeys = []string{"ref", "headers", "config"}

func (b Blueprint) serverNames() []string { return slices.Sorted(maps.Keys(b.Servers)) }

// readServers reads the map of mcp_servers.
func readServers(o config.Object, key string, n *config.Node) map[string]Server {
	path := below(o, key)
	switch n.Shape {
	case config.ShapeNull:
		return nil
	case config.ShapeMap:
	default:
		o.Wrong(key, n, "want a map of a name to a server, got %s; write %s: {files: {}}", n.Shown(), key)
		return nil
	}
	if len(n.Pairs) > mostServers {
		o.Wrong(key, n, "has %d entries, and at most %d are allowed", len(n.Pairs), mostServers)
		return nil
	}
	servers := map[string]Server{}
	for _, p := range n.Pairs {
		if !config.AgentName(p.Key) {
			o.Fail(p.KeyPos, "%s: %q can't name a server; use 1 to 64 letters, digits, dashes and underscores", path, config.Clip(p.Key))
			continue
		}
		if s, ok := readServer(o.Below(key), p, path+"."+p.Key); ok {
			s.at = spot{o.File(), p.KeyPos, path + "." + p.Key}
			servers[p.Key] = s
		}
	}
	return servers
}

// readServer reads one entry, in the map o.
func readServer(o config.Object, p config.Pair, path string) (s Server, ok bool) {
	n := p.Value
	switch {
	case n.Shape == config.ShapeNull:
		return Server{Ref: p.Key}, true
	case n.Shape != config.ShapeMap:
		o.Fail(n.Pos, "%s: want {} for the server %q of the config, {ref: ID}, or an entry as in a config's servers; got %s", path, p.Key, n.Shown())
		return s, false
	}
	if u := n.Get("url"); u != nil && strings.TrimSpace(u.Text) == "${runner.orchestrator_mcp_url}" {
		n = asReference(n)
		n.Set("ref", config.StringNode(Orchestrator))
		o.Set(p.Key, n)
	}
	if !isReference(n) {
		return inline(o, p, path)
	}
	s.Ref = p.Key
	in, _ := o.Child(p.Key, referenceKeys)
	if in.Text("ref", &s.Ref, "files") && s.Ref == "" {
		in.Wrong("ref", in.Get("ref"), "is empty; name a server of the config")
	}
	if ref := in.Get("ref"); ref != nil {
		plainNode(in, path+".ref", ref)
	}
	for _, key := range []string{"headers", "config"} {
		for name, t := range readHeaders(in, key) {
			if s.Headers == nil {
				s.Headers = map[string]Text{}
			}
			s.Headers[name] = t
		}
	}
	return s, true
}

// isReference reports whether an entry has nothing that says how a server is run.
func isReference(n *config.Node) bool {
	if n.Get("ref") != nil {
		return true
	}
	for _, p := range n.Pairs {
		if !slices.Contains(referenceKeys, p.Key) {
			return false
		}
	}
	return n.Get("headers") == nil || n.Get("config") == nil
}

// asReference takes out of an entry what says how the orchestrator is reached.
func asReference(n *config.Node) *config.Node {
	c := *n
	c.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), func(p config.Pair) bool { return p.Key == "url" || p.Key == "type" || p.Key == "transport" })
	return &c
}

// readHeaders reads the headers of a reference.
func readHeaders(o config.Object, key string) map[string]Text {
	var m map[string]Text
	if !textsValue("{X-Agent-Tags: internal}", kind{}).Read(o, key, &m) {
		return nil
	}
	for _, p := range o.Get(key).Pairs {
		if !slices.ContainsFunc(hintHeaders, func(h string) bool { return strings.EqualFold(h, p.Key) }) {
			o.Fail(p.KeyPos, "%s: a reference sends no header %q; it may send %s. Headers of the server stand in the config", below(o, key), config.Clip(p.Key), strings.Join(hintHeaders, ", "))
		}
	}
	return m
}

// entryTexts are the keys of an entry in which a start fills in placeholders.
var entryTexts = []string{"args", "env", "cwd"}

// inline reads a server of the blueprint's own, and checks it as an entry of a config.
func inline(o config.Object, p config.Pair, path string) (Server, bool) {
	n := p.Value
	s := Server{Inline: Tree{kind: treeMap, fields: map[string]Tree{}}}
	shape := &config.Node{Shape: config.ShapeMap, Pos: n.Pos}
	for _, pair := range n.Pairs {
		noPlaceholderKey(o, pair, path)
		pair, ok := transport(o, n, pair, path)
		if !ok {
			continue
		}
		tree := treeOf(o, pair.Value, path+"."+pair.Key, kind{atStart: slices.Contains(entryTexts, pair.Key)})
		s.Inline.fields[pair.Key] = tree
		shape.Pairs = append(shape.Pairs, config.Pair{Key: pair.Key, KeyPos: pair.KeyPos, Value: shaped(pair.Value, tree)})
	}
	o.Entry(p.Key, shape, p.KeyPos, path, config.Options{
		Getenv:   func(string) (string, bool) { return "", false },
		ReadFile: func(string) ([]byte, error) { return nil, nil },
	})
	return s, true
}

// transport gives the key type, which other programs have, the name that an entry has for
// it; ok is false where it says nothing.
func transport(o config.Object, n *config.Node, p config.Pair, path string) (config.Pair, bool) {
	if p.Key != "type" || n.Get("transport") != nil || p.Value.Shape != config.ShapeString {
		return p, true
	}
	switch p.Value.Text {
	case "http", "streamable-http", "stdio":
		return p, false
	case "sse":
		p.Key = "transport"
		return p, true
	}
	o.Fail(p.Value.Pos, "%s.type: got %s, want http, sse or stdio", path, p.Value.Shown())
	return p, false
}

// shaped is a value as it is checked before its placeholders are filled in: a text that has
// one counts as right.
func shaped(n *config.Node, t Tree) *config.Node {
	c := *n
	switch t.kind {
	case treeText:
		c.Text = ""
		for _, p := range t.text.parts {
			c.Missing = c.Missing || p.prefix != ""
			c.Text += p.text
			if p.kept != "" {
				c.Kept = append(c.Kept, p.kept)
			}
		}
	case treeList:
		c.Items = make([]*config.Node, len(n.Items))
		for i, item := range n.Items {
			c.Items[i] = shaped(item, t.list[i])
		}
	case treeMap:
		c.Pairs = slices.Clone(n.Pairs)
		for i, p := range n.Pairs {
			c.Pairs[i].Value = shaped(p.Value, t.fields[p.Key])
		}
	}
	return &c
}
