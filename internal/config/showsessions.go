package config

func boundNode(v int64) *Node {
	if v == 0 {
		return StringNode(noBound)
	}
	return SizeNode(v)
}

func (w Workspace) shown(hidden map[string]bool) *Node {
	if w.Template == "" && w.Path == "" {
		return BoolNode(w.On)
	}
	n := MapNode()
	n.inline = true
	rel := "workspace.template"
	if hidden["workspace"] { // it was written as one string
		rel = "workspace"
	}
	if w.Template != "" {
		n.setText("template", w.Template, rel, hidden)
	}
	if w.Path != "" {
		n.setText("path", w.Path, "workspace.path", hidden)
	}
	return n
}

// showRemembering adds what a server keeps, and what a fork carries of it.
func (s *Server) showRemembering(n *Node) {
	if s.Stateless {
		n.Set("state", StringNode(noState))
	}
	if len(s.State) > 0 {
		dirs := MapNode()
		dirs.inline = true
		for _, d := range s.State {
			v := &Node{Shape: ShapeNull, Text: "null"}
			if d.Template != "" {
				v = StringNode(s.ShownText("state."+d.Name, d.Template))
			}
			dirs.Pairs = append(dirs.Pairs, Pair{Key: d.Name, Value: v})
		}
		n.Set("state", dirs)
	}
	if s.Template != "" {
		n.Set("template", StringNode(s.ShownText("template", s.Template)))
	}
	if len(s.Details) > 0 {
		n.Set("template", shownAny("template", s.detailsValue(), s.hidden))
	}
	if s.Driver == "process" || s.Driver == "builtin" || s.kind != nil && s.kind.Around != "" {
		n.Set("workspace", BoolNode(s.Workspace))
	}
	if s.Fork != "" {
		n.Set("fork", StringNode(s.Fork))
	}
	if s.Budget.Memory > 0 {
		b := MapNode(Pair{Key: "memory", Value: SizeNode(s.Budget.Memory)})
		b.inline = true
		n.Set("budget", b)
	}
	s.showCopied(n)
}
