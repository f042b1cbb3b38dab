package config

import (
	"fmt"
	"path"
	"slices"
)

// words checks a list whose items come from a fixed set.
func (d *decoder) words(o object, key string, got, allowed []string) {
	seen := map[string]bool{}
	for i, item := range o.n.get(key).items {
		if i >= len(got) || item.missing {
			continue
		}
		at := fmt.Sprintf("%s.%s[%d]", o.path, key, i)
		switch {
		case !slices.Contains(allowed, item.text):
			d.fail(item.pos, "%s: got %s, want %s", at, item.shown(), orList(allowed))
		case seen[item.text]:
			d.fail(item.pos, "%s: %s stands twice", at, item.shown())
		}
		seen[item.text] = true
	}
}

func (d *decoder) tools(o object, s *Server) {
	t, ok := o.child("tools", []string{"allow", "deny", "rename", "describe"})
	if !ok {
		return
	}
	t.texts("allow", &s.Tools.Allow, `["read_*"]`)
	t.texts("deny", &s.Tools.Deny, `["write_*"]`)
	for _, key := range []string{"allow", "deny"} {
		if n := t.n.get(key); n != nil {
			for i, item := range n.items {
				if _, err := path.Match(item.text, ""); err != nil || item.text == "" && !item.missing {
					d.fail(item.pos, "%s.%s[%d]: %s is not a pattern; write a tool's name, with * for any characters", t.path, key, i, item.shown())
				}
			}
		}
	}
	if n := t.n.get("allow"); n != nil && len(n.items) == 0 && n.kind == kindList {
		d.fail(n.pos, "%s.allow: an empty list would let nothing through; leave it out, or set enabled: false", t.path)
	}
	t.textMap("rename", &s.Tools.Rename, "{old_name: new_name}")
	t.textMap("describe", &s.Tools.Describe, `{name: "What it does"}`)
	n := t.n.get("rename")
	if n == nil {
		return
	}
	taken := map[string]string{}
	for _, p := range n.pairs {
		to := p.value.text
		switch {
		case p.value.missing || !p.value.scalar():
			continue
		case !toolPattern.MatchString(to):
			d.fail(p.value.pos, "%s.rename.%s: %s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", t.path, p.key, p.value.shown())
		case taken[to] != "":
			d.fail(p.value.pos, "%s.rename: %s and %s would both be called %s; choose another name for one", t.path, taken[to], p.key, p.value.shown())
		}
		taken[to] = p.key
	}
}
