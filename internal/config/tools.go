package config

var toolsKeys = []string{"allow", "deny", "rename", "describe"}

func (d *decoder) tools(o object, s *Server) {
	t, ok := o.child("tools", toolsKeys)
	if !ok {
		return
	}
	t.texts("allow", &s.Tools.Allow, `["read_*"]`)
	t.texts("deny", &s.Tools.Deny, `["write_*"]`)
	t.patterns("allow", "a tool's name")
	t.patterns("deny", "a tool's name")
	if n := t.n.get("allow"); n != nil && n.kind == kindList {
		t.emptyList("allow", "an empty list would let nothing through; leave it out, or set enabled: false")
	}
	var rename, describe map[string]string
	if t.textMap("describe", &describe, `{name: "What it does"}`) {
		s.Tools.Describe = over(s.Tools.Describe, describe)
	}
	if !t.textMap("rename", &rename, "{old_name: new_name}") {
		return
	}
	// Names that an entry gave already stay taken, unless they are given anew.
	taken := map[string]string{}
	for from, to := range s.Tools.Rename {
		if _, again := rename[from]; !again {
			taken[to] = from
		}
	}
	s.Tools.Rename = over(s.Tools.Rename, rename)
	for _, p := range t.n.get("rename").pairs {
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
