package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Startup is a call that an instance must answer before it counts as started.
type Startup struct {
	Tool      string         `yaml:"tool"`
	Arguments map[string]any `yaml:"arguments" json:",omitzero"`
}

var startupTable = Table[Startup]{
	Put("tool", func(s *Startup) *string { return &s.Tool }, Text("ping").As("a tool's name").Then(CheckTool), "the tool that a new instance must answer"),
	Put("arguments", func(s *Startup) *map[string]any { return &s.Arguments }, argumentsValue, "its arguments"),
}

// argumentsValue is a map of anything that JSON can hold.
var argumentsValue = Value[map[string]any]{
	About:   About{Type: "map", Schema: Schema{"type": "object"}},
	Read:    readArguments,
	Show:    func(v map[string]any, at Place) *Node { return shownAny(at.rel, v, at.hidden) },
	Secrets: func(v map[string]any, at Place, l SecretList) { l.settings(at, "", v) },
}

// CheckTool complains about what can't name a tool.
func CheckTool(o Object, key string, dst *string) {
	if n := o.Get(key); !ToolPattern.MatchString(*dst) {
		o.Wrong(key, n, "%s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", n.Shown())
	}
}

// readStartup reads the call that a new instance must answer.
func readStartup(o Object, key string, to **Startup) bool {
	c, ok := o.Child(key, startupTable.Names())
	if !ok {
		return false
	}
	*to = &Startup{}
	if c.Get("tool") == nil {
		o.Fail(o.KeyPos(key), "%s: tool is missing; name the tool that a new instance must answer", c.Path)
	}
	startupTable.Read(c, *to)
	return true
}

func readArguments(c Object, key string, dst *map[string]any) bool {
	n, ok := c.Lookup(key)
	switch {
	case !ok || n.Shape == ShapeNull:
		return false
	case n.Shape != ShapeMap:
		c.Wrong(key, n, "want a map, got %s", n.Shape)
		return false
	case len(n.Pairs) == 0:
		return false
	}
	if _, ok := c.d.jsonOf(c, key, n); ok {
		*dst, _ = n.Value().(map[string]any)
		noteAll(n, join(c.rel, key), c.hidden)
	}
	return true
}

// jsonOf writes a value as JSON, which knows no infinity.
func (d *decoder) jsonOf(o Object, key string, n *Node) (json.RawMessage, bool) {
	b, err := json.Marshal(n.Value())
	if err != nil {
		o.Wrong(key, n, "can't be written as JSON; use plain numbers")
		return nil, false
	}
	return b, true
}

// merged checks that only a server that acts for its caller says so.
func (d *decoder) merged(o Object, s *Server) {
	unread := s.Builtin == "" && o.n.Get("builtin") != nil
	if n := o.Get("merged"); n == nil || n.Missing || n.Shape != ShapeBool && n.From == "" || s.Controls() || unread {
		return
	}
	d.fail(o.KeyPos("merged"), "%s.merged: goes with builtin: %s; all others are in the merged view, so remove it", o.Path, strings.Join(controls, " and builtin: "))
}

// details reads the template of a remote server: anything that its orchestrator
// understands, or a snapshot.
func (d *decoder) details(o Object, s *Server) {
	n, ok := o.Lookup("template")
	if !ok {
		return
	}
	if n.Shape == ShapeString && strings.HasPrefix(n.Text, SnapshotPrefix) {
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

// readTemplateRoots reads where templates that sessions name by their path may lie.
func readTemplateRoots(o Object, key string, dst *[]string) bool {
	if !o.oneOrMore(key, dst, false, "[./templates]") {
		return false
	}
	d := o.d
	for _, it := range o.Items(key, false) {
		root := d.res.paths.resolve(it.Text)
		switch {
		case strings.TrimSpace(it.Text) == "":
			d.fail(it.Pos, "%s: is empty; name a directory, or remove it", it.Path)
		case len(root) > 0 && os.IsPathSeparator(root[len(root)-1]) && filepath.Dir(root) == filepath.Clean(root):
			d.fail(it.Pos, "%s: %s is everything there is, and any caller who opens a session could read it; name the directory of the templates", it.Path, it.Shown)
		default:
			d.seeds = append(d.seeds, Visible{At: it.Pos, Where: it.Path, Path: root})
		}
		if it.Index < len(*dst) {
			(*dst)[it.Index] = root
		}
	}
	d.roots = len(*dst) > 0
	return true
}
