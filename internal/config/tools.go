package config

var toolsKeys = []string{"allow", "deny", "rename", "describe"}

func (d *decoder) tools(o Object, s *Server) {
	t, ok := o.Child("tools", toolsKeys)
	if !ok {
		return
	}
	t.Texts("allow", &s.Tools.Allow, `["read_*"]`)
	t.Texts("deny", &s.Tools.Deny, `["write_*"]`)
	t.patterns("allow", "a tool's name")
	t.patterns("deny", "a tool's name")
	if n := t.n.Get("allow"); n != nil && n.Shape == ShapeList {
		t.EmptyList("allow", "an empty list would let nothing through; leave it out, or set enabled: false")
	}
	var rename, describe map[string]string
	if t.TextMap("describe", &describe, `{name: "What it does"}`) {
		s.Tools.Describe = over(s.Tools.Describe, describe)
	}
	if !t.TextMap("rename", &rename, "{old_name: new_name}") {
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
	for _, p := range t.n.Get("rename").Pairs {
		to := p.Value.Text
		switch {
		case p.Value.Missing || !p.Value.Scalar():
			continue
		case !toolPattern.MatchString(to):
			d.fail(p.Value.Pos, "%s.rename.%s: %s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", t.Path, p.Key, p.Value.Shown())
		case taken[to] != "":
			d.fail(p.Value.Pos, "%s.rename: %s and %s would both be called %s; choose another name for one", t.Path, taken[to], p.Key, p.Value.Shown())
		}
		taken[to] = p.Key
	}
}
