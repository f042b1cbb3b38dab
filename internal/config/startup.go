package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

var startupKeys = []string{"tool", "arguments"}

// startup reads the call that a new instance must answer.
func (d *decoder) startup(o Object, s *Server) {
	c, ok := o.Child("startup", startupKeys)
	if !ok {
		return
	}
	s.Startup = &Startup{}
	if n := c.n.Get("tool"); n == nil {
		d.fail(o.KeyPos("startup"), "%s: tool is missing; name the tool that a new instance must answer", c.Path)
	} else if c.Text("tool", &s.Startup.Tool, "ping") && !toolPattern.MatchString(s.Startup.Tool) {
		c.Wrong("tool", n, "%s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", n.Shown())
	}
	n, ok := c.Lookup("arguments")
	if !ok || n.Shape == ShapeNull {
		return
	}
	if n.Shape != ShapeMap {
		c.Wrong("arguments", n, "want a map, got %s", n.Shape)
		return
	}
	if len(n.Pairs) == 0 {
		return
	}
	if _, ok := d.jsonOf(c, "arguments", n); ok {
		s.Startup.Arguments, _ = n.value().(map[string]any)
		noteAll(n, "startup.arguments", s.hidden)
	}
}

// jsonOf writes a value as JSON, which knows no infinity.
func (d *decoder) jsonOf(o Object, key string, n *Node) (json.RawMessage, bool) {
	b, err := json.Marshal(n.value())
	if err != nil {
		o.Wrong(key, n, "can't be written as JSON; use plain numbers")
		return nil, false
	}
	return b, true
}

// merged reads whether a server that acts on sessions stands in the merged view.
func (d *decoder) merged(o Object, s *Server) {
	unread := s.Builtin == "" && o.n.Get("builtin") != nil
	if o.n.Get("merged") == nil || !o.Boolean("merged", &s.Merged) || s.Controls() || unread {
		return
	}
	d.fail(o.KeyPos("merged"), "%s.merged: goes with builtin: %s; all others are in the merged view, so remove it", o.Path, builtinRollout)
}

// details reads the template of a remote server: anything that its orchestrator
// understands, or a snapshot.
func (d *decoder) details(o Object, s *Server) {
	n, ok := o.Lookup("template")
	if !ok {
		return
	}
	if n.Shape == ShapeString && strings.HasPrefix(n.Text, snapshotPrefix) {
		d.template(o, "template", &s.Template, true)
		return
	}
	if n.Shape == ShapeNull {
		o.Wrong("template", n, "is empty; say what an instance begins with, or remove it")
		return
	}
	if b, ok := d.jsonOf(o, "template", n); ok {
		s.Details = b
		noteAll(n, "template", s.hidden)
	}
}

// templateRoots reads where templates that sessions name by their path may lie.
func (d *decoder) templateRoots(o Object, c *Config) {
	if !o.oneOrMore("template_roots", &c.TemplateRoots, false, "[./templates]") {
		return
	}
	for _, it := range o.Items("template_roots", false) {
		root := d.res.paths.resolve(it.Text)
		switch {
		case strings.TrimSpace(it.Text) == "":
			d.fail(it.Pos, "%s: is empty; name a directory, or remove it", it.Path)
		case len(root) > 0 && os.IsPathSeparator(root[len(root)-1]) && filepath.Dir(root) == filepath.Clean(root):
			d.fail(it.Pos, "%s: %s is everything there is, and whoever opens a session could read it; name the directory of the templates", it.Path, it.Shown)
		default:
			d.seeds = append(d.seeds, visible{at: it.Pos, where: it.Path, path: root})
		}
		if it.Index < len(c.TemplateRoots) {
			c.TemplateRoots[it.Index] = root
		}
	}
	d.roots = len(c.TemplateRoots) > 0
}
