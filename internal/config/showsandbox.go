package config

// shownSandbox is what the walls are like, with every secret masked.
func (s *Server) shownSandbox() *node {
	b, n := s.Sandbox, mapNode()
	text := func(key, v string) { n.setText(key, v, "sandbox."+key, s.hidden) }
	list := func(key string, v []string) { n.setList(key, v, "sandbox."+key, s.hidden) }
	text("root", b.Root)
	list("allow_read", b.AllowRead)
	list("allow_write", b.AllowWrite)
	list("deny_read", b.DenyRead)
	text("user", b.User)
	text("hostname", b.Hostname)
	text("network", b.Network)
	list("network", b.Domains)
	text("transport", b.Transport)
	if b.Port > 0 {
		n.set("port", intNode(int64(b.Port)))
	}
	text("path", b.Path)
	n.set("memory", sizeNode(b.Memory))
	if b.CPUs > 0 {
		n.set("cpus", numberNode(b.CPUs))
	}
	n.set("pids", intNode(b.Pids))
	n.set("files", intNode(b.Files))
	n.set("disk", sizeNode(b.Disk))
	n.set("slots", intNode(int64(b.Slots)))
	return n
}

// showCopied adds what is for servers that are copied while they run.
func (s *Server) showCopied(n *node) {
	if s.Sandbox == nil {
		return
	}
	n.set("warm", intNode(int64(s.Warm)))
	n.set("fork_ahead", boolNode(s.ForkAhead))
	switch f := s.OnFork; {
	case f == nil:
	case f.Tool == "":
		n.set("on_fork", stringNode("notify"))
	case s.hidden["on_fork"] || s.hidden["on_fork.tool"]:
		n.set("on_fork", stringNode("tool "+mask))
	default:
		n.set("on_fork", stringNode("tool "+f.Tool))
	}
}

// sandbox adds what came from placeholders.
func (l secretList) sandbox(s *Server) {
	b := s.Sandbox
	if b == nil {
		return
	}
	for key, list := range map[string][]string{
		"allow_read": b.AllowRead, "allow_write": b.AllowWrite, "deny_read": b.DenyRead, "network": b.Domains,
	} {
		for i, v := range list {
			if s.hidden["sandbox."+key+"."+itoa(i)] {
				l.add(v)
			}
		}
	}
	for _, e := range []keyText{{"root", b.Root}, {"user", b.User}, {"hostname", b.Hostname}, {"path", b.Path}} {
		if s.hidden["sandbox."+e.key] {
			l.add(e.value)
		}
	}
}
