package config

import (
	"fmt"
	"strings"
	"unicode"
)

// entry is a server of another program's config, turned into an entry of
// tine.yaml. Its placeholders are not resolved yet.
type entry struct {
	name string // as the other program calls it
	id   string
	at   string // where it stands, for messages
	pos  Pos
	n    *Node
	// broken says why it can't be used.
	broken string
	// left names keys that Tine has no counterpart for.
	left []string
}

// foreign reads the servers of another program's config. A wrong entry is off
// and takes nothing else with it.
func (d *decoder) foreign(t *tree, f format, c *Config) {
	for _, e := range d.entries(t, f) {
		c.Servers = append(c.Servers, d.lenient(e))
	}
}

func (d *decoder) lenient(e entry) Server {
	sub := &decoder{report: report{file: d.file}, opts: d.opts, res: d.res, separator: d.separator, entryKeys: d.entryKeys}
	s := newServer(e.id)
	s.fill()
	if e.n != nil {
		gone := sub.resolve(e.n, e.id)
		s = sub.server(e.id, e.n, e.pos, e.id)
		sub.disable(&s, gone, e.id)
	}
	if title := oneLine(e.name); title != "" {
		s.Title = title
	}
	why := e.broken
	if why == "" && len(sub.problems) > 0 {
		var all []string
		for _, p := range sub.problems {
			all = append(all, fmt.Sprintf("line %d: %s", p.Line, p.Message))
		}
		why = strings.Join(all, "; ")
	}
	d.warnings = append(d.warnings, sub.warnings...)
	if why != "" {
		s.Disabled = fmt.Sprintf("server %q is off: %s", e.id, why)
		if s.Enabled {
			d.warn(e.pos, "%s", s.Disabled)
		}
	}
	return s
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}

// entries finds the servers of a foreign config and translates them.
func (d *decoder) entries(t *tree, f format) []entry {
	root := t.root
	key := keyMCPServers
	if f == formatVSCode {
		key = "servers"
		if n := root.Get(key); n == nil || n.Shape == ShapeNull {
			root = root.Get("mcp")
		}
		d.editors = root != t.root || root.Get("inputs") != nil
	}
	d.otherProjects(t.root)
	servers := root.Get(key)
	if servers == nil || servers.Shape == ShapeNull {
		return nil
	}
	if servers.Shape != ShapeMap {
		d.fail(servers.Pos, "%s: want a map of a name to an entry, got %s", key, servers.Shown())
		return nil
	}
	for _, dup := range t.dups {
		d.warn(dup.pos, "key %q stands twice, first on line %d; the last one counts", Clip(dup.key), dup.firstLine)
	}
	names := make([]string, len(servers.Pairs))
	for i, p := range servers.Pairs {
		names[i] = p.Key
	}
	ids := newIDBook(names, d.separator)
	var list []entry
	for _, p := range servers.Pairs {
		e := entry{name: p.Key, id: ids.id(p.Key), pos: p.KeyPos}
		if e.id != p.Key {
			d.warn(p.KeyPos, "server %q is called %s here, because %q can't be an id", Clip(p.Key), e.id, Clip(p.Key))
		}
		d.translate(&e, p.Value, f)
		list = append(list, e)
	}
	return list
}

// hasProjects reports whether a file keeps servers per project, as Claude Code
// does in ~/.claude.json.
func hasProjects(root *Node) bool {
	projects := root.Get("projects")
	if projects == nil {
		return false
	}
	for _, p := range projects.Pairs {
		if s := p.Value.Get("mcpServers"); s != nil && s.Shape == ShapeMap {
			return true
		}
	}
	return false
}

func (d *decoder) otherProjects(root *Node) {
	if !hasProjects(root) {
		return
	}
	for _, p := range root.Get("projects").Pairs {
		if s := p.Value.Get("mcpServers"); s != nil && len(s.Pairs) > 0 {
			d.warn(s.Pos, "the servers of project %q are not read; only those at the top are", Clip(p.Key))
		}
	}
}
