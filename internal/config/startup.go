package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

var startupKeys = []string{"tool", "arguments"}

// startup reads the call that a new instance must answer.
func (d *decoder) startup(o object, s *Server) {
	c, ok := o.child("startup", startupKeys)
	if !ok {
		return
	}
	s.Startup = &Startup{}
	if n := c.n.get("tool"); n == nil {
		d.fail(o.keyPos("startup"), "%s: tool is missing; name the tool that a new instance must answer", c.path)
	} else if c.text("tool", &s.Startup.Tool, "ping") && !toolPattern.MatchString(s.Startup.Tool) {
		c.wrong("tool", n, "%s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", n.shown())
	}
	n, ok := c.lookup("arguments")
	if !ok || n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		c.wrong("arguments", n, "want a map, got %s", n.kind)
		return
	}
	if len(n.pairs) == 0 {
		return
	}
	if _, ok := d.jsonOf(c, "arguments", n); ok {
		s.Startup.Arguments, _ = n.value().(map[string]any)
		noteAll(n, "startup.arguments", s.hidden)
	}
}

// jsonOf writes a value as JSON, which knows no infinity.
func (d *decoder) jsonOf(o object, key string, n *node) (json.RawMessage, bool) {
	b, err := json.Marshal(n.value())
	if err != nil {
		o.wrong(key, n, "can't be written as JSON; use plain numbers")
		return nil, false
	}
	return b, true
}

// merged reads whether a server that acts on sessions stands in the merged view.
func (d *decoder) merged(o object, s *Server) {
	unread := s.Builtin == "" && o.n.get("builtin") != nil
	if o.n.get("merged") == nil || !o.boolean("merged", &s.Merged) || s.Controls() || unread {
		return
	}
	d.fail(o.keyPos("merged"), "%s.merged: goes with builtin: %s; all others are in the merged view, so remove it", o.path, builtinRollout)
}

// details reads the template of a remote server: anything that its orchestrator
// understands, or a snapshot.
func (d *decoder) details(o object, s *Server) {
	n, ok := o.lookup("template")
	if !ok {
		return
	}
	if n.kind == kindString && strings.HasPrefix(n.text, snapshotPrefix) {
		d.template(o, "template", &s.Template, true)
		return
	}
	if n.kind == kindNull {
		o.wrong("template", n, "is empty; say what an instance begins with, or remove it")
		return
	}
	if b, ok := d.jsonOf(o, "template", n); ok {
		s.Details = b
		noteAll(n, "template", s.hidden)
	}
}

// templateRoots reads where templates that sessions name by their path may lie.
func (d *decoder) templateRoots(o object, c *Config) {
	if !o.oneOrMore("template_roots", &c.TemplateRoots, false, "[./templates]") {
		return
	}
	for _, it := range o.items("template_roots", false) {
		root := d.res.paths.resolve(it.text)
		switch {
		case strings.TrimSpace(it.text) == "":
			d.fail(it.pos, "%s: is empty; name a directory, or remove it", it.path)
		case len(root) > 0 && os.IsPathSeparator(root[len(root)-1]) && filepath.Dir(root) == filepath.Clean(root):
			d.fail(it.pos, "%s: %s is everything there is, and whoever opens a session could read it; name the directory of the templates", it.path, it.shown)
		default:
			d.seeds = append(d.seeds, visible{at: it.pos, where: it.path, path: root})
		}
		if it.index < len(c.TemplateRoots) {
			c.TemplateRoots[it.index] = root
		}
	}
	d.roots = len(c.TemplateRoots) > 0
}
